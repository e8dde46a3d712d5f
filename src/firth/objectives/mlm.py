"""Masked language modelling: hidden tokens are predicted from both sides (Devlin et al. 2019)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.objectives.masking import choose, hide
from firth.objectives.objective import Objective


class MaskedModelling(Objective):
    """-log p(w[t] | the text with some tokens hidden) for the places t that were chosen."""

    name: ClassVar[str] = "mlm"

    def __init__(self, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.vocabulary = len(vocabulary)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Hides tokens; marks: the places, what stood there, and which of them were chosen together."""
        recipe = self.recipe.masking
        groups = choose(batch, recipe, rng)
        batch.marks["mlm.places"] = groups.places
        batch.marks["mlm.targets"] = batch.ids.flatten()[groups.places]
        batch.marks["mlm.groups"] = groups.numbers
        hide(batch, groups, recipe, self.vocabulary, rng)

    def places(self, batch: Batch) -> Tensor | None:
        return batch.marks["mlm.places"]

    def count(self, batch: Batch) -> int:
        return len(batch.marks["mlm.places"])

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        places, targets = batch.marks["mlm.places"], batch.marks["mlm.targets"]
        before = batch.ids.flatten()[(places - 1).clamp(min=0)]
        return Loss(network.output.loss(states.at(places), targets, before, noise), len(places))
