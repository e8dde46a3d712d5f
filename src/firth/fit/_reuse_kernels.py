"""Numba kernels that fill rows of a contiguous part and two segments (Yang et al. 2019)."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

CLASS_ID, END_ID = 2, 3  # literals, since kernels are compiled; checked in `reuse`


@njit(cache=True, nogil=True)
def choose_cut(text: Any, capacity: Any, drawn: Any) -> Any:
    """The number of tokens of the first segment of a text, without the end of its last sentence.

    It ends with one of the sentences that end within the capacity, all of them equally likely, or is a half of it.
    """
    count = 0
    for position in range(1, capacity):
        count += text[position] == END_ID
    if count == 0:
        return capacity // 2
    left = np.int64(drawn * count)
    for position in range(1, capacity):
        if text[position] == END_ID:
            if left == 0:
                return position
            left -= 1
    return capacity // 2


@njit(cache=True, nogil=True)
def place_segments(
    text: Any, text_starts: Any, other: Any, other_starts: Any, reused: Any, numbers: Any, ids: Any, starts: Any,
    segments: Any, functions: Any,
) -> Any:  # fmt: skip
    """Write rows `reused A <sep> B <sep> <cls>`; the number of tokens of text in the reused parts.

    `text` has the reused part and what follows it, `other` what begins with a sentence elsewhere. `numbers` (rows, 2)
    decide where A ends and, by halves, whether B follows A or is from elsewhere.
    """
    count = 0
    length = ids.shape[1]
    capacity = length - reused - 3
    for row in range(len(ids)):
        for position in range(reused):
            ids[row, position], starts[row, position] = text[row, position], text_starts[row, position]
            count += text[row, position] != END_ID
        first = choose_cut(text[row, reused:], capacity, numbers[row, 0])
        at = reused
        for position in range(reused, reused + first):
            ids[row, at], starts[row, at] = text[row, position], text_starts[row, position]
            at += 1
        ids[row, at], functions[row, at] = END_ID, True
        at += 1
        follows = numbers[row, 1] < 0.5
        begin = reused + first + (text[row, reused + first] == END_ID)
        for position in range(capacity - first):
            if follows:
                ids[row, at], starts[row, at] = text[row, begin + position], text_starts[row, begin + position]
            else:
                ids[row, at], starts[row, at] = other[row, position], other_starts[row, position]
            segments[row, at] = 1
            at += 1
        ids[row, at], functions[row, at], segments[row, at] = END_ID, True, 1
        ids[row, at + 1], functions[row, at + 1], segments[row, at + 1] = CLASS_ID, True, 2
    return count
