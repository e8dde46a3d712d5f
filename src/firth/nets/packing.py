"""Packing: several sequences in one row of a batch, so that little of it is padding.

It changes speed only: each sequence attends to itself alone and has position ids of its own. Pre-training, fine-tuning
and prediction pack alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from firth.nets._packing_kernels import best_fit, best_fit_pairs
from firth.nets.batch import Batch
from firth.tokens.tokenizer import PAD

Integers = npt.NDArray[np.int64]
_WINDOW = 1 << 16


class Packed(NamedTuple):
    """The sequences of each row."""

    bounds: Integers
    """Row r holds `members[bounds[r]:bounds[r + 1]]`."""
    members: Integers
    used: Integers
    """The length of each row without padding; (rows, 2) for pairs."""

    def offsets(self, lengths: Integers) -> tuple[Integers, Integers, Integers]:
        """For each sequence its row, its offset there, and its index among the sequences of that row."""
        counts = np.diff(self.bounds)
        before = np.cumsum(lengths[self.members]) - lengths[self.members]
        rows, begins, numbers = (np.empty_like(self.members) for _ in range(3))
        rows[self.members] = np.repeat(np.arange(counts.size), counts)
        begins[self.members] = before - np.repeat(before[self.bounds[:-1]], counts)
        numbers[self.members] = np.arange(self.members.size) - np.repeat(self.bounds[:-1], counts)
        return rows, begins, numbers


def pack_rows(lengths: Integers, capacity: int, order: Integers | None = None, window: int = _WINDOW) -> Packed:
    """Best-fit decreasing packing of sequences into rows of a capacity.

    `lengths` of shape (sequences, 2) are those of pairs: both sides of a row have the capacity. Only a window of some
    thousands, in the given order, is sorted by length at a time, so that sequences near in the text stay near.

    >>> packed = pack_rows(np.array([6, 7, 4, 1, 2]), 10)
    >>> packed.used.tolist(), [packed.members[a:b].tolist() for a, b in zip(packed.bounds, packed.bounds[1:])]
    ([10, 10], [[1, 3, 4], [0, 2]])
    >>> pack_rows(np.array([[6, 1], [4, 2], [3, 9]]), 10).used.tolist()
    [[9, 10], [4, 2]]
    """
    longest = lengths if lengths.ndim == 1 else lengths.max(1)
    if longest.max() > capacity:
        raise ValueError(f"a sequence of {longest.max()} tokens does not fit into rows of {capacity}")
    order = np.arange(len(lengths)) if order is None else order
    windows = [order[begin : begin + window] for begin in range(0, order.size, window)]
    falling = np.concatenate([one[np.argsort(-longest[one], kind="stable")] for one in windows])
    rows, used = (best_fit if lengths.ndim == 1 else best_fit_pairs)(lengths, falling, capacity)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(used)))])
    return Packed(bounds, np.argsort(rows, kind="stable"), used)


class BatchArrays:
    """The arrays of a batch before they are filled, of shape (rows, length)."""

    def __init__(self, rows: int, length: int) -> None:
        shape = (rows, length)
        self.ids = np.full(shape, PAD, dtype=np.int64)
        self.word_starts: npt.NDArray[np.bool_] = np.ones(shape, dtype=bool)
        self.sequence_ids: npt.NDArray[Any] = np.full(shape, -1, dtype=np.int64)
        self.position_ids, self.segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)

    def batch(self, row_seeds: Integers, tokens: int) -> Batch:
        """The batch; sequence and position ids are left out where every row is one sequence."""
        batch = Batch(torch.from_numpy(self.ids), torch.from_numpy(self.word_starts), tokens=int(tokens))
        batch.row_seeds = torch.from_numpy(np.ascontiguousarray(row_seeds))
        if self.sequence_ids.any():
            batch.sequence_ids, batch.position_ids = (
                torch.from_numpy(self.sequence_ids),
                torch.from_numpy(self.position_ids),
            )
        return batch
