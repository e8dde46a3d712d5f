"""Numba kernels that pack pairs of a source and a target into rows, and fill the arrays of a batch with one side."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

END_ID = 3  # a literal, since kernels are compiled; checked in `parallel`
_OPEN = 256  # rows that a pair is compared with


@njit(cache=True, nogil=True)
def pack_pairs(lengths: Any, order: Any, capacity: Any) -> Any:
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


@njit(cache=True, nogil=True)
def fill_side(
    tokens: Any, word_starts: Any, begins: Any, ends: Any, opening: Any, closed: Any, bounds: Any, members: Any,
    rows: Any, ids: Any, starts: Any, sequence_ids: Any, position_ids: Any,
) -> Any:  # fmt: skip
    """Write one side of the pairs of rows, with `opening` before each and, if `closed`, EOS after; its tokens."""
    text = 0
    for index in range(rows.size):
        offset, row = 0, rows[index]
        for member in range(bounds[row], bounds[row + 1]):
            pair, first = members[member], offset
            ids[index, offset] = opening
            offset += 1
            for token in range(begins[pair], ends[pair]):
                ids[index, offset], starts[index, offset] = tokens[token], word_starts[token]
                offset += 1
            if closed:
                ids[index, offset] = END_ID
                offset += 1
            text += ends[pair] - begins[pair]
            for position in range(first, offset):
                sequence_ids[index, position] = member - bounds[row]
                position_ids[index, position] = position - first
    return text
