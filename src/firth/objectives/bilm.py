"""Two-way language modelling: each token from those before it, and from those after it (Peters et al. 2018)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States
from firth.nets.noise import Noise
from firth.objectives.clm import continuing
from firth.objectives.objective import Objective


class TwoWayModelling(Objective):
    """-log p(w[t + 1] | w[1..t]) by the first half of the states, -log p(w[t] | w[t + 1..n]) by the second half.

    Both halves have the output layer in common.
    """

    name: ClassVar[str] = "bilm"

    def places(self, batch: Batch) -> Tensor | None:
        """All places with another of the same part beside them."""
        before = continuing(batch)
        beside = torch.zeros(batch.ids.numel(), dtype=torch.bool)
        beside[before] = beside[before + 1] = True
        return beside.nonzero()[:, 0]

    def count(self, batch: Batch) -> int:
        return 2 * len(continuing(batch))

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        forward, backward = self.direction_losses(network, states, batch, noise)
        return Loss(forward.total + backward.total, forward.count + backward.count)

    def direction_losses(
        self, network: Network, states: States, batch: Batch, noise: Noise | None
    ) -> tuple[Loss, Loss]:
        """The loss of reading forwards, and that of reading backwards."""
        before, ids = continuing(batch), batch.ids.flatten()
        after = before + 1
        half = states.last.shape[-1] // 2
        forward = network.output.loss(states.at(before)[:, :half], ids[after], ids[before], noise)
        backward = network.output.loss(states.at(after)[:, half:], ids[before], ids[after], noise)
        return Loss(forward, len(before)), Loss(backward, len(before))
