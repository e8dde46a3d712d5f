"""The gradients of an objective beside finite differences of its loss."""

from __future__ import annotations

import pytest
import torch

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network
from firth.objectives.heads.head import ObjectiveHead


def loss_of(network: Network, objective: ObjectiveHead, batch: Batch) -> Loss:
    batch = objective.rewrite(batch, network, None)
    return objective.loss(network, network(batch, objective.positions(batch)), batch, None)


def number(loss: Loss) -> float:
    return float(loss.total.detach())


def assert_finite_differences(network: Network, objective: ObjectiveHead, batch: Batch) -> None:
    """The gradient of every parameter that the loss depends on, along a random direction."""
    loss = loss_of(network, objective, batch)
    loss.total.backward()  # type: ignore[no-untyped-call]
    trained = [
        (key, one)
        for sequence in (network, objective)
        for key, one in sequence.named_parameters()
        if one.grad is not None
    ]
    assert any(one.grad.abs().max() > 0 for _, one in trained)
    generator = torch.Generator().manual_seed(4)
    for key, parameter in trained:
        gradient = parameter.grad
        assert gradient is not None
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        sides = []
        for step in (1e-6, -1e-6):
            parameter.data.add_(direction, alpha=step)
            with torch.no_grad():
                sides.append(number(loss_of(network, objective, batch)))
            parameter.data.sub_(direction, alpha=step)
        slope = float((gradient * direction).sum())
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(slope, rel=1e-5, abs=1e-5), key
