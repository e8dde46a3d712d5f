"""Dropout whose random numbers are a function of the seed and the step alone."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

Shape = torch.Size | tuple[int, ...]


class DropoutRng:
    """The random numbers of one training step; the n-th draw is the same in every run.

    >>> one, two = DropoutRng(0, 7), DropoutRng(0, 7)
    >>> torch.equal(one.drop(torch.ones(4, 4), 0.5), two.drop(torch.ones(4, 4), 0.5))
    True
    """

    def __init__(self, seed: int, step: int, part: int = 0) -> None:
        self.generator = np.random.Generator(np.random.SFC64([seed, step, part]))

    def mask(self, shape: Shape, rate: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """The multiplier of dropout: 0, or the factor that preserves the mean. The rate is rounded to 1/256."""
        limit = min(max(1, round(256 * rate)), 255) if rate else 0  # never all of the 256 byte values
        kept = torch.empty(shape, dtype=dtype)
        # Comparing into floats takes one pass; comparing, converting and multiplying would take three.
        torch.ge(self._bytes(shape), limit, out=kept)
        return kept.mul_(256 / (256 - limit))

    def drop(self, values: Tensor, rate: float) -> Tensor:
        """Dropout (Srivastava et al. 2014)."""
        return values if rate == 0 else values * self.mask(values.shape, rate, values.dtype).to(values.device)

    def add(self, values: Tensor, more: Tensor, rate: float) -> Tensor:
        """values + dropout(more)."""
        if rate == 0:
            return values + more
        mask = self.mask(more.shape, rate, more.dtype).to(more.device)
        return cast(Tensor, _AddMasked.apply(values, more, mask))  # type: ignore[no-untyped-call]

    def _bytes(self, shape: Shape) -> Tensor:
        """Random bytes, eight from each number of the generator."""
        count = math.prod(shape)
        words = self.generator.integers(0, 2**64, -(-count // 8), dtype=np.uint64)
        return torch.from_numpy(words.view(np.uint8)[:count]).view(shape)


def drop(values: Tensor, rate: float, rng: DropoutRng | None) -> Tensor:
    """Dropout in training, the identity otherwise."""
    return values if rng is None else rng.drop(values, rate)


def drop_steps(values: Tensor, rate: float, rng: DropoutRng | None, steps: int = 1) -> Tensor:
    """Dropout with one mask for all steps, which are the dimension `steps` (Gal and Ghahramani 2016)."""
    if rng is None or not rate:
        return values
    shape = tuple(1 if number == steps else size for number, size in enumerate(values.shape))
    return values * rng.mask(shape, rate, values.dtype).to(values.device)


def add_with_dropout(values: Tensor, more: Tensor, rate: float, rng: DropoutRng | None) -> Tensor:
    """values + dropout(more) in training, the plain sum otherwise."""
    return values + more if rng is None else rng.add(values, more, rate)


class _AddMasked(torch.autograd.Function):
    """values + more * mask in one pass, and one pass backwards."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, more: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(values, more, mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient, gradient * mask, None
