"""OutputLayer: from states to the probabilities of tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, MASK, PAD

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

NEVER = (PAD, BOS, MASK)
"""Tokens that are never predicted: their probability is 0 when a model is used."""

_HOMES = {
    "full": ("softmax", "Softmax"),
    "tied": ("softmax", "Softmax"),
    "direct": ("softmax", "Direct"),
    "classes": ("classes", "Classes"),
    "huffman": ("trees", "Huffman"),
    "tree": ("trees", "LearntTree"),
    "importance": ("sampled", "Importance"),
    "nce": ("sampled", "NoiseContrast"),
    "adaptive": ("adaptive", "Adaptive"),
}


class OutputLayer(nn.Module, ABC):
    """All of them are given states (places, width) and tell probabilities of tokens."""

    @abstractmethod
    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        """The sum of what is minimised in learning, one number: exact layers -log p, sampled ones an estimate.

        `previous` has the token before each target, for proposals that look at it. Without noise it is the exact sum of
        -log p.
        """

    @abstractmethod
    def log_probabilities(self, states: Tensor) -> Tensor:
        """(places, tokens): normalised; -inf for the tokens that are never predicted."""

    @abstractmethod
    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        """(places): of the targets alone, the same numbers as in `log_probabilities`."""

    def logits(self, states: Tensor) -> Tensor:
        """(places, tokens): numbers whose softmax is the distribution over all tokens."""
        return self.log_probabilities(states)

    @abstractmethod
    def work(self) -> float:
        """Floating-point operations for one prediction in learning, forwards."""

    def prepare(self, store: TokenStore) -> None:
        """Looks at the text that is to be learnt: called before the first step, also when training goes on."""

    def renew(self, share: float) -> bool:
        """Called before each step with the share of training that is done; true if the layer has changed its shape.

        What is known of its parameters' past (means of gradients and the like) is then to be forgotten. It depends on
        the share and the saved state alone, so training that goes on does the same.
        """
        return False


class ExactLayer(OutputLayer):
    """A layer that has an exact -log p: what it must know of one or of all tokens is below, and the rest follows.

    Targets that are never predicted add nothing to the loss, and their probability is 0.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        self.transform: nn.Module | None = None
        self._before = 0.0
        if recipe.output.transform:
            from firth.nets.outputs.softmax import Transform

            width = state_width(recipe)
            self.transform = Transform(recipe, width, width)
            self._before = 2.0 * width * width

    @abstractmethod
    def losses(self, entered: Tensor, targets: Tensor) -> Tensor:
        """(places): -log p of targets that can be predicted, from what `enter` makes of states."""

    @abstractmethod
    def all_logs(self, entered: Tensor) -> Tensor:
        """(places, tokens): log p of all tokens, from the same."""

    @abstractmethod
    def own_work(self) -> float:
        """As `work`, for what comes after `enter`."""

    def enter(self, states: Tensor) -> Tensor:
        """The states, or what one more layer makes of them."""
        return states if self.transform is None else cast(Tensor, self.transform(states))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        kept = can_be_predicted(targets)
        if not kept.all():
            states, targets = states[kept], targets[kept]
        return self.losses(self.enter(states), targets).sum()

    def log_probabilities(self, states: Tensor) -> Tensor:
        return self.all_logs(self.enter(states))

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        kept = can_be_predicted(targets)
        if kept.all():
            return -self.losses(self.enter(states), targets)
        nothing = states.new_full(targets.shape, -torch.inf)
        return nothing.masked_scatter(kept, -self.losses(self.enter(states[kept]), targets[kept]))

    def work(self) -> float:
        return self._before + self.own_work()


def state_width(recipe: NetRecipe) -> int:
    """Numbers of a state that predicts: where two directions are read, each predicts by itself, from its own half."""
    return recipe.width // recipe.directions


def predictable(tokens: int) -> npt.NDArray[np.int64]:
    """The ids that can be predicted.

    >>> predictable(8).tolist()
    [1, 3, 5, 6, 7]
    """
    return np.setdiff1d(np.arange(tokens), NEVER)


def can_be_predicted(targets: Tensor) -> Tensor:
    """Which of some tokens can be."""
    return torch.isin(targets, torch.tensor(NEVER), invert=True)


def frequencies(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The share of each token in what is predicted, as if each that can be had occurred once more.

    >>> frequencies(np.array([9, 0, 9, 2, 9, 3])).tolist()
    [0.0, 0.125, 0.0, 0.375, 0.0, 0.5]
    """
    kept = predictable(counts.size)
    shares = np.zeros(counts.size)
    shares[kept] = counts[kept] + 1.0
    shares /= shares.sum()
    return shares


def make_output(recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> OutputLayer:
    """The output layer that a recipe asks for; `counts` say how often each token occurs."""
    module, name = _HOMES[recipe.output.kind]
    made = getattr(import_module(f"firth.nets.outputs.{module}"), name)(recipe, counts, embedding)
    assert isinstance(made, OutputLayer)
    return made
