"""ApproximateIndex: nearest-neighbour search with a recall of about 0.96 in a fraction of the time.

Rows are partitioned into cells by k-means (an inverted file). The residual of a row to its centroid is quantised to the
signs of its projections on 256 directions, from which the cosine with a query is estimated (RaBitQ, Gao and Long 2024).
A search estimates the rows of the nearest cells and compares only the best ones exactly. The numbers of cells and
candidates are tuned on rows of the matrix itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError
from firth.progress import progress
from firth.vectors import _neighbour_kernels as kernels
from firth.vectors.neighbours import ExactIndex, Floats, Rows, empty_heaps, one_blas_thread, ordered, unit

_BITS = 256
_KMEANS_ROUNDS = 8
_SAMPLE = 64  # rows for each cell in the k-means sample
_BLOCK = 4096  # rows assigned at once
_RECALL_QUERIES = 300  # rows that tune the search effort
_RECALL_AT = 10
_TARGET_RECALL = 0.96  # more than is promised, because it is measured on a sample


@dataclass(eq=False)
class ApproximateIndex:
    """Rows partitioned into cells, their codes, and the tuned search effort."""

    exact: ExactIndex
    centroids: Floats
    directions: Floats  # (dimension, 256)
    starts: Rows  # bounds of the cells in `rows`
    rows: npt.NDArray[np.int32]  # all rows, grouped by cell
    codes: npt.NDArray[np.uint64]  # (4, rows): sign bits in the same order
    weights: Floats  # scale of the signed sum of a query's projections
    offsets: Floats  # added to it: an estimate of the residual's contribution to the cosine
    cells: int = 1  # cells searched
    candidates: int = 128  # minimum number of rows compared exactly
    recall: float = 0.0  # recall at 10 measured on the tuning rows

    @cached_property
    def _half_squares(self) -> Floats:
        return _half_squares(self.centroids)

    def nearest(self, query: npt.ArrayLike, count: int, exclude: Sequence[int] = ()) -> list[tuple[int, float]]:
        """Approximately the nearest rows to a vector, and their exact cosines, nearest first."""
        target, exact = unit(query), self.exact
        bases = self.centroids @ target
        distances = self._half_squares - bases
        cells = np.argpartition(distances, self.cells - 1)[: self.cells]
        cells = cells[np.argsort(distances[cells])]
        planes, scale, shift = _query_planes(target @ self.directions)
        best, found = empty_heaps(1, min(count + len(exclude), len(self.rows)))
        wanted = max(self.candidates, 4 * best.size)
        kernels.search(
            self.codes, self.weights, self.offsets, planes, scale, shift, bases, self.rows, self.starts, cells,
            wanted, exact.vectors, exact.inverse, target, best[0], found[0],
        )  # fmt: skip
        best, found = ordered(best, found)
        pairs = zip(found[0].tolist(), best[0].tolist(), strict=True)
        return [(row, score) for row, score in pairs if score > -np.inf and row not in exclude][:count]


def build_index(exact: ExactIndex, seed: int = 0) -> ApproximateIndex:
    """An index of all rows from `exact.first` on; deterministic for the same rows and seed."""
    total = len(exact.vectors) - exact.first
    if total < 1:
        raise AbilityError("there are no words to index: train on more text.")
    rng = np.random.default_rng(seed)
    total_rows = _KMEANS_ROUNDS * _SAMPLE * round(total**0.5) + total
    with progress("building the index", total_rows, "rows") as advance, one_blas_thread():
        centroids = _find_centroids(exact, rng, advance)
        directions = _make_directions(rng, exact.vectors.shape[1])
        cell_of = np.empty(total, dtype=np.int32)
        codes = np.empty((_BITS // 64, total), dtype=np.uint64)
        weights, offsets = np.empty((2, total), dtype=np.float32)
        centroid_projections = centroids @ directions

        def encode(low: int, high: int) -> None:
            unit_rows = exact.unit_rows(np.arange(exact.first + low, exact.first + high))
            _assign(unit_rows, centroids, cell_of[low:high])
            owner = cell_of[low:high]
            residuals = unit_rows - centroids[owner]
            projections = residuals @ directions
            codes[:, low:high] = _pack(projections > 0).T
            weights[low:high] = np.square(residuals).sum(axis=1) / np.maximum(np.abs(projections).sum(axis=1), 1e-30)
            centre = np.where(projections > 0, centroid_projections[owner], -centroid_projections[owner]).sum(axis=1)
            offsets[low:high] = (residuals * centroids[owner]).sum(axis=1) - weights[low:high] * centre
            advance(high - low)

        exact.parallel(encode, total, _BLOCK)
    order = np.argsort(cell_of, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(cell_of, minlength=len(centroids)))])
    rows = (exact.first + order).astype(np.int32)
    codes = np.ascontiguousarray(codes[:, order])
    index = ApproximateIndex(exact, centroids, directions, starts, rows, codes, weights[order], offsets[order])
    _tune(index, rng)
    return index


def _find_centroids(exact: ExactIndex, rng: np.random.Generator, advance: Callable[[float], None]) -> Floats:
    """sqrt(rows) centroids by k-means over a sample."""
    total = len(exact.vectors) - exact.first
    count = round(total**0.5)
    unit_rows = exact.unit_rows(exact.first + rng.permutation(total)[: count * _SAMPLE])
    centroids = unit_rows[:count].copy()
    cell_of = np.empty(len(unit_rows), dtype=np.int32)
    for _ in range(_KMEANS_ROUNDS):
        exact.parallel(
            lambda low, high: _assign(unit_rows[low:high], centroids, cell_of[low:high]), len(unit_rows), _BLOCK
        )
        order = np.argsort(cell_of, kind="stable")
        owner, begins = np.unique(cell_of[order], return_index=True)  # an empty centroid stays where it is
        sums = np.add.reduceat(unit_rows[order], begins, axis=0)
        centroids[owner] = sums / np.diff([*begins, len(order)])[:, None]
        advance(len(unit_rows))
    return centroids


def _assign(unit_rows: Floats, centroids: Floats, cell_of: npt.NDArray[np.int32]) -> None:
    scores = unit_rows @ centroids.T
    scores -= _half_squares(centroids)
    cell_of[:] = scores.argmax(axis=1)


def _half_squares(centroids: Floats) -> Floats:
    """Subtracted from inner products so that the highest belongs to the nearest centroid."""
    return np.asarray(np.einsum("ij,ij->i", centroids, centroids) / 2, dtype=np.float32)


def _make_directions(rng: np.random.Generator, dimension: int) -> Floats:
    """(dimension, 256): random directions, orthogonal in blocks of `dimension`."""
    blocks = [np.linalg.qr(rng.standard_normal((dimension, dimension)))[0] for _ in range(-(-_BITS // dimension))]
    return np.ascontiguousarray(np.hstack(blocks)[:, :_BITS], dtype=np.float32)


def _pack(bits: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Bits packed to 64-bit words along the last axis."""
    return np.packbits(bits, axis=-1).view(np.uint64)


