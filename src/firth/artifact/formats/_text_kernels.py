"""Numba kernels that parse and write numbers as text, and the rows of vector files.

Names: at = offset in bytes; field = bytes between blanks; row = a word and its vector.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

TAB, NEWLINE, RETURN, SPACE, PLUS, MINUS, POINT, ZERO, LETTER_E = 9, 10, 13, 32, 43, 45, 46, 48, 101
SIGNIFICANT_DIGITS = 9  # enough to tell any two float32 numbers apart
_POWERS = np.array([10.0**exponent for exponent in range(309)])
OK, NOT_NUMBER, NOT_FINITE, TOO_FEW, TOO_MANY, BAD_BYTE, NO_WORD, LONG_WORD = range(8)  # result of parsing a row
MAX_NUMBER_FIELD = 128  # bytes of a number that is read
MAX_WORD = 1 << 16  # bytes
MAX_NUMBER_BYTES = 20  # of a number that is written
_LEAST_NORMAL = 2.0**-126
_DROPPED = np.int64((1 << 29) - 1)  # bits of a float64 mantissa that a float32 lacks
_MIDDLE = np.int64(1 << 28)
_MAX_ERROR = 8  # units in the last place by which a float64 may be wrong


@njit(cache=True, nogil=True)
def is_blank(byte: Any) -> Any:
    return (byte == SPACE) | (byte == TAB)


@njit(cache=True, nogil=True)
def _is_digit(byte: Any) -> Any:
    return ZERO <= byte <= ZERO + 9


@njit(cache=True, nogil=True)
def find_line_end(data: Any, at: Any) -> Any:
    """Offset of the line end, and whether the line is valid: no zero byte, and no carriage return before its end."""
    is_valid = True
    while data[at] != NEWLINE:
        if data[at] == 0 or (data[at] == RETURN and data[at + 1] != NEWLINE):
            is_valid = False
        at += 1
    return at, is_valid


@njit(cache=True, nogil=True)
def _scale(mantissa: Any, exponent: Any) -> Any:
    """mantissa * 10**exponent, infinity or 0 if out of range."""
    value = np.float64(mantissa)
    if exponent >= 0:
        return value * _POWERS[min(exponent, 308)] if exponent < 309 or value == 0.0 else np.inf
    while exponent < -300 and value > 0.0:
        value /= _POWERS[300]
        exponent += 300
    return value / _POWERS[-exponent] if value > 0.0 else 0.0


@njit(cache=True, nogil=True)
def parse_number(data: Any, at: Any, end: Any) -> Any:
    """The number in `data[at:end]`, NaN if there is none; `-inf` is the only value that is not finite."""
    is_negative = data[at] == MINUS
    if is_negative or data[at] == PLUS:
        at += 1
    if is_negative and end - at == 3 and data[at] | 32 == 105 and data[at + 1] | 32 == 110 and data[at + 2] | 32 == 102:
        return -np.inf
    mantissa, exponent, digits, is_fraction = np.uint64(0), 0, 0, False
    while at < end and (_is_digit(data[at]) or (data[at] == POINT and not is_fraction)):
        if data[at] == POINT:
            is_fraction = True
        else:
            digits += 1
            if mantissa < np.uint64(10**18):
                mantissa = mantissa * np.uint64(10) + np.uint64(data[at] - ZERO)
                exponent -= is_fraction
            else:
                exponent += not is_fraction
        at += 1
    if digits == 0:
        return np.nan
    if at < end:
        power, at = _parse_exponent(data, at, end)
        if at < end:
            return np.nan
        exponent += power
    value = _scale(mantissa, exponent)
    return -value if is_negative else value


@njit(cache=True, nogil=True)
def _parse_exponent(data: Any, at: Any, end: Any) -> Any:
    """The exponent after the e of a number, and the offset of its end, which is before `end` if it is malformed."""
    begin = at
    if data[at] | 32 != LETTER_E:
        return 0, begin
    at += 1
    is_negative = at < end and data[at] == MINUS
    if at < end and (is_negative or data[at] == PLUS):
        at += 1
    if at == end:
        return 0, begin
    power = 0
    while at < end and _is_digit(data[at]):
        if power < 100_000:
            power = power * 10 + data[at] - ZERO
        at += 1
    return (-power if is_negative else power), at


@njit(cache=True, nogil=True)
def write_digits(out: Any, at: Any, number: Any, count: Any) -> Any:
    """Write `count` decimal digits of a whole number; returns the offset after them."""
    for index in range(at + count - 1, at - 1, -1):
        out[index] = ZERO + number % 10
        number //= 10
    return at + count


@njit(cache=True, nogil=True, inline="always")
def write_decimal(out: Any, at: Any, digits: Any, count: Any, exponent: Any, least: Any) -> Any:
    """Write a number given its `count` digits and the exponent of the first; returns the offset after it.

    The notation is scientific if the exponent is below `least`, or above that of a whole number of nine digits.
    """
    if not least <= exponent < SIGNIFICANT_DIGITS:
        first = np.int64(_POWERS[count - 1])
        at = write_digits(out, at, digits // first, 1)
        if count > 1:
            out[at] = POINT
            at = write_digits(out, at + 1, digits % first, count - 1)
        out[at], out[at + 1] = LETTER_E, PLUS if exponent > 0 else MINUS
        return write_digits(out, at + 2, abs(exponent), 3 if abs(exponent) >= 100 else 2)
    if exponent < 0:
        out[at], out[at + 1] = ZERO, POINT
        return write_digits(out, at + 2, digits, count - exponent - 1)
    whole = exponent + 1  # digits before the decimal point
    if count <= whole:
        return write_digits(out, at, digits * np.int64(_POWERS[whole - count]), whole)
    divisor = np.int64(_POWERS[count - whole])
    at = write_digits(out, at, digits // divisor, whole)
    out[at] = POINT
    return write_digits(out, at + 1, digits % divisor, count - whole)


@njit(cache=True, nogil=True)
def copy_bytes(source: Any, begin: Any, end: Any, out: Any, at: Any) -> Any:
    """Copy `source[begin:end]` to `out[at:]`; returns the offset after them."""
    for index in range(begin, end):
        out[at] = source[index]
        at += 1
    return at


@njit(cache=True, nogil=True)
def _is_ambiguous(value: Any) -> Any:
    """Whether a number within the error of `value` may round to another float32."""
    size = abs(value)
    if size < _LEAST_NORMAL:
        return size > 0.0
    return abs((np.float64(size).view(np.int64) & _DROPPED) - _MIDDLE) <= _MAX_ERROR


@njit(cache=True, nogil=True)
def _previous_field(data: Any, left: Any, end: Any) -> Any:
    """Begin of the field that ends at `end`, and end of the field before it."""
    begin = end
    while begin > left and not is_blank(data[begin - 1]):
        begin -= 1
    before = begin
    while before > left and is_blank(data[before - 1]):
        before -= 1
    return begin, before


@njit(cache=True, nogil=True)
def _is_number(data: Any, begin: Any, end: Any) -> Any:
    return end - begin <= MAX_NUMBER_FIELD and not math.isnan(parse_number(data, begin, end))


@njit(cache=True, nogil=True)
def read_text(data: Any, dimension: Any, values: Any, words: Any, lines: Any, ambiguous: Any) -> Any:
    """Parse the rows of `data`, complete lines of which blank ones are skipped.

    Numbers are parsed from the right, since words may contain spaces. Fills `values`, begin and end of each word in
    `words`, and the line number of each row; `ambiguous` gets the numbers that a float64 cannot round reliably: index
    in `values`, begin and end. Returns the number of rows and of ambiguous numbers, the result code of the line where
    parsing stopped, begin and end of the faulty field, and that line's number.
    """
    at, row, line, ambiguous_count = 0, 0, 0, 0
    while at < data.size:
        stop, is_valid = find_line_end(data, at)
        left, end = at, stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        if not is_valid:
            return row, ambiguous_count, BAD_BYTE, left, end, line
        while left < end and is_blank(data[left]):
            left += 1
        while end > left and is_blank(data[end - 1]):
            end -= 1
        if left < end:
            for column in range(dimension - 1, -1, -1):
                begin, before = _previous_field(data, left, end)
                if begin == left:
                    return row, ambiguous_count, TOO_FEW, left, end, line
                value = parse_number(data, begin, end) if end - begin <= MAX_NUMBER_FIELD else np.nan
                if math.isnan(value):
                    return row, ambiguous_count, NOT_NUMBER, begin, end, line
                values[row, column] = value
                if math.isinf(values[row, column]):
                    return row, ambiguous_count, NOT_FINITE, begin, end, line
                if _is_ambiguous(value):
                    ambiguous[ambiguous_count, 0] = row * dimension + column
                    ambiguous[ambiguous_count, 1], ambiguous[ambiguous_count, 2] = begin, end
                    ambiguous_count += 1
                end = before
            begin, before = _previous_field(data, left, end)
            if begin > left and _is_number(data, begin, end):
                return row, ambiguous_count, TOO_MANY, begin, end, line
            words[row, 0], words[row, 1], lines[row] = left, end, line
            row += 1
        at = stop + 1
        line += 1
    return row, ambiguous_count, OK, at, at, line


@njit(cache=True, nogil=True)
def read_binary(data: Any, max_rows: Any, values: Any, words: Any) -> Any:
    """Read up to `max_rows` complete rows, each a word, a space and the bytes of its vector.

    Returns the number of rows, the offset of the next one, and its result code.
    """
    at, row, size = 0, 0, values.shape[1]
    while row < max_rows:
        begin = at
        while begin < data.size and data[begin] == NEWLINE:  # some programs end rows with one
            begin += 1
        end, is_valid = begin, True
        while end < data.size and data[end] != SPACE and end - begin <= MAX_WORD:
            is_valid = is_valid and data[end] != 0 and data[end] != NEWLINE
            end += 1
        if end - begin > MAX_WORD:
            return row, at, LONG_WORD
        if end + 1 + size > data.size:
            break
        if begin == end or not is_valid:
            return row, at, NO_WORD
        words[row, 0], words[row, 1] = begin, end
        for index in range(size):
            values[row, index] = data[end + 1 + index]
        at = end + 1 + size
        row += 1
    return row, at, OK


@njit(cache=True, nogil=True)
def _scale_float32(value: Any, exponent: Any) -> Any:
    return value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]


@njit(cache=True, nogil=True)
def _shortest_digits(value: Any) -> Any:
    """The fewest digits that restore a positive float32, their number, and the exponent of the first."""
    wide = np.float64(value)
    exponent = np.int64(math.floor(math.log10(wide)))
    digits = np.int64(_scale_float32(wide, SIGNIFICANT_DIGITS - 1 - exponent) + 0.5)
    # The logarithm may have been rounded over a power of ten.
    if digits >= 10**SIGNIFICANT_DIGITS or digits < 10 ** (SIGNIFICANT_DIGITS - 1):
        exponent += 1 if digits >= 10**SIGNIFICANT_DIGITS else -1
        digits = np.int64(_scale_float32(wide, SIGNIFICANT_DIGITS - 1 - exponent) + 0.5)
    count = SIGNIFICANT_DIGITS
    while count > 1:
        fewer = np.int64(_scale_float32(wide, count - 2 - exponent) + 0.5)
        back = _scale_float32(np.float64(fewer), exponent - count + 2)
        if _is_ambiguous(back) or np.float32(back) != value:
            break
        digits, count = fewer, count - 1
    if digits >= _POWERS[count]:  # as when 9.99 becomes 10
        digits //= 10
        exponent += 1
    return digits, count, exponent


@njit(cache=True, nogil=True)
def write_float(out: Any, at: Any, value: Any) -> Any:
    """Write a finite float32 with the fewest digits that restore it; returns the offset after it."""
    if value < 0.0 or (value == 0.0 and math.copysign(1.0, value) < 0.0):
        out[at] = MINUS
        at += 1
        value = -value
    if value == 0.0:
        out[at] = ZERO
        return at + 1
    digits, count, exponent = _shortest_digits(value)
    return write_decimal(out, at, digits, count, exponent, -5)


@njit(cache=True, nogil=True)
def write_text(values: Any, pool: Any, bounds: Any, out: Any) -> Any:
    """Write one line per row: the word and its vector, separated by spaces; returns the number of bytes."""
    at = 0
    for row in range(values.shape[0]):
        at = copy_bytes(pool, bounds[row], bounds[row + 1], out, at)
        for column in range(values.shape[1]):
            out[at] = SPACE
            at = write_float(out, at + 1, values[row, column])
        out[at] = NEWLINE
        at += 1
    return at
