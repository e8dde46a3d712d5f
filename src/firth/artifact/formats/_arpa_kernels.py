"""Numba kernels that parse and write the lines of an ARPA file, and check that its probabilities sum to one.

Names: at = offset in bytes; field = bytes between blanks; row = parsed line of one n-gram; path = nodes of all prefixes
of an n-gram, the shortest first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.artifact.formats._text_kernels import (
    MINUS,
    NEWLINE,
    RETURN,
    SIGNIFICANT_DIGITS,
    SPACE,
    TAB,
    ZERO,
    copy_bytes,
    find_line_end,
    is_blank,
    parse_number,
    write_decimal,
)
from firth.counts._query_kernels import ROOT, find_child

PAD, EOS, MASK = 0, 3, 4
LOG_ZERO = -99.0  # stands for the logarithm of 0, like all lower values
TOLERANCE = 1e-6  # rounding may put a log-probability this far above 0
MAX_BACKOFF = 99.0
MAX_NUMBER_BYTES = 24  # of a number that is written
(OK, NOT_NUMBER, POSITIVE_LOGPROB, LARGE_BACKOFF, TOP_ORDER_BACKOFF, WRONG_FIELDS, UNKNOWN_WORD, BAD_BYTE) = range(8)
"""Result of parsing a line."""
_LN_10 = math.log(10.0)
_POWERS = np.array([10.0**exponent for exponent in range(309)])


@njit(cache=True, nogil=True)
def _hash(data: Any, begin: Any, end: Any) -> Any:
    """FNV-1a with a final mix, so that the low bits depend on every byte."""
    value = np.uint64(14695981039346656037)
    for index in range(begin, end):
        value = (value ^ np.uint64(data[index])) * np.uint64(1099511628211)
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True)
def _find_word(data: Any, begin: Any, end: Any, slots: Any, pool: Any, bounds: Any) -> Any:
    """The id of the word `data[begin:end]`, or -1."""
    mask = np.uint64(slots.size - 1)
    slot = _hash(data, begin, end) & mask
    while slots[slot] >= 0:
        word = slots[slot]
        if bounds[word + 1] - bounds[word] == end - begin:
            index = begin
            while index < end and pool[bounds[word] + index - begin] == data[index]:
                index += 1
            if index == end:
                return word
        slot = (slot + np.uint64(1)) & mask
    return np.int32(-1)


@njit(cache=True, nogil=True)
def fill_slots(pool: Any, bounds: Any, slots: Any) -> Any:
    """Insert distinct words into the hash table `slots`, which holds -1 everywhere; empty words are skipped."""
    mask = np.uint64(slots.size - 1)
    for word in range(bounds.size - 1):
        if bounds[word] == bounds[word + 1]:
            continue
        slot = _hash(pool, bounds[word], bounds[word + 1]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@njit(cache=True, nogil=True)
def _next_field(data: Any, at: Any, end: Any) -> Any:
    """Begin and end of the next field of a line."""
    while at < end and is_blank(data[at]):
        at += 1
    begin = at
    while at < end and not is_blank(data[at]):
        at += 1
    return begin, at


@njit(cache=True, nogil=True)
def _parse_backoff(data: Any, begin: Any, end: Any, is_top: Any) -> Any:
    """The natural logarithm of the back-off weight, and the result code."""
    value = parse_number(data, begin, end)
    if math.isnan(value):
        return value, NOT_NUMBER
    if value > MAX_BACKOFF:
        return value, LARGE_BACKOFF
    if is_top and value != 0.0:
        return value, TOP_ORDER_BACKOFF
    return (value * _LN_10 if value > LOG_ZERO else -np.inf), OK


@njit(cache=True, nogil=True)
def read_rows(
    data: Any, n: Any, is_top: Any, slots: Any, pool: Any, bounds: Any, logp: Any, bow: Any, words: Any, lines: Any
) -> Any:
    """Parse the n-grams of order `n` in `data`, complete lines of which blank ones are skipped.

    Fills `logp`, `bow`, the word ids `words` (for unigrams the begin and end of the word, since ids are assigned
    later) and `lines`, the line number of each row. Returns the number of rows, the result code of the line where
    parsing stopped, begin and end of the faulty field, and that line's number.
    """
    at, row, line = 0, 0, 0
    while at < data.size:
        stop, is_valid = find_line_end(data, at)
        end = stop - 1 if stop > at and data[stop - 1] == RETURN else stop
        if not is_valid:
            return row, BAD_BYTE, at, end, line
        begin, at = _next_field(data, at, end)
        if begin < end:
            value = parse_number(data, begin, at)
            if math.isnan(value):
                return row, NOT_NUMBER, begin, at, line
            if value > TOLERANCE:
                return row, POSITIVE_LOGPROB, begin, at, line
            logp[row] = min(value, 0.0) * _LN_10 if value > LOG_ZERO else -np.inf
            for position in range(n):
                begin, at = _next_field(data, at, end)
                if begin == end:
                    return row, WRONG_FIELDS, begin, end, line
                if n == 1:
                    words[row, 0], words[row, 1] = begin, at
                    continue
                words[row, position] = _find_word(data, begin, at, slots, pool, bounds)
                if words[row, position] < 0:
                    return row, UNKNOWN_WORD, begin, at, line
            begin, at = _next_field(data, at, end)
            bow[row] = 0.0
            if begin < end:
                bow[row], code = _parse_backoff(data, begin, at, is_top)
                if code != OK:
                    return row, code, begin, at, line
            begin, at = _next_field(data, at, end)
            if begin < end:
                return row, WRONG_FIELDS, begin, at, line
            lines[row] = line
            row += 1
        at = stop + 1
        line += 1
    return row, OK, at, at, line


@njit(cache=True, nogil=True)
def find_parents(ngrams: Any, rows: Any, n: Any, words: Any, first: Any, keys: Any) -> Any:
    """Fill `keys` with `parent << 32 | last word` for n-grams of order `n`; returns the first row without a parent.

    Nodes that the n-gram shares with the previous one are not searched again.
    """
    path = np.full(n - 1, -1, np.int64)
    for row in range(rows):
        is_shared = row > 0
        for depth in range(n - 1):
            word = ngrams[row, depth]
            is_shared = is_shared and word == ngrams[row - 1, depth]
            if is_shared:
                continue
            path[depth] = word if depth == 0 else find_child(words, first, path[depth - 1], word)
            if path[depth] == ROOT:
                return row
        keys[row] = np.uint64(path[n - 2]) << np.uint64(32) | np.uint64(ngrams[row, n - 1])
    return rows


@njit(cache=True, nogil=True)
def find_worst_sum(begin: Any, end: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, slack: Any) -> Any:
    """Among the histories `begin` to `end` the one whose probabilities sum to a value furthest from 1.

    With p' the probability after the shorter history and W the back-off weight, the sum over all words is

        sum of p + W (1 - sum of p')

    over the words seen after the history. The error is counted in multiples of `slack` @ (1, W). Returns the node, or
    -1 if all sums are exact, its sum and its error. N-grams that end with `</s>` are no histories.
    """
    worst, worst_sum, largest = -1, 1.0, 0.0
    for node in range(begin, end):
        if words[node] == EOS:
            continue
        seen, below = 0.0, 0.0
        for child in range(np.int64(first[node]), np.int64(first[node + 1])):
            seen += math.exp(logp[child])
            below += math.exp(_backoff_logprob(links[child], links[node], first, links, logp, bow))
        weight = math.exp(bow[node])
        total = seen + weight * (1.0 - below)
        if math.isnan(total):
            total = np.inf
        error = abs(total - 1.0) / (slack[0] + slack[1] * weight)
        if error > largest:
            worst, worst_sum, largest = node, total, error
    return worst, worst_sum, largest


@njit(cache=True, nogil=True)
def _backoff_logprob(node: Any, history: Any, first: Any, links: Any, logp: Any, bow: Any) -> Any:
    """Log-probability of the last word of `node` after `history`, of which the node's own history is a suffix."""
    total = np.float64(logp[node])
    while history != ROOT and not first[history] <= node < first[np.int64(history) + 1]:
        total += bow[history]
        history = links[history]
    return total


@njit(cache=True, nogil=True)
def _decimal_exponent(value: Any) -> Any:
    """floor(log10(value)) of a positive number."""
    if value >= 0.1:
        if value < 1.0:
            return -1
        return 0 if value < 10.0 else (1 if value < 100.0 else 2)
    exponent = np.int64(math.floor(math.log10(value)))
    return exponent if value * _POWERS[-exponent] >= 1.0 else exponent - 1


@njit(cache=True, nogil=True)
def write_number(out: Any, at: Any, value: Any) -> Any:
    """Write a number below 1000 with nine significant digits, like C's %.9g; returns the offset after it."""
    if value < 0.0:
        out[at] = MINUS
        at += 1
        value = -value
    if value < 1e-290:
        out[at] = ZERO
        return at + 1
    exponent = _decimal_exponent(value)
    digits = np.int64(value * _POWERS[SIGNIFICANT_DIGITS - 1 - exponent] + 0.5)
    if digits >= 10**SIGNIFICANT_DIGITS:
        digits //= 10
        exponent += 1
    count = SIGNIFICANT_DIGITS
    while digits % 10 == 0:
        digits //= 10
        count -= 1
    return write_decimal(out, at, digits, count, exponent, -4)


@njit(cache=True, nogil=True)
def _write_log10(out: Any, at: Any, natural: Any) -> Any:
    return write_number(out, at, max(natural / _LN_10, LOG_ZERO))


@njit(cache=True, nogil=True)
def _enlarge(out: Any, used: Any, extra: Any) -> Any:
    larger = np.empty(2 * (used + extra), np.uint8)
    copy_bytes(out, 0, used, larger, 0)
    return larger


@njit(cache=True, nogil=True)
def write_lines(
    begin: Any, end: Any, path: Any, words: Any, first: Any, logp: Any, bow: Any, pool: Any, bounds: Any, longest: Any
) -> Any:
    """The lines of the nodes `begin` to `end` of one order; `path` is the path to the first of them.

    The bytes of word w are `pool[bounds[w]:bounds[w + 1]]`, at most `longest`. Nodes from `bow.size` on have no
    back-off weight.
    """
    n = path.size
    max_line = 2 * MAX_NUMBER_BYTES + n * (longest + 1) + 2
    out = np.empty(64 * (end - begin) + max_line, np.uint8)
    prefix = np.empty(n * (longest + 1), np.uint8)
    at, prefix_size, parent = 0, 0, -1
    for node in range(begin, end):
        if n == 1 and node in (PAD, MASK):
            continue
        path[n - 1] = node
        for depth in range(n - 2, -1, -1):
            while np.int64(first[path[depth] + 1]) <= path[depth + 1]:
                path[depth] += 1
        if n > 1 and path[n - 2] != parent:
            parent, prefix_size = path[n - 2], 0
            for depth in range(n - 1):
                word = words[path[depth]]
                prefix_size = copy_bytes(pool, bounds[word], bounds[word + 1], prefix, prefix_size)
                prefix[prefix_size] = SPACE
                prefix_size += 1
        if at + max_line > out.size:
            out = _enlarge(out, at, max_line)
        at = _write_log10(out, at, min(logp[node], 0.0))
        out[at] = TAB
        at = copy_bytes(prefix, 0, prefix_size, out, at + 1)
        at = copy_bytes(pool, bounds[words[node]], bounds[words[node] + 1], out, at)
        if node < bow.size:
            out[at] = TAB
            at = _write_log10(out, at + 1, bow[node])
        out[at] = NEWLINE
        at += 1
    return out[:at]