def _query_planes(values: Floats) -> tuple[npt.NDArray[np.uint64], np.float32, np.float32]:
    """The coordinates of a query quantised to 4 bits, as bit planes; the sum over signs is scale * bits - shift."""
    step = max(float(np.abs(values).max()) / 15, 1e-30)
    levels = np.clip(np.rint((values / step + 15) / 2), 0, 15).astype(np.uint8)
    planes = levels.reshape(-1, 1, 64) >> np.arange(4, dtype=np.uint8)[None, :, None] & 1
    total = (2 * levels.astype(np.int64) - 15).sum()
    return _pack(planes)[..., 0], np.float32(2 * step), np.float32(step * total)


def _tune(index: ApproximateIndex, rng: np.random.Generator) -> None:
    """Sets the smallest numbers of candidates and cells that reach the target recall."""
    exact, total = index.exact, len(index.rows)
    queries = exact.first + np.sort(rng.permutation(total)[:_RECALL_QUERIES])
    true = exact.nearest_to_rows(queries, min(_RECALL_AT, total - 1))

    def recall() -> float:
        found = [index.nearest(exact.vectors[row], true.shape[1], [int(row)]) for row in queries]
        hits = sum(len({row for row, _ in one} & set(best)) for one, best in zip(found, true.tolist(), strict=True))
        return hits / true.size if true.size else 1.0

    index.cells = len(index.centroids)
    while recall() < (1 + _TARGET_RECALL) / 2 and index.candidates < total:
        index.candidates *= 2
    low, high = 0, index.cells  # too few, and enough
    while high - low > max(1, low // 16):
        index.cells = (low + high) // 2 if low else max(1, high // 8)
        low, high = (low, index.cells) if recall() >= _TARGET_RECALL else (index.cells, high)
    index.cells = high
    index.recall = recall()
