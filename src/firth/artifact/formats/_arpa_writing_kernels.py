"""Numba kernels that write the lines of an ARPA file.

Names: at = where the next byte goes; path = the nodes of all prefixes of the n-gram at hand, the shortest first.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

PAD, MASK = 0, 4
TAB, LINE_END, SPACE, MINUS, POINT, ZERO = 9, 10, 32, 45, 46, 48
DIGITS = 9  # as many as tell any two float32 numbers apart
LEAST = -99.0  # what stands for the logarithm of 0
SLACK = 1e-6  # how far rounding may put a logarithm above 0
_PER_LOG10 = math.log(10.0)
_POWERS = np.array([10.0**exponent for exponent in range(309)])
_NUMBER_ROOM = 24  # bytes that no number exceeds


@njit(cache=True, nogil=True)
def _exponent_of(value: Any) -> Any:
    """floor(log10(value)) of a positive number."""
    if value >= 0.1:
        if value < 1.0:
            return -1
        return 0 if value < 10.0 else (1 if value < 100.0 else 2)
    exponent = np.int64(math.floor(math.log10(value)))
    return exponent if value * _POWERS[-exponent] >= 1.0 else exponent - 1


@njit(cache=True, nogil=True)
def _put_digits(out: Any, at: Any, number: Any, count: Any) -> Any:
    for place in range(at + count - 1, at - 1, -1):
        out[place] = ZERO + number % 10
        number //= 10
    return at + count


@njit(cache=True, nogil=True)
def put_number(out: Any, at: Any, value: Any) -> Any:
    """Writes a number below 1000 with nine significant digits, like C's %.9g; returns where it ends."""
    if value < 0.0:
        out[at] = MINUS
        at += 1
        value = -value
    if value < 1e-290:
        out[at] = ZERO
        return at + 1
    exponent = _exponent_of(value)
    digits = np.int64(value * _POWERS[DIGITS - 1 - exponent] + 0.5)
    if digits >= 10**DIGITS:
        digits //= 10
        exponent += 1
    count = DIGITS
    while digits % 10 == 0:
        digits //= 10
        count -= 1
    if exponent < -4:
        return _put_scientific(out, at, digits, count, exponent)
    whole = max(exponent + 1, 0)  # digits before the point
    if count <= whole:
        for _ in range(whole - count):
            digits *= 10
        return _put_digits(out, at, digits, whole)
    behind = count - 1 - exponent
    power = np.int64(1)
    for _ in range(min(behind, count)):
        power *= 10
    at = _put_digits(out, at, digits // power, max(whole, 1))
    out[at] = POINT
    return _put_digits(out, at + 1, digits % power, behind)


@njit(cache=True, nogil=True)
def _put_scientific(out: Any, at: Any, digits: Any, count: Any, exponent: Any) -> Any:
    power = np.int64(1)
    for _ in range(count - 1):
        power *= 10
    out[at] = ZERO + digits // power
    at += 1
    if count > 1:
        out[at] = POINT
        at = _put_digits(out, at + 1, digits % power, count - 1)
    out[at], out[at + 1] = ord("e"), MINUS
    return _put_digits(out, at + 2, -exponent, 3 if exponent <= -100 else 2)


@njit(cache=True, nogil=True)
def _put_log(out: Any, at: Any, natural: Any) -> Any:
    return put_number(out, at, max(natural / _PER_LOG10, LEAST))


@njit(cache=True, nogil=True)
def _copy(source: Any, begin: Any, end: Any, out: Any, at: Any) -> Any:
    for place in range(begin, end):
        out[at] = source[place]
        at += 1
    return at


@njit(cache=True, nogil=True)
def _grown(out: Any, used: Any, room: Any) -> Any:
    new = np.empty(2 * (used + room), np.uint8)
    _copy(out, 0, used, new, 0)
    return new


@njit(cache=True, nogil=True)
def put_rows(
    begin: Any, end: Any, path: Any, words: Any, first: Any, logp: Any, bow: Any, pool: Any, bounds: Any, longest: Any
) -> Any:
    """The lines of the nodes from `begin` to `end`, all of one level; `path` is the path to the first of them.

    Word w is spelt `pool[bounds[w]:bounds[w + 1]]`, at most `longest` bytes. Nodes from `bow.size` on have no weight.
    """
    n = path.size
    room = 2 * _NUMBER_ROOM + n * (longest + 1) + 2
    out = np.empty(64 * (end - begin) + room, np.uint8)
    prefix = np.empty(n * (longest + 1), np.uint8)
    at, kept, known = 0, 0, -1
    for node in range(begin, end):
        if n == 1 and node in (PAD, MASK):
            continue
        path[n - 1] = node
        for depth in range(n - 2, -1, -1):
            while np.int64(first[path[depth] + 1]) <= path[depth + 1]:
                path[depth] += 1
        if n > 1 and path[n - 2] != known:
            known, kept = path[n - 2], 0
            for depth in range(n - 1):
                word = words[path[depth]]
                kept = _copy(pool, bounds[word], bounds[word + 1], prefix, kept)
                prefix[kept] = SPACE
                kept += 1
        if at + room > out.size:
            out = _grown(out, at, room)
        at = _put_log(out, at, min(logp[node], 0.0))
        out[at] = TAB
        at = _copy(prefix, 0, kept, out, at + 1)
        at = _copy(pool, bounds[words[node]], bounds[words[node] + 1], out, at)
        if node < bow.size:
            out[at] = TAB
            at = _put_log(out, at + 1, bow[node])
        out[at] = LINE_END
        at += 1
    return out[:at]
