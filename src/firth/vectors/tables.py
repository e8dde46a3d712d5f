"""Embedding tables in the layout of the kernels: flat, with rows padded to cache lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firth.vectors._tiles import WIDTH

_LINE = 16  # floats in a cache line
_SAMPLE = 500  # rows sampled for the mean square
_CHUNK = 1 << 12  # rows processed at once
_STREAM = 1 << 16  # rows drawn from one random stream
Flat = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """A float32 (rows, dimension) matrix; `flat` holds the rows `stride` apart, followed by spare rows."""

    flat: Flat
    rows: int
    dimension: int
    spare: int = 0
    gradient_scale: float = 1.0
    """Movement of a row towards its optimum for each use, relative to the learning rate: see `merge_weight`."""

    @property
    def stride(self) -> int:
        return row_stride(self.dimension)

    @property
    def width(self) -> int:
        """The dimension padded to a multiple of the SIMD width."""
        return -(-self.dimension // WIDTH) * WIDTH

    @property
    def weights(self) -> Flat:
        """All rows but the spare ones, flat."""
        return self.flat[: self.rows * self.stride]

    def compact(self) -> npt.NDArray[np.float32]:
        """The (rows, dimension) matrix, moved together in place; invalidates the table.

        >>> table_from_matrix(np.arange(6, dtype=np.float32).reshape(2, 3)).compact().tolist()
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        """
        rows = self.matrix()
        packed = self.flat[: self.rows * self.dimension].reshape(self.rows, self.dimension)
        for begin in range(0, self.rows, _CHUNK):
            packed[begin : begin + _CHUNK] = rows[begin : begin + _CHUNK]
        return packed

    def matrix(self) -> npt.NDArray[np.float32]:
        """A (rows, dimension) view."""
        return self.weights.reshape(self.rows, self.stride)[:, : self.dimension]


def row_stride(dimension: int) -> int:
    """The distance between rows of that dimension."""
    return -(-dimension // _LINE) * _LINE


def aligned_zeros(rows: int, stride: int) -> Flat:
    """A flat array of zeros that begins at a cache line."""
    buffer = np.zeros(rows * stride + _LINE, dtype=np.float32)
    skip = (-buffer.ctypes.data // 4) % _LINE
    return buffer[skip : skip + rows * stride]


def zero_table(rows: int, dimension: int, spare: int = 0) -> EmbeddingTable:
    """A table of zeros; spare rows take memory only when they are used."""
    return EmbeddingTable(aligned_zeros(rows + spare, row_stride(dimension)), rows, dimension, spare)


def table_from_matrix(matrix: npt.NDArray[np.float32], spare: int = 0) -> EmbeddingTable:
    """A table with a copy of a matrix."""
    table = zero_table(matrix.shape[0], matrix.shape[1], spare)
    table.matrix()[:] = matrix
    return table


def mean_square(tables: Sequence[EmbeddingTable]) -> float:
    """The mean squared norm of a sample of rows.

    >>> mean_square([table_from_matrix(np.full((3, 4), 2, dtype=np.float32)), zero_table(9, 4)])
    8.0
    """
    parts = [table.matrix()[:: max(1, table.rows // _SAMPLE)] for table in tables]
    return float(np.mean([np.square(part, dtype=np.float64).sum(1).mean() for part in parts]))


def random_table(rows: int, dimension: int, seed: int, first: int = 0, spare: int = 0) -> EmbeddingTable:
    """Rows uniform in [-1, 1] / dimension; those before `first` are zero.

    The range is twice that of word2vec.c: small corpora gain (MEN + 0.01 for a million words).

    >>> random_table(3, 2, seed=1, first=1).matrix().shape
    (3, 2)
    """
    table = zero_table(rows, dimension, spare)
    for begin in range(0, rows, _CHUNK):
        if begin % _STREAM == 0:
            rng = np.random.default_rng([seed, begin])
        part = table.matrix()[begin : begin + _CHUNK]
        part[:] = (2 * rng.random(part.shape, dtype=np.float32) - 1) / np.float32(dimension)
    table.matrix()[:first] = 0
    return table
