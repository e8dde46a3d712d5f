"""Numba kernels of singular vectors: what is in a sparse matrix, and its product with a dense one."""

from __future__ import annotations

import math
from typing import Any

from numba import njit


@njit(cache=True, nogil=True)
def add_rows(starts: Any, weights: Any, sums: Any) -> None:
    """The sum of each row."""
    for row in range(sums.size):
        for cell in range(starts[row], starts[row + 1]):
            sums[row] += weights[cell]


@njit(cache=True, nogil=True)
def keep_positive(
    starts: Any, columns: Any, weights: Any, of_row: Any, of_column: Any, new_starts: Any, new_columns: Any, values: Any
) -> Any:
    """Writes the cells where log(weight) - of_row - of_column is above 0, and returns how many there are."""
    length = 0
    for row in range(starts.size - 1):
        new_starts[row] = length
        for cell in range(starts[row], starts[row + 1]):
            value = math.log(weights[cell]) - of_row[row] - of_column[columns[cell]]
            if value > 0.0:
                new_columns[length] = columns[cell]
                values[length] = value
                length += 1
    new_starts[starts.size - 1] = length
    return length


@njit(cache=True, nogil=True)
def multiply_rows(starts: Any, columns: Any, values: Any, dense: Any, first: Any, last: Any, out: Any) -> None:
    """Rows `first` to `last` of a sparse matrix times a dense one, into the same rows of `out`."""
    for row in range(first, last):
        sums = out[row]
        sums[:] = 0.0
        for cell in range(starts[row], starts[row + 1]):
            value = values[cell]
            other = dense[columns[cell]]
            for k in range(sums.size):
                sums[k] += value * other[k]
