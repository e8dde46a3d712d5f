"""Numba kernels that pack sequences into rows."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_OPEN = 256  # rows that a pair is compared with


@njit(cache=True, nogil=True)
def _fullest(filled: Any, length: Any) -> Any:
    """The lowest number from `length` on whose bit is set in `filled`, or -1."""
    word = length >> 6
    bits = filled[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(length & 63))
    while bits == 0:
        word += 1
        if word == filled.size:
            return -1
        bits = filled[word]
    bit = 0
    while not bits >> np.uint64(bit) & np.uint64(1):
        bit += 1
    return 64 * word + bit


@njit(cache=True, nogil=True)
def best_fit(lengths: Any, order: Any, capacity: Any) -> Any:
    """The row of each sequence, and the used length of each row: in order, each goes to the fullest row that fits it.

    Rows with the same free length are a stack: the newest is used first, which is near in the text.
    """
    rows, count = np.empty(lengths.size, dtype=np.int64), 0
    below_top, left = np.empty(lengths.size, dtype=np.int64), np.empty(lengths.size, dtype=np.int64)
    tops = np.full(capacity + 1, -1, dtype=np.int64)
    filled = np.zeros(capacity // 64 + 1, dtype=np.uint64)
    for index in order:
        free = _fullest(filled, lengths[index])
        if free < 0:
            row = count
            count += 1
            free = capacity
        else:
            row = tops[free]
            tops[free] = below_top[row]
            if tops[free] < 0:
                filled[free >> 6] ^= np.uint64(1) << np.uint64(free & 63)
        rows[index] = row
        free -= lengths[index]
        left[row] = free
        below_top[row] = tops[free]
        tops[free] = row
        filled[free >> 6] |= np.uint64(1) << np.uint64(free & 63)
    return rows, capacity - left[:count]


@njit(cache=True, nogil=True)
def best_fit_pairs(lengths: Any, order: Any, capacity: Any) -> Any:
    """The row of each pair, and the used length of each row on both sides; `lengths` is (pairs, 2).

    In order, each pair goes to the fullest of the open rows that have space for both sides. If there are many open
    rows, the fullest one is closed for a new one.
    """
    rows, used = np.empty(len(lengths), dtype=np.int64), np.zeros((len(lengths), 2), dtype=np.int64)
    opened, count, total = np.empty(_OPEN, dtype=np.int64), 0, 0
    for index in order:
        best, full, least, fullest = -1, -1, 2 * capacity + 1, 2 * capacity + 1
        for slot in range(count):
            first = capacity - used[opened[slot], 0] - lengths[index, 0]
            second = capacity - used[opened[slot], 1] - lengths[index, 1]
            if first >= 0 and second >= 0 and first + second < least:
                best, least = slot, first + second
            if first + second < fullest:
                full, fullest = slot, first + second
        if best < 0:
            best = full if count == _OPEN else count
            count = min(count + 1, _OPEN)
            opened[best] = total
            total += 1
        row = opened[best]
        rows[index] = row
        used[row, 0] += lengths[index, 0]
        used[row, 1] += lengths[index, 1]
    return rows, used[:total]
