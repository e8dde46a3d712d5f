"""The steps around products of integers, each in one pass over a block of rows."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = Any
_ORDERLESS = {"nnan", "nsz", "reassoc"}  # a maximum does not depend on the order


@numba.njit(nogil=True, cache=True, fastmath=_ORDERLESS, error_model="numpy")
def quantise(x: Array, rows: Array, scales: Array, levels: Array, tiny: Array) -> None:
    """Write x / scale, rounded to integers, with the scale of each row, its largest magnitude / levels."""
    for row in range(x.shape[0]):
        largest = tiny
        for column in range(x.shape[1]):
            size = abs(x[row, column])
            largest = size if size > largest else largest
        scales[row] = largest / levels
        factor = levels / largest
        for column in range(x.shape[1]):
            rows[row, column] = np.int8(np.int32(np.rint(x[row, column] * factor)))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def dequantise(sums: Array, scales: Array, row_scales: Array, bias: Array, out: Array) -> None:
    """Write sums * scale of the column * scale of the row + bias."""
    for row in range(sums.shape[0]):
        scale = row_scales[row]
        for column in range(sums.shape[1]):
            out[row, column] = np.float32(sums[row, column]) * scales[column] * scale + bias[column]
