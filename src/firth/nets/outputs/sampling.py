"""Stratified sampling of tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def stratified(
    probabilities: npt.NDArray[np.float64], samples: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Distinct sampled tokens, sorted, and how often each was drawn; k p times in expectation.

    >>> stratified(np.array([0.5, 0.0, 0.25, 0.25]), 4, np.random.default_rng(0))
    (array([0, 2, 3]), array([2, 1, 1]))
    """
    heights = probabilities.cumsum()
    points = (np.arange(samples) + rng.random(samples)) * (heights[-1] / samples)
    last = int(np.flatnonzero(probabilities)[-1])
    drawn, counts = np.unique(np.minimum(np.searchsorted(heights, points, side="right"), last), return_counts=True)
    return drawn, counts.astype(np.int64)
