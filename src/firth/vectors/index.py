"""Index: nearly all of the nearest rows in a fraction of the time.

Rows are sorted into cells around centres (k-means). What is left of a row when its centre is taken off is known by the
signs of its coordinates along 256 directions, from which its cosine with a query can be told roughly (as in RaBitQ,
Gao and Long 2024). A search does that for the cells nearest to the query, and compares only the rows that seem nearest
in full. How many cells and rows that takes is tried on rows of the matrix itself when the index is made.
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
from firth.vectors import _index_kernels as kernels
from firth.vectors.neighbours import Floats, Neighbours, Rows, empty_heaps, one_blas_thread, ordered, unit

_BITS = 256
_ROUNDS = 8  # of k-means
_SAMPLE = 64  # rows for each cell that k-means looks at
_BLOCK = 4096  # rows that are compared with all centres at once
_TRIED = 300  # rows whose neighbours are looked for to choose how far to search
_COUNT = 10  # neighbours of each
_ASKED = 0.96  # of them to be found: more than is promised, because those are only a sample


@dataclass(eq=False)
class Index:
    """Rows sorted into cells, with codes, and how far a search goes."""

    near: Neighbours
    centres: Floats
    directions: Floats
    """A column each."""
    starts: Rows
    """Where each cell begins, and the end."""
    rows: npt.NDArray[np.int32]
    """All rows, cell by cell."""
    codes: npt.NDArray[np.uint64]
    """The signs of the rows in that order, 64 a line."""
    weights: Floats
    """What the sum of a query's coordinates over the signs that are + is multiplied with, ..."""
    offsets: Floats
    """... and what is then added: together about the cosine with the query, without the centre's part."""
    cells: int = 1
    """How many are searched."""
    candidates: int = 128
    """Rows that are compared in full, at least."""
    recall: float = 0.0
    """Share of the ten nearest that were found for the rows that were tried."""

    @cached_property
    def _half_squares(self) -> Floats:
        return _half_squares(self.centres)

    def nearest(self, query: npt.ArrayLike, count: int, leave_out: Sequence[int] = ()) -> list[tuple[int, float]]:
        """Nearly the rows that are nearest to a vector, and their cosines, nearest first."""
        target, near = unit(query), self.near
        bases = self.centres @ target
        away = self._half_squares - bases
        cells = np.argpartition(away, self.cells - 1)[: self.cells]
        cells = cells[np.argsort(away[cells])]
        planes, scale, shift = _query_planes(target @ self.directions)
        best, found = empty_heaps(1, min(count + len(leave_out), len(self.rows)))
        wanted = max(self.candidates, 4 * best.size)
        kernels.search(
            self.codes, self.weights, self.offsets, planes, scale, shift, bases, self.rows, self.starts, cells,
            wanted, near.vectors, near.inverse, target, best[0], found[0],
        )  # fmt: skip
        best, found = ordered(best, found)
        pairs = zip(found[0].tolist(), best[0].tolist(), strict=True)
        return [(row, score) for row, score in pairs if score > -np.inf and row not in leave_out][:count]


def build_index(near: Neighbours, seed: int = 0) -> Index:
    """An index of all rows from `near.first` on; the same rows and seed give the same index."""
    total = len(near.vectors) - near.first
    if total < 1:
        raise AbilityError("there are no words to make an index of: train on more text.")
    random = np.random.default_rng(seed)
    rows_seen = _ROUNDS * _SAMPLE * round(total**0.5) + total
    with progress("building the index", rows_seen, "rows") as advance, one_blas_thread():
        centres = _find_centres(near, random, advance)
        directions = _make_directions(random, near.vectors.shape[1])
        owners = np.empty(total, dtype=np.int32)
        codes = np.empty((_BITS // 64, total), dtype=np.uint64)
        weights, offsets = np.empty((2, total), dtype=np.float32)
        centres_along = centres @ directions

        def encode(low: int, high: int) -> None:
            units = near.units(np.arange(near.first + low, near.first + high))
            _assign(units, centres, owners[low:high])
            held = owners[low:high]
            rests = units - centres[held]
            along = rests @ directions
            codes[:, low:high] = _pack(along > 0).T
            weights[low:high] = np.square(rests).sum(axis=1) / np.maximum(np.abs(along).sum(axis=1), 1e-30)
            centre = np.where(along > 0, centres_along[held], -centres_along[held]).sum(axis=1)
            offsets[low:high] = (rests * centres[held]).sum(axis=1) - weights[low:high] * centre
            advance(high - low)

        near.in_parts(encode, total, _BLOCK)
    order = np.argsort(owners, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(centres)))])
    rows = (near.first + order).astype(np.int32)
    codes = np.ascontiguousarray(codes[:, order])
    index = Index(near, centres, directions, starts, rows, codes, weights[order], offsets[order])
    _choose_effort(index, random)
    return index


