"""Numba kernels that split text into chunks, number the distinct ones, and write out their tokens.

A chunk is a run of bytes up to the next space, newline or word break; the spaces before it belong to it. Where the
tokenizer allows it, punctuation is split off too. Text is read eight bytes at a time, as one number; most words are no
longer. Chunks of the same hash are compared in full, so a collision costs time and never a wrong id.

Names: entry = number of a distinct chunk; slot = index into the open-addressing table, which contains 0 or the upper
half of a chunk's hash and its entry + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

SPACE, LINE_END, BREAK = 32, 10, 0
OTHER, WORD, PUNCTUATION, JOINER, LONE_PUNCTUATION, LONE_JOINER = range(6)
"""Kinds of bytes: never split at; letters and digits; punctuation; punctuation inside words; and the last two again
where punctuation is split from adjacent punctuation."""

_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_ABOVE_SPACE = np.uint64(0x2121212121212121)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0x00000000FFFFFFFF)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def eight_bytes(data: Any, position: Any) -> Any:
    """The eight bytes from `position` on as one number, the first one lowest; zeros beyond the end."""
    if position + 8 > data.size:
        value = np.uint64(0)
        for offset in range(data.size - position):
            value |= np.uint64(data[position + offset]) << np.uint64(8 * offset)
        return value
    at = np.uint64(position)  # unsigned, so that the compiler emits a single load
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@njit(cache=True, nogil=True, inline="always")
def _hash(data: Any, begin: Any, end: Any) -> Any:
    """Multiply and fold, eight bytes a step. A step is invertible, so short chunks of one size never collide."""
    value = np.uint64(0)
    for position in range(begin, end, 8):
        word = eight_bytes(data, position)
        if end - position < 8:
            word &= (np.uint64(1) << np.uint64(8 * (end - position))) - np.uint64(1)
        value = (value ^ word) * _GOLDEN
        value ^= value >> _HALF
    return value


@njit(cache=True, nogil=True, inline="always")
def _next_separator(data: Any, position: Any) -> Any:
    """The position of the next space, newline or word break from `position` on, or the end."""
    while True:
        word = eight_bytes(data, position)
        low = (word - _ABOVE_SPACE) & ~word & _HIGH_BITS  # the lowest bit marks the first byte up to a space
        if low == 0:
            position += 8
            continue
        below = (low & (~low + np.uint64(1))) - np.uint64(1)
        position += np.int64((below & _ONES) * _ONES >> np.uint64(56)) - 1
        if position >= data.size or data[position] in (SPACE, LINE_END, BREAK):
            return position
        position += 1  # a tab or the like


@njit(cache=True, nogil=True)
def _may_split(data: Any, position: Any, kinds: Any) -> Any:
    """Whether a word ends before `position` and no token crosses it: only between two plain ASCII bytes."""
    left, right = kinds[data[position - 1]], kinds[data[position]]
    if left == OTHER or right == OTHER or (left == WORD and right == WORD):
        return False
    if left == WORD and right in (JOINER, LONE_JOINER):  # a word ends here unless word characters follow
        return position + 1 == data.size or data[position + 1] <= SPACE or kinds[data[position + 1]] >= PUNCTUATION
    if right == WORD and left in (JOINER, LONE_JOINER):
        return position < 2 or data[position - 2] <= SPACE or kinds[data[position - 2]] >= PUNCTUATION
    return left == WORD or right == WORD or (left >= LONE_PUNCTUATION and right >= LONE_PUNCTUATION)


@njit(cache=True, nogil=True)
def _word_end(data: Any, position: Any, kinds: Any) -> Any:
    if position == data.size or data[position] in (SPACE, LINE_END, BREAK):
        return position
    position += 1
    while position < data.size and data[position] not in (SPACE, LINE_END, BREAK):
        if not (kinds[data[position]] == WORD and kinds[data[position - 1]] == WORD) and _may_split(
            data, position, kinds
        ):
            break
        position += 1
    return position


@njit(cache=True, nogil=True)
def _same(data: Any, begin: Any, size: Any, pool: Any, first: Any) -> Any:
    for offset in range(0, size - 7, 8):
        if eight_bytes(data, begin + offset) != eight_bytes(pool, first + offset):
            return False
    for offset in range(size & ~7, size):  # noqa: SIM110 (Numba compiles the loop better)
        if data[begin + offset] != pool[first + offset]:
            return False
    return True


@njit(cache=True, nogil=True)
def look_up(
    data: Any, whole: Any, kinds: Any, splits_punctuation: Any, slots: Any, hashes: Any, bounds: Any, pool: Any,
    entries: Any, begin: Any, line: Any, written: Any, out: Any,
) -> Any:  # fmt: skip
    """Fill `out` with the entry of each chunk of `data` and -1 at each newline, adding new chunks.

    `whole[s]`: line s is one chunk, spaces and breaks included. `kinds`: the kind of each byte; spaces are dropped if
    theirs is WORD. `splits_punctuation`: whether any kind is split off. `bounds[e]`: offset of entry e in `pool`, where
    it ends with a newline. Returns the state to continue from (entries, begin, line, written) at the end of `data`, or
    at a chunk for which there is no capacity.
    """
    mask = np.uint64(slots.size - 1)
    drop = kinds[SPACE] == WORD
    while begin < data.size:
        if data[begin] == LINE_END:
            out[written] = -1
            written += 1
            line += 1
            begin += 1
            continue
        end = begin
        if whole[line]:
            while end < data.size and data[end] != LINE_END:
                end += 1
        else:
            if data[begin] == BREAK or (drop and data[begin] == SPACE):
                begin += 1
                continue
            while end < data.size and data[end] == SPACE:
                end += 1
            end = _word_end(data, end, kinds) if splits_punctuation else _next_separator(data, end)
        size = end - begin
        value = _hash(data, begin, end)
        slot = value & mask
        while True:
            held = slots[slot]
            entry = np.int64(held & _LOWER) - 1
            if entry < 0:
                break
            if (
                (held ^ value) & _UPPER == 0
                and hashes[entry] == value
                and bounds[entry + 1] - bounds[entry] == size + 1
                and (size <= 8 or _same(data, begin, size, pool, bounds[entry]))  # short hashes never collide
            ):
                break
            slot = (slot + np.uint64(1)) & mask
        if entry < 0:
            entry, first = entries, bounds[entries]
            if entry == hashes.size or first + size >= pool.size:
                break
            slots[slot] = (value & _UPPER) | np.uint64(entry + 1)
            hashes[entry] = value
            pool[first : first + size] = data[begin:end]
            pool[first + size] = LINE_END
            bounds[entry + 1] = first + size + 1
            entries += 1
        out[written] = entry
        written += 1
        begin = end
    return entries, begin, line, written


@njit(cache=True, nogil=True)
def refill(slots: Any, hashes: Any, entries: Any) -> Any:
    mask = np.uint64(slots.size - 1)
    for entry in range(entries):
        slot = hashes[entry] & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = (hashes[entry] & _UPPER) | np.uint64(entry + 1)


@njit(cache=True, nogil=True)
def renumber(chunks: Any, numbers: Any, counts: Any, out: Any) -> Any:
    """Write the number of each chunk and count it; newlines (-1) are copied."""
    for position in range(chunks.size):
        chunk = chunks[position]
        if chunk >= 0:
            chunk = numbers[chunk]
            counts[chunk] += 1
        out[position] = chunk


@njit(cache=True, nogil=True)
def count_tokens(chunks: Any, bounds: Any) -> Any:
    """The total number of tokens of `chunks`; `bounds[e]` is the offset of entry e's tokens."""
    total = 0
    for chunk in chunks:
        if chunk >= 0:
            total += bounds[chunk + 1] - bounds[chunk]
    return total


@njit(cache=True, nogil=True)
def sum_by_line(chunks: Any, values: Any, out: Any) -> Any:
    """Write the sum of the values of the chunks of each line."""
    line, total = 0, 0
    for chunk in chunks:
        if chunk < 0:
            out[line] = total
            line += 1
            total = 0
        else:
            total += values[chunk]


@njit(cache=True, nogil=True)
def emit(chunks: Any, bounds: Any, ids: Any, starts: Any, out_ids: Any, out_starts: Any, lengths: Any) -> Any:
    """Write the concatenated tokens of all chunks, and the number of tokens of each line."""
    written, line, begin = 0, 0, 0
    for chunk in chunks:
        if chunk < 0:
            lengths[line] = written - begin
            line += 1
            begin = written
            continue
        for position in range(bounds[chunk], bounds[chunk + 1]):
            out_ids[written] = ids[position]
            out_starts[written] = starts[position]
            written += 1
