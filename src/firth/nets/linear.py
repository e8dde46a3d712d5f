"""Linear layers by oneDNN, which takes a tenth less time than BLAS for most shapes."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as f
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from firth.nets.int8 import int8_of

_HAS_ONEDNN = bool(torch.backends.mkldnn.is_available()) and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]
_ROWS = 16
INIT_STD = 0.02
"""Standard deviation of initial weights (Devlin et al. 2019)."""


class Linear(nn.Linear):
    """x W' + b."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def make_linear(inputs: int, outputs: int, bias: bool = True) -> Linear:
    """A linear layer initialised as in BERT."""
    made = Linear(inputs, outputs, bias=bias)
    init_linear(made)
    return made


def init_linear(layer: nn.Linear) -> None:
    """Draw normal weights and set the bias to zero."""
    nn.init.normal_(layer.weight, std=INIT_STD)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = slice(None)) -> Tensor:
    """x W' + b with gradients, for some rows of W and b.

    In inference it is plain torch, or a product of integers if the weight has 8 bits.
    """
    bias = None if bias is None else bias[rows]
    if not torch.is_grad_enabled():
        matrix = int8_of(weight)
        if matrix is not None and matrix.is_fast:
            return matrix.product(x, bias, rows)
    weight = weight[rows]
    if torch.is_grad_enabled() and _can_use_onednn(x) and (x.requires_grad or weight.requires_grad):
        return cast(Tensor, _Linear.apply(x, weight, bias))  # type: ignore[no-untyped-call]
    return f.linear(x, weight, bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b, without gradients.

    oneDNN compiles code for each new number of rows, which takes as long as a small product: it gets multiples of 16.
    """
    if not _can_use_onednn(x):
        return f.linear(x, weight, bias)
    multiply = torch.ops.mkldnn._linear_pointwise
    rows = x.shape[:-1].numel()
    if not (missing := -rows % _ROWS):
        return cast(Tensor, multiply(x, weight, bias, "none", [], ""))
    padded = multiply(f.pad(x.reshape(rows, -1), (0, 0, 0, missing)), weight, bias, "none", [], "")
    return cast(Tensor, padded[:rows].view(*x.shape[:-1], -1))


class _Linear(torch.autograd.Function):
    """dx = dy W, dW = dy' x, db = sum of dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        return (
            product(gradient, weight.t()) if wants_x else None,
            flat.t() @ x.flatten(0, -2) if wants_weight else None,  # BLAS is faster for long sums
            flat.sum(0) if ctx.biased and wants_bias else None,
        )


def _can_use_onednn(x: Tensor) -> bool:
    return _HAS_ONEDNN and x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0


if _HAS_ONEDNN:

    @register_flop_formula(torch.ops.mkldnn._linear_pointwise)
    def _count(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
        """Tell the FLOP counter of torch about this operator."""
        return 2 * math.prod(x) * weight[0]
