"""Noise: all random numbers of a training step, as a function of the seed and the step alone."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

Shape = torch.Size | tuple[int, ...]


class Noise:
    """What is random in one step; the n-th thing that is asked for is the same in every run.

    >>> one, two = Noise(0, 7), Noise(0, 7)
    >>> torch.equal(one.drop(torch.ones(4, 4), 0.5), two.drop(torch.ones(4, 4), 0.5))
    True
    """

    def __init__(self, seed: int, step: int, part: int = 0) -> None:
        self.rng = np.random.Generator(np.random.SFC64([seed, step, part]))

    def keep(self, shape: Shape, rate: float) -> tuple[Tensor, float]:
        """Which places are kept (true), and the factor that keeps the mean. The rate is rounded to 1/256."""
        limit = _limit(rate)
        return self._bytes(shape) >= limit, 256 / (256 - limit)

    def mask(self, shape: Shape, rate: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """What dropout multiplies by: 0, or the factor that keeps the mean. The same choice as `keep` would make."""
        limit = _limit(rate)
        kept = torch.empty(shape, dtype=dtype)
        # Comparing into floats takes one pass; comparing, converting and multiplying would take three.
        torch.ge(self._bytes(shape), limit, out=kept)
        return kept.mul_(256 / (256 - limit))

    def drop(self, values: Tensor, rate: float) -> Tensor:
        """Dropout (Srivastava et al. 2014)."""
        return values if rate == 0 else values * self.mask(values.shape, rate, values.dtype).to(values.device)

    def add(self, values: Tensor, more: Tensor, rate: float) -> Tensor:
        """`values` and what dropout leaves of `more`."""
        if rate == 0:
            return values + more
        mask = self.mask(more.shape, rate, more.dtype).to(more.device)
        return cast(Tensor, _AddMasked.apply(values, more, mask))  # type: ignore[no-untyped-call]

    def _bytes(self, shape: Shape) -> Tensor:
        """Random bytes, eight of each number that the generator gives."""
        count = math.prod(shape)
        words = self.rng.integers(0, 2**64, -(-count // 8), dtype=np.uint64)
        return torch.from_numpy(words.view(np.uint8)[:count]).view(shape)


def drop(values: Tensor, rate: float, noise: Noise | None) -> Tensor:
    """Dropout while learning; nothing otherwise."""
    return values if noise is None else noise.drop(values, rate)


def add_dropped(values: Tensor, more: Tensor, rate: float, noise: Noise | None) -> Tensor:
    """values + dropout(more) while learning, the plain sum otherwise."""
    return values + more if noise is None else noise.add(values, more, rate)


def _limit(rate: float) -> int:
    """How many of the 256 values of a byte mean that it is dropped: never all, and none only if the rate is 0."""
    return min(max(1, round(256 * rate)), 255) if rate else 0


class _AddMasked(torch.autograd.Function):
    """values + more * mask in one pass, and one pass back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, more: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(values, more, mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient, gradient * mask, None
