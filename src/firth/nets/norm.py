"""Normalisation whose gradients do not depend on the number of threads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` with the same outputs.

    PyTorch sums the gradients of its parameters in as many parts as there are threads: of all operations of a
    Transformer the only one whose result depends on their number.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(input)
        normalised: Tensor = _LayerNorm.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        return normalised


class RMSNorm(nn.Module):
    """x / sqrt(mean of x^2 + eps), times a weight (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, input: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return _root_mean_square(input, self.eps).reciprocal_().mul(input).mul_(self.weight)
        normalised: Tensor = _RMSNorm.apply(input, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return normalised


def _root_mean_square(states: Tensor, eps: float) -> Tensor:
    return states.square().mean(-1, keepdim=True).add_(eps).sqrt_()


class _RMSNorm(Function):
    """With n = x / r: dw = sum of dy n, dx = (g - n mean(g n)) / r for g = dy w. Sums do not depend on threads."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, eps: float) -> Tensor:
        root = _root_mean_square(states, eps)
        normalised = states / root
        ctx.save_for_backward(normalised, weight, root)
        return normalised * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        normalised, weight, root = ctx.saved_tensors
        to_weight = (gradient * normalised).reshape(-1, weight.numel()).sum(0)
        inner = gradient * weight
        inner -= normalised * (inner * normalised).mean(-1, keepdim=True)
        return inner.div_(root), to_weight, None


class _LayerNorm(Function):
    """The operation over the last dimension."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        out, mean, scale = torch.native_layer_norm(states, weight.shape, weight, bias, eps)
        ctx.save_for_backward(states, weight, bias, mean, scale)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        states, weight, bias, mean, scale = ctx.saved_tensors
        needs_states, needs_weight, needs_bias, _ = ctx.needs_input_grad
        to_states = to_weight = to_bias = None
        if needs_states:
            to_states = torch.ops.aten.native_layer_norm_backward(
                gradient, states, weight.shape, mean, scale, weight, bias, [True, False, False]
            )[0]
        width = weight.numel()
        if needs_weight:
            normalised = torch.native_layer_norm(states, weight.shape, None, None, ctx.eps)[0]
            to_weight = normalised.mul_(gradient).reshape(-1, width).sum(0)
        if needs_bias:
            to_bias = gradient.reshape(-1, width).sum(0)
        return to_states, to_weight, to_bias, None
