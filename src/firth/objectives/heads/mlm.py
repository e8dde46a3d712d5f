"""Masked language modelling (Devlin et al. 2019)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import Corruption, ObjectiveHead
from firth.objectives.heads.masking import choose_positions, mask_tokens
from firth.objectives.masking import Masking


class MaskedLMHead(ObjectiveHead):
    """-log p(w[t] | the corrupted text) at the chosen positions t."""

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, masking: Masking) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.masking = masking

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Mask tokens; labels: the positions, their original tokens, and the group of each position."""
        chosen = choose_positions(batch, self.masking, rng)
        batch.labels[f"{self.name}.positions"] = chosen.positions
        batch.labels[f"{self.name}.targets"] = batch.ids.flatten()[chosen.positions]
        batch.labels[f"{self.name}.groups"] = chosen.groups
        mask_tokens(batch, chosen, self.masking, self.vocabulary, rng)

    def corruption(self, batch: Batch) -> Corruption:
        return Corruption(*(batch.labels[f"mlm.{name}"] for name in Corruption._fields))

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels[f"{self.name}.positions"]

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, targets = self.positions(batch), batch.labels[f"{self.name}.targets"]
        previous = batch.ids.flatten()[(positions - 1).clamp(min=0)]
        return Loss(network.output.loss(states.at(positions), targets, previous, rng), len(positions))
