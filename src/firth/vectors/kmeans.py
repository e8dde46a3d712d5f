"""k-means (Lloyd 1982) over many rows: products of matrices, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
_ROUNDS = 15
_BLOCK = 8192  # rows assigned at once


def find_centroids(rows: Floats, count: int, rng: np.random.Generator, rounds: int = _ROUNDS) -> Floats:
    """(count, width): centroids of rows; those that no row is nearest to stay where they are."""
    chosen = rng.integers(0, len(rows), count) if len(rows) < count else rng.permutation(len(rows))[:count]
    centroids = np.array(rows[chosen], dtype=np.float32)
    for _ in range(rounds):
        owner = nearest_centroids(rows, centroids)
        sums, counts = _sums(rows, owner, count)
        has_rows = counts > 0
        centroids[has_rows] = sums[has_rows] / counts[has_rows, None]
    return centroids


def nearest_centroids(rows: Floats, centroids: Floats) -> npt.NDArray[np.int64]:
    """The index of the nearest centroid of each row.

    >>> nearest_centroids(np.array([[0.0], [2.0]]), np.array([[3.0], [0.5]])).tolist()
    [1, 0]
    """
    found = np.empty(len(rows), dtype=np.int64)
    squares = np.einsum("ij,ij->i", centroids, centroids) / 2
    for begin in range(0, len(rows), _BLOCK):
        part = rows[begin : begin + _BLOCK]
        found[begin : begin + _BLOCK] = (part @ centroids.T - squares).argmax(axis=1)
    return found


def _sums(rows: Floats, owner: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.float64], Any]:
    """The sum of the rows of each owner, and their number."""
    counts = np.bincount(owner, minlength=count)
    order, owners = np.argsort(owner, kind="stable"), np.flatnonzero(counts)
    sums = np.zeros((count, rows.shape[1]))
    if owners.size:
        starts = np.cumsum(counts[owners]) - counts[owners]
        sums[owners] = np.add.reduceat(rows[order].astype(np.float64), starts, axis=0)
    return sums, counts
