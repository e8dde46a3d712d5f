"""Optimisers, and their state as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from firth.errors import ArtifactError
from firth.nets.recipe import LearningRecipe


def parameter_groups(parameters: Iterable[Tensor], decay: float, scale: float = 1.0) -> list[dict[str, Any]]:
    """Two groups, since biases and norms have no weight decay; `scale` is a factor of the learning rate."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    return [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": decay, "scale": scale},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0, "scale": scale},
    ]


def make_optimiser(
    learning: LearningRecipe, module: nn.Module, lr: float, groups: list[dict[str, Any]] | None = None
) -> Optimizer:
    """The optimiser of a recipe."""
    groups = groups or parameter_groups(module.parameters(), learning.weight_decay)
    betas = (learning.beta1, learning.beta2)
    makers: dict[str, Callable[[], Optimizer]] = {
        "adamw": lambda: AdamW(groups, lr, betas, 1e-6, fused=True),
        "adam": lambda: Adam(groups, lr, betas, 1e-8, fused=True),
        "adagrad": lambda: Adagrad(groups, lr, fused=True),
        "sgd": lambda: SGD(groups, lr, fused=True),
        "lamb": lambda: Lamb(groups, lr, betas, 1e-6),
    }
    return makers[learning.optimiser]()


class Lamb(Optimizer):
    """LAMB: Adam's direction scaled by the norm of the parameters (You et al. 2020, algorithm 2).

    Biases and norms, which have no weight decay, take Adam's step, as in the authors' program.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        step, (beta1, beta2) = float(state["step"]), group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (square / (1 - beta2**step)).sqrt_().add_(group["eps"])
        direction = (mean / (1 - beta1**step)).div_(root)
        ratio = 1.0
        if parameter.ndim > 1:
            direction.add_(parameter, alpha=group["weight_decay"])
            direction_norm, norm = float(direction.norm()), float(parameter.norm())
            ratio = norm / direction_norm if norm > 0 and direction_norm > 0 else 1.0
        parameter.add_(direction, alpha=-group["lr"] * ratio)


def reset_state(optimiser: Optimizer, parameters: Iterable[Tensor]) -> None:
    """Reset the optimiser state of some parameters to that before the first step."""
    for parameter in parameters:
        for value in optimiser.state.get(parameter, {}).values():
            value.zero_()


def optimiser_arrays(optimiser: Optimizer, module: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """The state of an optimiser as arrays named `optimiser.PARAMETER.KEY`, which share its memory."""
    found = {}
    for name, parameter in module.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            found[f"optimiser.{name}.{key}"] = value.detach().numpy()
    return found


def restore_optimiser(optimiser: Optimizer, module: nn.Module, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Load the state that `optimiser_arrays` returned."""
    parameters = dict(module.named_parameters())
    for full, array in arrays.items():
        prefix, _, key = full.rpartition(".")
        kind, _, name = prefix.partition(".")
        if kind != "optimiser":
            continue
        if name not in parameters or array.shape not in ((), parameters[name].shape):
            raise ArtifactError(f"the checkpoint's {full} fits no parameter: remove the checkpoint and train again.")
        optimiser.state[parameters[name]][key] = torch.from_numpy(np.array(array))
