"""Tables of vectors as kernels want them: flat, each row padded so that it fills lines of cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firth.vectors._tiles import WIDTH

_LINE = 16  # numbers in a line of cache
_SAMPLE = 500  # rows, at least where there are so many
_TOGETHER = 1 << 12  # rows that are worked on at once
_STREAM = 1 << 16  # rows that one stream of random numbers is for
Flat = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of `dimension` numbers; `flat` holds them `stride` apart, with zeros between, and spare rows behind them."""

    flat: Flat
    rows: int
    dimension: int
    spare: int = 0
    pull: float = 1.0
    """How far learning goes for each place where a row is used, as a multiple of the rate: see `share_of_changes`."""

    @property
    def stride(self) -> int:
        """How far apart rows begin."""
        return stride_of(self.dimension)

    @property
    def width(self) -> int:
        """Numbers of a row that are worked on: the dimension, and zeros to a multiple of eight."""
        return -(-self.dimension // WIDTH) * WIDTH

    @property
    def used(self) -> Flat:
        """All rows but the spare ones."""
        return self.flat[: self.rows * self.stride]

    def packed(self) -> npt.NDArray[np.float32]:
        """The rows without anything between them, moved together where they lie: the table is of no use any more.

        >>> from_matrix(np.arange(6, dtype=np.float32).reshape(2, 3)).packed().tolist()
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        """
        rows = self.matrix()
        packed = self.flat[: self.rows * self.dimension].reshape(self.rows, self.dimension)
        for begin in range(0, self.rows, _TOGETHER):  # parts that overlap are copied on the way
            packed[begin : begin + _TOGETHER] = rows[begin : begin + _TOGETHER]
        return packed

    def matrix(self) -> npt.NDArray[np.float32]:
        """The rows without what is between them; a view."""
        return self.used.reshape(self.rows, self.stride)[:, : self.dimension]


def stride_of(dimension: int) -> int:
    """The distance between rows of that dimension."""
    return -(-dimension // _LINE) * _LINE


def empty_flat(rows: int, stride: int) -> Flat:
    """Room for rows, the first at the start of a line of cache."""
    room = np.zeros(rows * stride + _LINE, dtype=np.float32)
    skip = (-room.ctypes.data // 4) % _LINE
    return room[skip : skip + rows * stride]


def zeros(rows: int, dimension: int, spare: int = 0) -> Table:
    """A table of zeros; spare rows take memory only when they are used."""
    return Table(empty_flat(rows + spare, stride_of(dimension)), rows, dimension, spare)


def from_matrix(matrix: npt.NDArray[np.float32], spare: int = 0) -> Table:
    """A table of the rows of a matrix."""
    table = zeros(matrix.shape[0], matrix.shape[1], spare)
    table.matrix()[:] = matrix
    return table


def mean_square(tables: Sequence[Table]) -> float:
    """The mean squared length of rows, about: of some rows here and there.

    >>> mean_square([from_matrix(np.full((3, 4), 2, dtype=np.float32)), zeros(9, 4)])
    8.0
    """
    parts = [table.matrix()[:: max(1, table.rows // _SAMPLE)] for table in tables]
    return float(np.mean([np.square(part, dtype=np.float64).sum(1).mean() for part in parts]))


def random_table(rows: int, dimension: int, seed: int, first: int = 0, spare: int = 0) -> Table:
    """Rows drawn evenly between -1 and 1 over the dimension; those before `first` are zero.

    That is twice as wide as in the program of 2013: small texts learn a little more (MEN + 0.01 for a million words).

    >>> random_table(3, 2, seed=1, first=1).matrix().shape
    (3, 2)
    """
    table = zeros(rows, dimension, spare)
    for begin in range(0, rows, _TOGETHER):
        if begin % _STREAM == 0:
            stream = np.random.default_rng([seed, begin])
        part = table.matrix()[begin : begin + _TOGETHER]
        part[:] = (2 * stream.random(part.shape, dtype=np.float32) - 1) / np.float32(dimension)
    table.matrix()[:first] = 0
    return table
