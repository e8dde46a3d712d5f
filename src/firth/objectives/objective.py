"""Objective: corrupts and predicts. It owns its noise, its layers and its loss, in one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.objectives.sequences import Sequences


class Objective(nn.Module, ABC):
    """What a network is taught. Each method but `places`, `count` and `loss` may be left as it is."""

    name: ClassVar[str]
    copies: ClassVar[int] = 1
    """How many segments `pair` makes of each: rows leave room for so many."""

    def __init__(self, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        """Layers of its own are made here, as attributes."""
        super().__init__()
        self.recipe = recipe

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Which second segment each sequence gets, before they are laid out in rows."""
        return sequences

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Changes the ids of a batch and notes what is to be predicted in its marks; no network is needed for it.

        The noise of a row is drawn by `firth.objectives.draws.row_keys(batch, rng)`: `rng` is the same for all batches
        of a pass, and whatever else is in the batch must not matter.
        """

    def rewrite(self, batch: Batch, network: Network, noise: Noise | None) -> Batch:
        """Changes a batch by what a network says of it."""
        return batch

    @abstractmethod
    def places(self, batch: Batch) -> Tensor | None:
        """Numbers of the places whose states are needed, in order; None for all."""

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """How many predictions it makes in a batch."""

    @abstractmethod
    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        """The sum of the losses of all predictions in a batch, and their number."""


_HOMES = {
    "clm": ("clm", "CausalModelling"),
    "bilm": ("bilm", "TwoWayModelling"),
    "mlm": ("mlm", "MaskedModelling"),
    "nsp": ("nsp", "NextSentence"),
    "sop": ("sop", "SentenceOrder"),
    "autoencoding": ("autoencoding", "Autoencoding"),
    "ranking": ("ranking", "Ranking"),
}


def make_objectives(recipe: NetRecipe, vocabulary: Vocabulary) -> dict[str, Objective]:
    """The objectives of a recipe by name."""
    made = {}
    for one in recipe.names:
        module, name = _HOMES[one]
        made[one] = getattr(import_module(f"firth.objectives.{module}"), name)(recipe, vocabulary)
    return made


def union(places: Sequence[Tensor | None]) -> Tensor | None:
    """All places that any of them asks for, in order; None as soon as one wants all."""
    import torch

    asked = [one for one in places if one is not None]
    if len(asked) < len(places):
        return None
    return asked[0] if len(asked) == 1 else torch.unique(torch.cat(asked))
