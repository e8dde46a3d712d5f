"""Causal and masked language modelling with predictions one position before (Charpentier and Samuel 2024)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.transformer import GATHERED
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import GatheredQueries
from firth.objectives.heads.clm import positions_with_next
from firth.objectives.heads.head import Corruption, ObjectiveHead, row_seeds
from firth.objectives.heads.masking import choose_positions, mask_tokens
from firth.objectives.masking import Masking
from firth.tokens.tokenizer import EOS


class MaskedNextTokenHead(ObjectiveHead):
    """-log p(w[t] | state at t - 1): of all tokens t of causal rows, of the masked ones of the others."""

    def __init__(
        self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, causal: float, masking: Masking
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.causal, self.masking = causal, masking
        self.counts_words = masking.policy != "token"

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Draw which rows are causal, set the order of attention, and mask tokens of the other rows."""
        drawn = (row_seeds(batch, rng) >> np.uint64(11)) * 2.0**-53 < self.causal
        batch.labels["mntp.causal"] = torch.from_numpy(drawn)
        is_causal = batch.labels["mntp.causal"][:, None]
        columns = torch.arange(batch.shape[1]).expand(batch.shape)
        batch.attention_order = torch.where(is_causal, columns, 0)
        ends = torch.where(is_causal, EOS, batch.ids)  # which are never masked
        chosen = choose_positions(replace(batch, ids=ends), self.masking, rng)
        following = positions_with_next(batch)
        following = following[is_causal[following // batch.shape[1], 0]] + 1
        batch.labels["mntp.masked"], batch.labels["mntp.groups"] = chosen.positions, chosen.groups
        predicted = torch.cat([chosen.positions, following]).sort().values
        batch.labels["mntp.positions"] = predicted - 1
        batch.labels["mntp.targets"] = batch.ids.flatten()[predicted]
        mask_tokens(batch, chosen, self.masking, self.vocabulary, rng)

    def changeable(self, batch: Batch) -> Tensor:
        return super().changeable(batch) & ~batch.labels["mntp.causal"][:, None]

    def corruption(self, batch: Batch) -> Corruption:
        masked = batch.labels["mntp.masked"]
        is_masked = torch.isin(batch.labels["mntp.positions"] + 1, masked)
        return Corruption(masked, batch.labels["mntp.groups"], batch.labels["mntp.targets"][is_masked])

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        is_causal = batch.labels["mntp.causal"]
        return {"read left to right": (float(is_causal.sum()), float(len(is_causal)))}

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels["mntp.positions"]

    def flops(self, network: Network, batch: Batch) -> float:
        """Rows are read together: in the last layer those with few predictions have as many queries as the others.

        Plans leave this out, which is a few percent.
        """
        rows, length = batch.shape
        positions = self.positions(batch)
        if len(positions) > GATHERED * rows * length or self.recipe.encoder.kind != "transformer":
            return 0.0
        queries = rows * GatheredQueries(positions, (rows, length)).per_row
        return 4.0 * (queries - len(positions)) * length * self.recipe.encoder.width

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, targets = self.positions(batch), batch.labels["mntp.targets"]
        previous = batch.ids.flatten()[positions]
        return Loss(network.output.loss(states.at(positions), targets, previous, rng), len(positions))
