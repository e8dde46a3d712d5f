"""Optimisers: LAMB against its formulas, what is decayed, and states that come back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from firth.errors import ArtifactError
from firth.fit.optimisers import Lamb, make_optimiser, optimiser_arrays, reset_state, restore_optimiser
from firth.nets.recipe import LearningRecipe

NAMES = ("adamw", "adam", "adagrad", "sgd", "lamb")
EVERY = pytest.mark.parametrize("name", NAMES)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def step(optimiser: torch.optim.Optimizer, module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimiser.step()


def values(module: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def test_lamb_follows_its_algorithm() -> None:
    """You et al. 2020, algorithm 2, with numbers of its own."""
    rng = np.random.default_rng(1)
    start, gradients = rng.normal(size=(2, 3)), rng.normal(size=(3, 2, 3))
    parameter = nn.Parameter(torch.tensor(start))
    optimiser = Lamb([{"params": [parameter], "weight_decay": 0.1}], 0.01, (0.9, 0.98), 1e-6)
    x, m, v = start.copy(), np.zeros((2, 3)), np.zeros((2, 3))
    for t, g in enumerate(gradients, 1):
        parameter.grad = torch.tensor(g)
        optimiser.step()
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-6)
        update = r + 0.1 * x
        x = x - 0.01 * np.linalg.norm(x) / np.linalg.norm(update) * update
        np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-10)


def test_lamb_takes_adams_step_for_biases_and_from_nothing() -> None:
    bias, nothing = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(2, 2))
    optimiser = Lamb([bias, nothing], 0.1)
    bias.grad, nothing.grad = torch.tensor([1.0, -2.0, 3.0]), torch.ones(2, 2)
    optimiser.step()
    torch.testing.assert_close(bias.detach(), 1 - 0.1 * torch.tensor([1.0, -1.0, 1.0]), rtol=1e-5, atol=0)
    torch.testing.assert_close(nothing.detach(), torch.full((2, 2), -0.1), rtol=1e-5, atol=0)


@EVERY
def test_biases_and_norms_are_not_decayed(name: str) -> None:
    module = network()
    optimiser = make_optimiser(LearningRecipe(optimiser=name, weight_decay=0.5), module, 0.1)  # type: ignore[arg-type]
    before = {key: one.detach().clone() for key, one in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for key, parameter in module.named_parameters():
        moved = not torch.equal(parameter.detach(), before[key])
        assert moved == (parameter.ndim > 1), key


@EVERY
def test_a_state_comes_back(name: str) -> None:
    learning = LearningRecipe(optimiser=name)  # type: ignore[arg-type]
    module = network()
    optimiser = make_optimiser(learning, module, 0.1)
    for seed in range(3):
        step(optimiser, module, seed)
    arrays = {key: array.copy() for key, array in optimiser_arrays(optimiser, module).items()}
    other = network(seed=1)
    other.load_state_dict(module.state_dict())
    again = make_optimiser(learning, other, 0.1)
    restore_optimiser(again, other, arrays)
    for seed in range(3, 6):
        step(optimiser, module, seed)
        step(again, other, seed)
    assert torch.equal(values(module), values(other))


@EVERY
def test_what_is_forgotten_was_never_there(name: str) -> None:
    learning = LearningRecipe(optimiser=name)  # type: ignore[arg-type]
    module, other = network(), network()
    optimiser = make_optimiser(learning, module, 0.1)
    for seed in range(3):
        step(optimiser, module, seed)
    other.load_state_dict(module.state_dict())
    reset_state(optimiser, module.parameters())
    fresh = make_optimiser(learning, other, 0.1)
    step(optimiser, module, 9)
    step(fresh, other, 9)
    assert torch.equal(values(module), values(other))


def test_a_state_of_another_shape_is_refused() -> None:
    module = network()
    optimiser = make_optimiser(LearningRecipe(), module, 0.1)
    for bad in ({"optimiser.0.weight.exp_avg": np.zeros((1, 1))}, {"optimiser.nothing.exp_avg": np.zeros(())}):
        with pytest.raises(ArtifactError, match="fits no parameter"):
            restore_optimiser(optimiser, module, bad)