def _find_centres(near: Neighbours, random: np.random.Generator, advance: Callable[[float], None]) -> Floats:
    """The centres of as many cells as each of them has rows, by k-means over a sample."""
    total = len(near.vectors) - near.first
    count = round(total**0.5)
    units = near.units(near.first + random.permutation(total)[: count * _SAMPLE])
    centres = units[:count].copy()
    owners = np.empty(len(units), dtype=np.int32)
    for _ in range(_ROUNDS):
        near.in_parts(lambda low, high: _assign(units[low:high], centres, owners[low:high]), len(units), _BLOCK)
        order = np.argsort(owners, kind="stable")
        held, begins = np.unique(owners[order], return_index=True)  # a centre without rows stays where it is
        sums = np.add.reduceat(units[order], begins, axis=0)
        centres[held] = sums / np.diff([*begins, len(order)])[:, None]
        advance(len(units))
    return centres


def _assign(units: Floats, centres: Floats, owners: npt.NDArray[np.int32]) -> None:
    """Writes the nearest centre of each row."""
    pull = units @ centres.T
    pull -= _half_squares(centres)
    owners[:] = pull.argmax(axis=1)


def _half_squares(centres: Floats) -> Floats:
    """What is taken off inner products so that the highest is that of the nearest centre."""
    return np.asarray(np.einsum("ij,ij->i", centres, centres) / 2, dtype=np.float32)


def _make_directions(random: np.random.Generator, dimension: int) -> Floats:
    """Directions, of which each as many as there are dimensions stand at right angles."""
    blocks = [np.linalg.qr(random.standard_normal((dimension, dimension)))[0] for _ in range(-(-_BITS // dimension))]
    return np.ascontiguousarray(np.hstack(blocks)[:, :_BITS], dtype=np.float32)


def _pack(bits: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Bits as words of 64, along the last axis."""
    return np.packbits(bits, axis=-1).view(np.uint64)


def _query_planes(values: Floats) -> tuple[npt.NDArray[np.uint64], np.float32, np.float32]:
    """The coordinates of a query in 4 bits each, as bit planes of 64; the sum over signs is scale * bits - shift."""
    step = max(float(np.abs(values).max()) / 15, 1e-30)
    levels = np.clip(np.rint((values / step + 15) / 2), 0, 15).astype(np.uint8)
    planes = levels.reshape(-1, 1, 64) >> np.arange(4, dtype=np.uint8)[None, :, None] & 1
    total = (2 * levels.astype(np.int64) - 15).sum()
    return _pack(planes)[..., 0], np.float32(2 * step), np.float32(step * total)


def _choose_effort(index: Index, random: np.random.Generator) -> None:
    """Sets how many rows and cells a search goes through: the fewest that find enough of the neighbours."""
    near, total = index.near, len(index.rows)
    tried = near.first + np.sort(random.permutation(total)[:_TRIED])
    exact = near.nearest_to_rows(tried, min(_COUNT, total - 1))

    def recall() -> float:
        found = [index.nearest(near.vectors[row], exact.shape[1], [int(row)]) for row in tried]
        hits = sum(len({row for row, _ in one} & set(true)) for one, true in zip(found, exact.tolist(), strict=True))
        return hits / exact.size if exact.size else 1.0

    index.cells = len(index.centres)
    while recall() < (1 + _ASKED) / 2 and index.candidates < total:
        index.candidates *= 2
    low, high = 0, index.cells  # too few, and enough
    while high - low > max(1, low // 16):
        index.cells = (low + high) // 2 if low else max(1, high // 8)
        low, high = (low, index.cells) if recall() >= _ASKED else (index.cells, high)
    index.cells = high
    index.recall = recall()
