"""Numba kernels that read and write the rows of vector files.

Names: at, place = position in bytes; field = what stands between spaces or tabs; row = a word and its numbers.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.artifact.formats._arpa_reading_kernels import get_number

TAB, LINE_END, RETURN, SPACE, PLUS, MINUS, POINT, ZERO, LETTER_E = 9, 10, 13, 32, 43, 45, 46, 48, 101
FINE, NOT_NUMBER, NOT_FINITE, TOO_FEW, TOO_MANY, BAD_BYTE, NO_WORD, LONG_WORD = range(8)
"""What may be wrong with a row."""
LONGEST_NUMBER = 128  # bytes
LONGEST_WORD = 1 << 16
DIGITS = 9  # as many as tell any two float32 numbers apart
NUMBER_ROOM = 20  # bytes that no number exceeds when it is written
_POWERS = np.array([10.0**exponent for exponent in range(64)])
_LEAST_NORMAL = 2.0**-126
_DROPPED = np.int64((1 << 29) - 1)  # the bits of a float64 that a float32 has no room for
_MIDDLE = np.int64(1 << 28)
_DOUBT = 8  # units in the last place by which a float64 may be off


@njit(cache=True, nogil=True)
def _is_hard(value: Any) -> Any:
    """Whether a number that is nearly `value` may round to another float32 than `value` does."""
    size = abs(value)
    if size < _LEAST_NORMAL:
        return size > 0.0
    return abs((np.float64(size).view(np.int64) & _DROPPED) - _MIDDLE) <= _DOUBT


@njit(cache=True, nogil=True)
def _is_blank(byte: Any) -> Any:
    return byte in (SPACE, TAB)


@njit(cache=True, nogil=True)
def _line_end(data: Any, at: Any) -> Any:
    """Where the line ends, and whether it may hold what it holds: no zero bytes, and returns at its end only."""
    fine = True
    while data[at] != LINE_END:
        if data[at] == 0 or (data[at] == RETURN and data[at + 1] != LINE_END):
            fine = False
        at += 1
    return at, fine


@njit(cache=True, nogil=True)
def _field_before(data: Any, left: Any, end: Any) -> Any:
    """Where the field that ends at `end` begins, and where the one before it ends."""
    begin = end
    while begin > left and not _is_blank(data[begin - 1]):
        begin -= 1
    before = begin
    while before > left and _is_blank(data[before - 1]):
        before -= 1
    return begin, before


@njit(cache=True, nogil=True)
def _is_number(data: Any, begin: Any, end: Any) -> Any:
    return end - begin <= LONGEST_NUMBER and not math.isnan(get_number(data, begin, end))


@njit(cache=True, nogil=True)
def read_text(data: Any, dimension: Any, values: Any, words: Any, lines: Any, hard: Any) -> Any:
    """Reads rows from `data`, lines that all have an end; blank ones are passed over.

    Numbers are found from the right, since words may have spaces in them. Fills `values`, where each word begins and
    ends, and the number of each row's line; `hard` gets the numbers that need more care than a float64 allows: their
    place in `values`, where they begin and end. Returns the rows, the hard numbers, what is wrong with the line where
    reading stopped, where the wrong field begins and ends, and the line's number.
    """
    at, row, line, hards = 0, 0, 0, 0
    while at < data.size:
        stop, fine = _line_end(data, at)
        left, end = at, stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        if not fine:
            return row, hards, BAD_BYTE, left, end, line
        while left < end and _is_blank(data[left]):
            left += 1
        while end > left and _is_blank(data[end - 1]):
            end -= 1
        if left < end:
            for column in range(dimension - 1, -1, -1):
                begin, before = _field_before(data, left, end)
                if begin == left:
                    return row, hards, TOO_FEW, left, end, line
                value = get_number(data, begin, end) if end - begin <= LONGEST_NUMBER else np.nan
                if math.isnan(value):
                    return row, hards, NOT_NUMBER, begin, end, line
                values[row, column] = value
                if math.isinf(values[row, column]):
                    return row, hards, NOT_FINITE, begin, end, line
                if _is_hard(value):
                    hard[hards, 0], hard[hards, 1], hard[hards, 2] = row * dimension + column, begin, end
                    hards += 1
                end = before
            begin, before = _field_before(data, left, end)
            if begin > left and _is_number(data, begin, end):
                return row, hards, TOO_MANY, begin, end, line
            words[row, 0], words[row, 1], lines[row] = left, end, line
            row += 1
        at = stop + 1
        line += 1
    return row, hards, FINE, at, at, line


@njit(cache=True, nogil=True)
def read_binary(data: Any, most: Any, values: Any, words: Any) -> Any:
    """Reads at most so many rows, each a word, a space and the bytes of its numbers, as far as `data` holds them whole.

    Returns the rows, where the next one begins, and what is wrong with it.
    """
    at, row, size = 0, 0, values.shape[1]
    while row < most:
        begin = at
        while begin < data.size and data[begin] == LINE_END:  # programs differ in whether they end rows with one
            begin += 1
        end, fine = begin, True
        while end < data.size and data[end] != SPACE and end - begin <= LONGEST_WORD:
            fine = fine and data[end] != 0 and data[end] != LINE_END
            end += 1
        if end - begin > LONGEST_WORD:
            return row, at, LONG_WORD
        if end + 1 + size > data.size:
            break
        if begin == end or not fine:
            return row, at, NO_WORD
        words[row, 0], words[row, 1] = begin, end
        for place in range(size):
            values[row, place] = data[end + 1 + place]
        at = end + 1 + size
        row += 1
    return row, at, FINE


@njit(cache=True, nogil=True)
def _power(value: Any, exponent: Any) -> Any:
    """value * 10**exponent"""
    return value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]


@njit(cache=True, nogil=True)
def _shortest(value: Any) -> Any:
    """The fewest digits that restore a positive float32, how many they are, and the exponent of the first."""
    wide = np.float64(value)
    exponent = np.int64(math.floor(math.log10(wide)))
    digits = np.int64(_power(wide, DIGITS - 1 - exponent) + 0.5)
    if digits >= 10**DIGITS or digits < 10 ** (DIGITS - 1):  # the logarithm was rounded over a power of ten
        exponent += 1 if digits >= 10**DIGITS else -1
        digits = np.int64(_power(wide, DIGITS - 1 - exponent) + 0.5)
    count = DIGITS
    while count > 1:
        fewer = np.int64(_power(wide, count - 2 - exponent) + 0.5)
        back = _power(np.float64(fewer), exponent - count + 2)
        if _is_hard(back) or np.float32(back) != value:
            break
        digits, count = fewer, count - 1
    if digits >= _POWERS[count]:  # as when 9.99 becomes 10
        digits //= 10
        exponent += 1
    return digits, count, exponent


@njit(cache=True, nogil=True)
def _put_digits(out: Any, at: Any, number: Any, count: Any) -> Any:
    for place in range(at + count - 1, at - 1, -1):
        out[place] = ZERO + number % 10
        number //= 10
    return at + count


@njit(cache=True, nogil=True)
def put_float(out: Any, at: Any, value: Any) -> Any:
    """Writes a finite float32 with the fewest digits that restore it; returns where it ends."""
    if value < 0.0 or (value == 0.0 and math.copysign(1.0, value) < 0.0):
        out[at] = MINUS
        at += 1
        value = -value
    if value == 0.0:
        out[at] = ZERO
        return at + 1
    digits, count, exponent = _shortest(value)
    if not -5 <= exponent < DIGITS:
        first = np.int64(_POWERS[count - 1])
        at = _put_digits(out, at, digits // first, 1)
        if count > 1:
            out[at] = POINT
            at = _put_digits(out, at + 1, digits % first, count - 1)
        out[at], out[at + 1] = LETTER_E, PLUS if exponent > 0 else MINUS
        return _put_digits(out, at + 2, abs(exponent), 2)
    if exponent < 0:
        out[at], out[at + 1] = ZERO, POINT
        return _put_digits(out, at + 2, digits, count - exponent - 1)
    whole = exponent + 1  # digits before the point
    if count <= whole:
        return _put_digits(out, at, digits * np.int64(_POWERS[whole - count]), whole)
    behind = np.int64(_POWERS[count - whole])
    at = _put_digits(out, at, digits // behind, whole)
    out[at] = POINT
    return _put_digits(out, at + 1, digits % behind, count - whole)


@njit(cache=True, nogil=True)
def write_text(values: Any, pool: Any, bounds: Any, out: Any) -> Any:
    """Writes a line for each row: the word and its numbers, with spaces between them. Returns the bytes written."""
    at = 0
    for row in range(values.shape[0]):
        for place in range(bounds[row], bounds[row + 1]):
            out[at] = pool[place]
            at += 1
        for column in range(values.shape[1]):
            out[at] = SPACE
            at = put_float(out, at + 1, values[row, column])
        out[at] = LINE_END
        at += 1
    return at
