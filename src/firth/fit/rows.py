"""Rows: a text laid out for a network, any row of which can be made without the others."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from firth.fit._row_kernels import END_ID, fill_sequences, fill_stream, measure
from firth.fit.packing import bounds_of, pack
from firth.nets.batch import Batch
from firth.objectives.sequences import Integers, Sequences
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, PAD

assert EOS == END_ID


class Rows(Protocol):
    """The rows of one pass over a text."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def fill(self) -> float:
        """The share of places that are not padding."""

    def batch(self, rows: Integers) -> Batch:
        """Some of the rows."""


class StreamRows:
    """Documents as `EOS s1 EOS s2 EOS`, one after another in a circle, cut into rows of a length wherever that falls.

    With an overlap of one, the last token of a row is also the first of the next: so each is predicted once. What is
    kept in memory does not grow with the text: places are found by bisection in the bounds on the disk.
    """

    def __init__(self, store: TokenStore, length: int, overlap: int, key: int) -> None:
        self.store, self.overlap = store, overlap
        self._sentences, self._documents = bounds_of(store)
        self._size = len(store) + store.facts.sentences + store.facts.documents
        self._whole = self._size <= length
        self._stride = self._size if self._whole else length - overlap
        self._offset = 0 if self._whole else key % self._size

    @property
    def count(self) -> int:
        return -(-self._size // self._stride)

    @property
    def fill(self) -> float:
        return self._size / (self.count * self._stride)

    def batch(self, rows: Integers) -> Batch:
        reach = 0 if self._whole else self.overlap
        counts = np.minimum(self._stride, self._size - rows * self._stride) + reach
        planes = _Planes(rows.size, int(counts.max()))
        begins = (self._offset + rows * self._stride) % self._size
        text = fill_stream(
            self.store.ids,
            self.store.starts,
            self._sentences,
            self._documents,
            begins,
            counts,
            reach > 0,
            planes.ids,
            planes.words,
            planes.parts,
            planes.positions,
        )
        return planes.batch(rows, text)


class PackedRows:
    """Sequences `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, several to a row where they are short."""

    def __init__(
        self, store: TokenStore, sequences: Sequences, length: int, opening: int, over: bool, segments: bool
    ) -> None:
        """`opening` is the token before a sequence; with `over` they reach over documents, which `EOS` then parts."""
        self.store, self.sequences = store, sequences
        self._opening, self._over, self._segments, self._length = opening, over, segments, length
        self._sentences, self._documents = bounds_of(store)
        lengths = measure(sequences.begins, sequences.ends, over, self._sentences, self._documents)
        self._packed = pack(lengths, length)

    @property
    def count(self) -> int:
        return self._packed.used.size

    @property
    def fill(self) -> float:
        return float(self._packed.used.mean()) / self._length

    def batch(self, rows: Integers) -> Batch:
        bounds, members, used = self._packed
        planes = _Planes(rows.size, int(used[rows].max()))
        text = fill_sequences(
            self.store.ids,
            self.store.starts,
            self._sentences,
            self._documents,
            self.sequences.begins,
            self.sequences.ends,
            self._over,
            self._opening,
            bounds,
            members,
            rows,
            planes.ids,
            planes.words,
            planes.parts,
            planes.positions,
            planes.segments,
        )
        batch = planes.batch(rows, text)
        if self._segments:
            batch.segments = torch.from_numpy(planes.segments)
        here = np.concatenate([members[bounds[row] : bounds[row + 1]] for row in rows])
        for name, labels in self.sequences.labels.items():
            batch.marks[name] = torch.from_numpy(labels[here])
        return batch


class _Planes:
    """The arrays of a batch while they are filled."""

    def __init__(self, rows: int, places: int) -> None:
        shape = (rows, places)
        self.ids = np.full(shape, PAD, dtype=np.int64)
        self.words: npt.NDArray[np.bool_] = np.ones(shape, dtype=bool)
        self.parts: npt.NDArray[Any] = np.full(shape, -1, dtype=np.int64)
        self.positions, self.segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)

    def batch(self, keys: Integers, tokens: int) -> Batch:
        """The batch; where every row is one whole part nothing is said of parts and positions."""
        batch = Batch(torch.from_numpy(self.ids), torch.from_numpy(self.words), tokens=int(tokens))
        batch.keys = torch.from_numpy(np.ascontiguousarray(keys))
        if self.parts.any():
            batch.parts, batch.positions = torch.from_numpy(self.parts), torch.from_numpy(self.positions)
        return batch
