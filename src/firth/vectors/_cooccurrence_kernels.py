"""Numba kernels of counting which words stand near which.

A row of the table is added up in `sums`, one place for each column, and which columns are in use is noted in `found`.
So writing and clearing a row costs no more than what is in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.cpython.unsafe import numbers

from firth.prefetch import prefetch

BREAK = 0  # stands between sentences; no word has this id
_AHEAD = 8  # occurrences whose surroundings are asked for before they are needed

trailing_zeros: Any = numbers.trailing_zeros


@njit(cache=True, nogil=True)
def drop_specials(ids: Any, bounds: Any, first_word: Any, out: Any) -> Any:
    """Writes the words of each sentence to `out`, a break around each, and returns the length."""
    out[0] = BREAK
    length = 1
    for sentence in range(bounds.size - 1):
        for place in range(bounds[sentence], bounds[sentence + 1]):
            if ids[place] >= first_word:
                out[length] = ids[place]
                length += 1
        if out[length - 1] != BREAK:
            out[length] = BREAK
            length += 1
    return length


@njit(cache=True, nogil=True)
def find_places(words: Any, ends: Any, places: Any) -> None:
    """Fills `places` with where each word occurs, one word after the other.

    `ends[w]` must be where the places of w begin; when done it is where they end.
    """
    for place in range(words.size):
        word = words[place]
        if word != BREAK:
            places[ends[word]] = place
            ends[word] += 1


@njit(cache=True, nogil=True, inline="always")
def _add(column: Any, amount: Any, sums: Any, found: Any, length: Any) -> Any:
    """Adds to a column; one that was empty is noted in `found`, whose new length is returned.

    There is no branch: the processor would guess wrong too often.
    """
    before = sums[column]
    found[length] = column
    sums[column] = before + amount
    return length + (before == 0.0)


@njit(cache=True, nogil=True)
def _take(sums: Any, found: Any, used: Any, groups: Any, columns: Any, weights: Any, length: Any) -> Any:
    """Appends the sums of the columns that were found to `columns` and `weights`, clears them, returns the new length.

    Bit c of `used` is for column c, and bit b of `groups` for all of `used[b]`: so the columns come out in order.
    """
    one = np.uint64(1)
    for column in found:
        used[column >> 6] |= one << np.uint64(column & 63)
        groups[column >> 12] |= one << np.uint64((column >> 6) & 63)
    for group in range(groups.size):
        blocks = groups[group]
        groups[group] = 0
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
    words: Any, places: Any, starts: Any, first: Any, last: Any, near: Any, sums: Any, found: Any, used: Any,
    groups: Any, columns: Any, weights: Any, ends: Any,
) -> Any:  # fmt: skip
    """Writes the rows of the words from `first` to `last`; `near[d]` is what a word d + 1 places away counts.

    `ends[i]` becomes the end of row `first + i`. Returns the number of cells.
    """
    length = 0
    for row in range(first, last):
        kinds = 0
        for k in range(starts[row], starts[row + 1]):
            ahead = np.int64(places[min(k + _AHEAD, places.size - 1)])
            prefetch(words, ahead - near.size)
            prefetch(words, ahead + near.size)
            place = np.int64(places[k])
            for distance in range(near.size):
                column = np.int64(words[place - 1 - distance])
                if column == BREAK:
                    break
                kinds = _add(column, near[distance], sums, found, kinds)
            for distance in range(near.size):
                column = np.int64(words[place + 1 + distance])
                if column == BREAK:
                    break
                kinds = _add(column, near[distance], sums, found, kinds)
        length = _take(sums, found[:kinds], used, groups, columns, weights, length)
        ends[row - first] = length
    return length


@njit(cache=True, nogil=True)
def merge_rows(
    starts: Any, columns_in: Any, weights_in: Any, first: Any, last: Any, sums: Any, found: Any, used: Any,
    groups: Any, columns: Any, weights: Any, ends: Any,
) -> Any:  # fmt: skip
    """Adds up the rows from `first` to `last` of several tables; row r of table t begins at `starts[t, r]`."""
    length = 0
    for row in range(first, last):
        kinds = 0
        for table in range(starts.shape[0]):
            for cell in range(starts[table, row], starts[table, row + 1]):
                kinds = _add(np.int64(columns_in[cell]), np.float64(weights_in[cell]), sums, found, kinds)
        length = _take(sums, found[:kinds], used, groups, columns, weights, length)
        ends[row - first] = length
    return length
