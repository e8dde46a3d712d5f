"""Noise: all random numbers of a training step, as a function of the seed and the step alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Noise:
    """What is random in one step; the n-th thing that is asked for is the same in every run.

    >>> one, two = Noise(0, 7), Noise(0, 7)
    >>> torch.equal(one.drop(torch.ones(4, 4), 0.5), two.drop(torch.ones(4, 4), 0.5))
    True
    """

    def __init__(self, seed: int, step: int, part: int = 0) -> None:
        self.rng = np.random.Generator(np.random.SFC64([seed, step, part]))

    def keep(self, shape: torch.Size | tuple[int, ...], rate: float) -> tuple[Tensor, float]:
        """Which places are kept (true), and the factor that keeps the mean. The rate is rounded to 1/256."""
        limit = max(1, round(256 * rate)) if rate else 0
        count = int(np.prod(shape))
        words = self.rng.integers(0, 2**64, -(-count // 8), dtype=np.uint64)
        drawn = torch.from_numpy(words.view(np.uint8)[:count]).view(shape)
        return drawn >= limit, 256 / (256 - limit)

    def drop(self, values: Tensor, rate: float) -> Tensor:
        """Dropout (Srivastava et al. 2014)."""
        if rate == 0:
            return values
        kept, factor = self.keep(values.shape, rate)
        return values * (kept.to(values.dtype) * factor)


def drop(values: Tensor, rate: float, noise: Noise | None) -> Tensor:
    """Dropout while learning; nothing otherwise."""
    return values if noise is None else noise.drop(values, rate)
