"""Prediction of a word from the context around it (Melamud et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.context import states_around
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network
from firth.objectives.heads.clm import positions_with_next
from firth.objectives.heads.head import ObjectiveHead
from firth.tokens.tokenizer import FIRST_WORD, UNK


class ContextWordHead(ObjectiveHead):
    """The loss of the output layer for each word, from the forward state before it and the backward state after it."""

    def targets(self, batch: Batch) -> Tensor:
        """The positions of words between two tokens of their sequence."""
        has_next = torch.zeros(batch.ids.numel() + 1, dtype=torch.bool)
        has_next[positions_with_next(batch)] = True
        has_before, ids = has_next.roll(1)[:-1], batch.ids.flatten()
        return (has_next[:-1] & has_before & ((ids >= FIRST_WORD) | (ids == UNK))).nonzero()[:, 0]

    def positions(self, batch: Batch) -> Tensor:
        targets = self.targets(batch)
        found: Tensor = torch.unique(torch.cat([targets - 1, targets + 1]))
        return found

    def count(self, batch: Batch) -> int:
        return len(self.targets(batch))

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        targets = self.targets(batch)
        around = states_around(states, targets)
        return Loss(network.output.loss(around, batch.ids.flatten()[targets], None, rng), len(targets))
