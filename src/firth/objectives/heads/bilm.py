"""Bidirectional language modelling: each token from those before it, and from those after it (Peters et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network
from firth.objectives.heads.clm import positions_with_next
from firth.objectives.heads.head import ObjectiveHead


class BidirectionalLMHead(ObjectiveHead):
    """-log p(w[t + 1] | w[1..t]) by the first half of the states, -log p(w[t] | w[t + 1..n]) by the second half.

    Both halves share the output layer.
    """

    def positions(self, batch: Batch) -> Tensor:
        """All positions with a token of the same sequence before or after them."""
        before = positions_with_next(batch)
        is_used = torch.zeros(batch.ids.numel(), dtype=torch.bool)
        is_used[before] = is_used[before + 1] = True
        return is_used.nonzero()[:, 0]

    def count(self, batch: Batch) -> int:
        return 2 * len(positions_with_next(batch))

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: 2.0}

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        forward, backward = self.direction_losses(network, states, batch, rng)
        return Loss(forward.total + backward.total, forward.count + backward.count)

    def direction_losses(
        self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None
    ) -> tuple[Loss, Loss]:
        """The forward and the backward loss."""
        before, ids = positions_with_next(batch), batch.ids.flatten()
        after = before + 1
        half = states.last_hidden_state.shape[-1] // 2
        forward = network.output.loss(states.at(before)[:, :half], ids[after], ids[before], rng)
        backward = network.output.loss(states.at(after)[:, half:], ids[before], ids[after], rng)
        return Loss(forward, len(before)), Loss(backward, len(before))
