"""Numba kernels that read the lines of an ARPA file and check that its probabilities sum to one.

Names: at = position in bytes; field = what stands between spaces or tabs; row = line of an n-gram.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

ROOT = np.uint32(0xFFFFFFFF)
BOS, EOS = 2, 3
TAB, LINE_END, RETURN, SPACE, PLUS, MINUS, POINT, ZERO = 9, 10, 13, 32, 43, 45, 46, 48
LEAST = -99.0  # this and less stands for the logarithm of 0
SLACK = 1e-6  # how far rounding may put a logarithm above 0
MOST_WEIGHT = 99.0
FINE, NOT_NUMBER, ABOVE_ZERO, TOO_HEAVY, NOT_LOWER, COLUMNS, UNKNOWN, BAD_BYTE = range(8)
"""What may be wrong with a line."""
_PER_LOG10 = math.log(10.0)
_POWERS = np.array([10.0**exponent for exponent in range(309)])


@njit(cache=True, nogil=True)
def _is_digit(byte: Any) -> Any:
    return ZERO <= byte <= ZERO + 9


@njit(cache=True, nogil=True)
def _scaled(mantissa: Any, exponent: Any) -> Any:
    """mantissa * 10**exponent; infinite or 0 where that is out of reach."""
    value = np.float64(mantissa)
    if exponent >= 0:
        return value * _POWERS[min(exponent, 308)] if exponent < 309 or value == 0.0 else np.inf
    while exponent < -300 and value > 0.0:
        value /= _POWERS[300]
        exponent += 300
    return value / _POWERS[-exponent] if value > 0.0 else 0.0


@njit(cache=True, nogil=True)
def get_number(data: Any, at: Any, end: Any) -> Any:
    """The number that `data[at:end]` spells, NaN if it spells none; `-inf` is the only one that is not finite."""
    negative = data[at] == MINUS
    if negative or data[at] == PLUS:
        at += 1
    if negative and end - at == 3 and data[at] | 32 == 105 and data[at + 1] | 32 == 110 and data[at + 2] | 32 == 102:
        return -np.inf
    mantissa, exponent, digits, behind = np.uint64(0), 0, 0, False
    while at < end and (_is_digit(data[at]) or (data[at] == POINT and not behind)):
        if data[at] == POINT:
            behind = True
        else:
            digits += 1
            if mantissa < np.uint64(10**18):
                mantissa = mantissa * np.uint64(10) + np.uint64(data[at] - ZERO)
                exponent -= behind
            else:
                exponent += not behind
        at += 1
    if digits == 0:
        return np.nan
    if at < end:
        power, at = _get_exponent(data, at, end)
        if at < end:
            return np.nan
        exponent += power
    value = _scaled(mantissa, exponent)
    return -value if negative else value


@njit(cache=True, nogil=True)
def _get_exponent(data: Any, at: Any, end: Any) -> Any:
    """What follows the e of a number, and where it ends: before `end` if it is wrong."""
    begin = at
    if data[at] | 32 != 101:
        return 0, begin
    at += 1
    negative = at < end and data[at] == MINUS
    if at < end and (negative or data[at] == PLUS):
        at += 1
    if at == end:
        return 0, begin
    power = 0
    while at < end and _is_digit(data[at]):
        if power < 100_000:
            power = power * 10 + data[at] - ZERO
        at += 1
    return (-power if negative else power), at


@njit(cache=True, nogil=True)
def _hash(data: Any, begin: Any, end: Any) -> Any:
    """FNV-1a with a final mix, so that the low bits depend on every byte."""
    value = np.uint64(14695981039346656037)
    for position in range(begin, end):
        value = (value ^ np.uint64(data[position])) * np.uint64(1099511628211)
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True)
def _find_word(data: Any, begin: Any, end: Any, slots: Any, pool: Any, bounds: Any) -> Any:
    """The number of the word `data[begin:end]`, or -1."""
    mask = np.uint64(slots.size - 1)
    slot = _hash(data, begin, end) & mask
    while slots[slot] >= 0:
        word = slots[slot]
        if bounds[word + 1] - bounds[word] == end - begin:
            place = begin
            while place < end and pool[bounds[word] + place - begin] == data[place]:
                place += 1
            if place == end:
                return word
        slot = (slot + np.uint64(1)) & mask
    return np.int32(-1)


@njit(cache=True, nogil=True)
def fill_slots(pool: Any, bounds: Any, slots: Any) -> Any:
    """Makes words, no two of which are the same, findable; `slots` holds -1 everywhere. Empty words are left out."""
    mask = np.uint64(slots.size - 1)
    for word in range(bounds.size - 1):
        if bounds[word] == bounds[word + 1]:
            continue
        slot = _hash(pool, bounds[word], bounds[word + 1]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@njit(cache=True, nogil=True)
def _field(data: Any, at: Any, end: Any) -> Any:
    """Where the next field of a line begins and ends."""
    while at < end and (data[at] == SPACE or data[at] == TAB):
        at += 1
    begin = at
    while at < end and data[at] != SPACE and data[at] != TAB:
        at += 1
    return begin, at


@njit(cache=True, nogil=True)
def _get_weight(data: Any, begin: Any, end: Any, top: Any) -> Any:
    """The back-off weight, and what is wrong with it."""
    value = get_number(data, begin, end)
    if math.isnan(value):
        return value, NOT_NUMBER
    if value > MOST_WEIGHT:
        return value, TOO_HEAVY
    if top and value != 0.0:
        return value, NOT_LOWER
    return (value * _PER_LOG10 if value > LEAST else -np.inf), FINE


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
def read_rows(
    data: Any, n: Any, top: Any, slots: Any, pool: Any, bounds: Any, logp: Any, bow: Any, words: Any, lines: Any
) -> Any:
    """Reads the n-grams of length `n` in `data`, lines that all have an end; blank ones are passed over.

    Fills `logp`, `bow`, the ids `words` (of unigrams where the word begins and ends instead, since ids are given to
    them later) and `lines`, the number of each row's line. Returns the rows, what is wrong with the line where reading
    stopped, where the wrong field begins and ends, and the line's number.
    """
    at, row, line = 0, 0, 0
    while at < data.size:
        stop, fine = _line_end(data, at)
        end = stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        if not fine:
            return row, BAD_BYTE, at, end, line
        begin, at = _field(data, at, end)
        if begin < end:
            value = get_number(data, begin, at)
            if math.isnan(value):
                return row, NOT_NUMBER, begin, at, line
            if value > SLACK:
                return row, ABOVE_ZERO, begin, at, line
            logp[row] = min(value, 0.0) * _PER_LOG10 if value > LEAST else -np.inf
            for place in range(n):
                begin, at = _field(data, at, end)
                if begin == end:
                    return row, COLUMNS, begin, end, line
                if n == 1:
                    words[row, 0], words[row, 1] = begin, at
                    continue
                words[row, place] = _find_word(data, begin, at, slots, pool, bounds)
                if words[row, place] < 0:
                    return row, UNKNOWN, begin, at, line
            begin, at = _field(data, at, end)
            bow[row] = 0.0
            if begin < end:
                bow[row], code = _get_weight(data, begin, at, top)
                if code != FINE:
                    return row, code, begin, at, line
            begin, at = _field(data, at, end)
            if begin < end:
                return row, COLUMNS, begin, at, line
            lines[row] = line
            row += 1
        at = stop + 1
        line += 1
    return row, FINE, at, at, line


@njit(cache=True, nogil=True)
def _child(words: Any, first: Any, node: Any, word: Any) -> Any:
    """The child of `node` whose last word is `word`, or -1."""
    low, high = np.int64(first[node]), np.int64(first[node + 1])
    end = high
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and words[low] == word else -1


@njit(cache=True, nogil=True)
def find_parents(grams: Any, rows: Any, n: Any, words: Any, first: Any, keys: Any) -> Any:
    """Fills `keys` with `parent << 32 | last word` for n-grams of length `n`; returns the first row without a parent.

    Nodes that the n-gram shares with the one before it are not looked for again.
    """
    path = np.full(n - 1, -1, np.int64)
    for row in range(rows):
        same = row > 0
        for depth in range(n - 1):
            word = grams[row, depth]
            same = same and word == grams[row - 1, depth]
            if same:
                continue
            path[depth] = word if depth == 0 else _child(words, first, path[depth - 1], word)
            if path[depth] < 0:
                return row
        keys[row] = np.uint64(path[n - 2]) << np.uint64(32) | np.uint64(grams[row, n - 1])
    return rows


@njit(cache=True, nogil=True)
def weigh(begin: Any, end: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, slack: Any) -> Any:
    """Of the histories from `begin` to `end` the one after which the sum of probabilities is furthest from 1.

    With p' the probability after the shorter history and W the back-off weight, the sum over all words is

        sum of p + W (1 - sum of p')

    over the words seen after the history. `slack` times (1, W) is what it may be off by, and distance is counted in
    multiples of that. Returns the node, or -1 if all sums are exact, the sum and the distance. N-grams that end with
    `</s>` are no histories.
    """
    worst, sum_there, most = -1, 1.0, 0.0
    for node in range(begin, end):
        if words[node] == EOS:
            continue
        seen, below = 0.0, 0.0
        for child in range(np.int64(first[node]), np.int64(first[node + 1])):
            seen += math.exp(logp[child])
            below += math.exp(_backed_off(links[child], links[node], first, links, logp, bow))
        weight = math.exp(bow[node])
        whole = seen + weight * (1.0 - below)
        if math.isnan(whole):
            whole = np.inf
        distance = abs(whole - 1.0) / (slack[0] + slack[1] * weight)
        if distance > most:
            worst, sum_there, most = node, whole, distance
    return worst, sum_there, most


@njit(cache=True, nogil=True)
def _backed_off(node: Any, history: Any, first: Any, links: Any, logp: Any, bow: Any) -> Any:
    """The log-probability of the last word of `node` after `history`, of which the node's own history is a suffix."""
    total = np.float64(logp[node])
    while history != ROOT and not first[history] <= node < first[np.int64(history) + 1]:
        total += bow[history]
        history = links[history]
    return total
