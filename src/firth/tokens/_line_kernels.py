"""Numba kernels that find the lines of UTF-8 text, without the white space around them, and what they hold."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.tokens._kernels import BREAK, LINE_END, SPACE, eight_bytes

MAY_HOLD_HAN, HOLDS_PAIR = 1, 2
"""What is noticed about a line: first bytes of Chinese characters; two characters of white space in a row."""

_HIGH_BITS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)


@njit(cache=True, nogil=True)
def _white_at(data: Any, place: Any, end: Any) -> Any:
    """The bytes of the white-space character at `place`, as `str.isspace` has it; 0 if there is none."""
    byte = data[place]
    if byte < 0x80:
        return 1 if byte == SPACE or 0x09 <= byte <= 0x0D or 0x1C <= byte <= 0x1F else 0
    if byte == 0xC2:
        return 2 if place + 1 < end and data[place + 1] in (0x85, 0xA0) else 0
    if not 0xE1 <= byte <= 0xE3 or place + 2 >= end:
        return 0
    code = (byte & 0x0F) << 12 | (data[place + 1] & 0x3F) << 6 | data[place + 2] & 0x3F
    if code == 0x1680 or 0x2000 <= code <= 0x200A or code in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000):
        return 3
    return 0


@njit(cache=True, nogil=True)
def _white_before(data: Any, begin: Any, end: Any) -> Any:
    """The bytes of the white-space character that ends at `end`; 0 if there is none."""
    if data[end - 1] < 0x80:
        return _white_at(data, end - 1, end)
    for size in (2, 3):
        if end - size >= begin and _white_at(data, end - size, end) == size:
            return size
    return 0


@njit(cache=True, nogil=True)
def _strip(data: Any, begin: Any, end: Any) -> Any:
    """The bounds of a text without the white space around it."""
    while begin < end:
        size = _white_at(data, begin, end)
        if size == 0:
            break
        begin += size
    while begin < end:
        size = _white_before(data, begin, end)
        if size == 0:
            break
        end -= size
    return begin, end


@njit(cache=True, nogil=True)
def _line_end(data: Any, begin: Any, pairs: Any) -> Any:
    """Where the line ends, and what it holds; HOLDS_PAIR only if `pairs` are looked for."""
    end, flags, white = begin, 0, False
    while end < data.size:
        if not pairs:
            word = eight_bytes(data, end)
            if (word | (word - _SPACES)) & _HIGH_BITS == 0:  # eight plain ASCII characters
                end += 8
                continue
        byte = data[end]
        if byte == LINE_END:
            break
        if 0xE3 <= byte <= 0xE9 or byte == 0xEF or byte == 0xF0:
            flags |= MAY_HOLD_HAN
        size = _white_at(data, end, data.size) if pairs else 0
        if white and size > 0:
            flags |= HOLDS_PAIR
        white = size > 0
        end += max(size, 1)
    return end, flags


@njit(cache=True, nogil=True)
def find_lines(data: Any, packed: Any, pairs: Any, begins: Any, ends: Any, flags: Any, opens: Any) -> Any:
    """Where each line begins and ends without white space around it, what it holds, and whether it opens a document.

    Blank lines are left out. They part documents, or where these are `packed`, lines that are a lone BREAK do. Returns
    the number of lines, and whether the last document ends with them.
    """
    lines, place, parted = 0, 0, False
    while place < data.size:
        begin = place
        end, flag = _line_end(data, begin, pairs)
        place = end + 1
        if packed and end - begin == 1 and data[begin] == BREAK:
            parted = True
            continue
        begin, end = _strip(data, begin, end)
        if begin == end:
            parted = parted or not packed
            continue
        begins[lines], ends[lines], flags[lines], opens[lines] = begin, end, flag, parted
        parted = False
        lines += 1
    return lines, parted


@njit(cache=True, nogil=True)
def look_at_lines(data: Any, pairs: Any, bounds: Any, flags: Any) -> Any:
    """Where each line begins, and what it holds; every line must have its end."""
    place, line = 0, 0
    while place < data.size:
        end, flags[line] = _line_end(data, place, pairs)
        place = end + 1
        line += 1
        bounds[line] = place


@njit(cache=True, nogil=True)
def gather(data: Any, begins: Any, ends: Any, out: Any, bounds: Any) -> Any:
    """Copies parts of `data` one after the other, each closed by a line end; `bounds` is where they begin."""
    written = 0
    for line in range(begins.size):
        size = ends[line] - begins[line]
        out[written : written + size] = data[begins[line] : ends[line]]
        written += size + 1
        out[written - 1] = LINE_END
        bounds[line + 1] = written
