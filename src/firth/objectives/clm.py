"""Causal language modelling: each token is predicted from those before it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States
from firth.nets.noise import Noise
from firth.objectives.objective import Objective


class CausalModelling(Objective):
    """-log p(w[t + 1] | w[1..t]) for all places of a part but the last; ends of sentences are tokens like others."""

    name: ClassVar[str] = "clm"

    def places(self, batch: Batch) -> Tensor | None:
        """All places but the last of each part."""
        return continuing(batch)

    def count(self, batch: Batch) -> int:
        return len(continuing(batch))

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        places, ids = continuing(batch), batch.ids.flatten()
        total = network.output.loss(states.at(places), ids[places + 1], ids[places], noise)
        return Loss(total, len(places))


def continuing(batch: Batch) -> Tensor:
    """The places whose part goes on with the next place of the row, in order.

    >>> parts = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 0, 0]])
    >>> continuing(Batch(parts, parts == 0, parts=parts)).tolist()
    [0, 2, 5, 6, 7, 8]
    """
    goes_on = torch.ones_like(batch.ids, dtype=torch.bool)
    goes_on[:, -1] = False
    if batch.parts is not None:
        goes_on[:, :-1] = (batch.parts[:, 1:] == batch.parts[:, :-1]) & (batch.parts[:, 1:] >= 0)
    return goes_on.flatten().nonzero()[:, 0]
