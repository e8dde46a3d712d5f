"""Numba kernels of co-occurrence matrices: counting, PPMI and products.

A row is summed in `sums`, one entry for each column, and the columns in use are listed in `columns_used`, so that
writing and clearing a row costs no more than its cells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numba.cpython.unsafe import numbers

from firth.prefetch import prefetch

BREAK = 0  # sentence separator; no word has this id
_AHEAD = 8  # occurrences whose windows are prefetched

trailing_zeros: Any = numbers.trailing_zeros


@njit(cache=True, nogil=True)
def drop_specials(ids: Any, bounds: Any, first_word: Any, out: Any) -> Any:
    """Writes the words of each sentence to `out`, with a break around each; returns the length."""
    out[0] = BREAK
    length = 1
    for sentence in range(bounds.size - 1):
        for position in range(bounds[sentence], bounds[sentence + 1]):
            if ids[position] >= first_word:
                out[length] = ids[position]
                length += 1
        if out[length - 1] != BREAK:
            out[length] = BREAK
            length += 1
    return length


@njit(cache=True, nogil=True)
def find_positions(words: Any, ends: Any, positions: Any) -> None:
    """Fills `positions` with the occurrences of each word, grouped by word.

    `ends[w]` is the start of the positions of w; afterwards their end.
    """
    for position in range(words.size):
        word = words[position]
        if word != BREAK:
            positions[ends[word]] = position
            ends[word] += 1


@njit(cache=True, nogil=True, inline="always")
def _add(column: Any, amount: Any, sums: Any, columns_used: Any, length: Any) -> Any:
    """Adds to a column; a new one is appended to `columns_used`, whose new length is returned.

    Branch-free, because the branch would be mispredicted often.
    """
    before = sums[column]
    columns_used[length] = column
    sums[column] = before + amount
    return length + (before == 0.0)


@njit(cache=True, nogil=True)
def _flush_row(
    sums: Any, columns_used: Any, used: Any, block_bits: Any, columns: Any, weights: Any, length: Any
) -> Any:
    """Appends the sums of the used columns in ascending order, clears them, and returns the new length.

    Bit c of `used` stands for column c, and bit b of `block_bits` for all of `used[b]`.
    """
    one = np.uint64(1)
    for column in columns_used:
        used[column >> 6] |= one << np.uint64(column & 63)
        block_bits[column >> 12] |= one << np.uint64((column >> 6) & 63)
    for group in range(block_bits.size):
        blocks = block_bits[group]
        block_bits[group] = 0
        while blocks != 0:
            block = 64 * group + np.int64(trailing_zeros(blocks))
            blocks &= blocks - one
            bits = used[block]
            used[block] = 0
            while bits != 0:
                column = 64 * block + np.int64(trailing_zeros(bits))
                bits &= bits - one
                columns[length] = column
                weights[length] = sums[column]
                sums[column] = 0.0
                length += 1
    return length


@njit(cache=True, nogil=True)
def count_rows(
    words: Any, positions: Any, starts: Any, first: Any, last: Any, distance_weights: Any, sums: Any,
    columns_used: Any, used: Any, block_bits: Any, columns: Any, weights: Any, ends: Any,
) -> Any:  # fmt: skip
    """Writes the rows of the words from `first` to `last`; `distance_weights[d]` is the weight at distance d + 1.

    `ends[i]` becomes the end of row `first + i`. Returns the number of cells.
    """
    length = 0
    for row in range(first, last):
        count = 0
        for k in range(starts[row], starts[row + 1]):
            ahead = np.int64(positions[min(k + _AHEAD, positions.size - 1)])
            prefetch(words, ahead - distance_weights.size)
            prefetch(words, ahead + distance_weights.size)
            position = np.int64(positions[k])
            for distance in range(distance_weights.size):
                column = np.int64(words[position - 1 - distance])
                if column == BREAK:
                    break
                count = _add(column, distance_weights[distance], sums, columns_used, count)
            for distance in range(distance_weights.size):
                column = np.int64(words[position + 1 + distance])
                if column == BREAK:
                    break
                count = _add(column, distance_weights[distance], sums, columns_used, count)
        length = _flush_row(sums, columns_used[:count], used, block_bits, columns, weights, length)
        ends[row - first] = length
    return length


@njit(cache=True, nogil=True)
def merge_rows(
    starts: Any, columns_in: Any, weights_in: Any, first: Any, last: Any, sums: Any, columns_used: Any, used: Any,
    block_bits: Any, columns: Any, weights: Any, ends: Any,
) -> Any:  # fmt: skip
    """Adds up the rows from `first` to `last` of several matrices; row r of matrix t begins at `starts[t, r]`."""
    length = 0
    for row in range(first, last):
        count = 0
        for table in range(starts.shape[0]):
            for cell in range(starts[table, row], starts[table, row + 1]):
                count = _add(np.int64(columns_in[cell]), np.float64(weights_in[cell]), sums, columns_used, count)
        length = _flush_row(sums, columns_used[:count], used, block_bits, columns, weights, length)
        ends[row - first] = length
    return length


@njit(cache=True, nogil=True)
def row_sums(starts: Any, weights: Any, sums: Any) -> None:
    for row in range(sums.size):
        for cell in range(starts[row], starts[row + 1]):
            sums[row] += weights[cell]


@njit(cache=True, nogil=True)
def positive_cells(
    starts: Any, columns: Any, weights: Any, of_row: Any, of_column: Any, new_starts: Any, new_columns: Any, values: Any
) -> Any:
    """Writes the cells where log(weight) - of_row - of_column is positive; returns their number."""
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
    """Rows `first` to `last` of a sparse times a dense matrix, into the same rows of `out`."""
    for row in range(first, last):
        sums = out[row]
        sums[:] = 0.0
        for cell in range(starts[row], starts[row + 1]):
            value = values[cell]
            other = dense[columns[cell]]
            for k in range(sums.size):
                sums[k] += value * other[k]
