"""What training a recipe takes: its parameters and FLOPs, asked of the network itself, without its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from firth.fit.loop import TrainingModule
from firth.fit.resolve import fill_in
from firth.nets.network import Network, Vocabulary
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads

_FACTORIES = (torch.empty, torch.zeros, torch.ones)
_INITIALISERS = ("normal_", "uniform_", "div_")


class TrainingCost(NamedTuple):
    """The size of a network with the heads of its objectives, and the cost of training it."""

    parameters: int
    flops: float
    """Of forward and backward, per token of text."""


class TrainingCosts:
    """The costs of recipes with one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.of = lru_cache(maxsize=None)(self._cost)

    def _cost(self, recipe: NetRecipe) -> TrainingCost:
        return training_cost(fill_in(recipe, len(self.vocabulary)), self.vocabulary)


def training_cost(recipe: NetRecipe, vocabulary: Vocabulary) -> TrainingCost:
    """The cost of training a recipe, in milliseconds and without memory or random numbers of the global generator."""
    recipe = replace(recipe, encoder=replace(recipe.encoder, init="random"))
    with torch.random.fork_rng(devices=[]), _WithoutWeights():
        network = Network(recipe, vocabulary)
        module = TrainingModule(network, make_heads(recipe, network))
    return TrainingCost(sum(one.numel() for one in module.parameters()), module.expected_flops())


class _WithoutWeights(TorchFunctionMode):
    """New tensors are on the meta device and are not initialised.

    Not `torch.device("meta")`: initialising there imports for seconds, and permutations would have no values.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func.__name__ in _INITIALISERS:
            return args[0] if args else kwargs["tensor"]
        if func in _FACTORIES:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)
