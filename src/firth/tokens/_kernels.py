"""Numba kernels that cut text into chunks and look each one up in a table of chunks met before.

A chunk is a run of bytes up to the next space, line end or word break; the spaces before it belong to it. Where the
tokenizer allows it, punctuation is cut off too. Chunks are compared byte by byte after their hashes agree, so a
collision costs time and never a wrong id.

Names: entry = number of a distinct chunk; slot = place in the open-addressing table that holds entry + 1, or 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

SPACE, LINE_END, BREAK = 32, 10, 0
OTHER, WORD, MARK, JOINER, LONE_MARK, LONE_JOINER = range(6)
"""Kinds of bytes: never cut at; letters and digits; punctuation; punctuation that may stand inside a word; and the last
two again where punctuation is cut off from other punctuation as well."""


@njit(cache=True, nogil=True)
def _hash(data: Any, begin: Any, end: Any) -> Any:
    """FNV-1a with a final mix, so that the low bits depend on every byte."""
    value = np.uint64(14695981039346656037)
    for position in range(begin, end):
        value = (value ^ np.uint64(data[position])) * np.uint64(1099511628211)
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True)
def _may_cut(data: Any, place: Any, kinds: Any) -> Any:
    """Whether a word ends before `place` and tokens do not reach across: only between two plain ASCII bytes."""
    left, right = kinds[data[place - 1]], kinds[data[place]]
    if left == OTHER or right == OTHER or (left == WORD and right == WORD):
        return False
    if left == WORD and right in (JOINER, LONE_JOINER):  # a word ends here unless it goes on behind
        return place + 1 == data.size or data[place + 1] <= SPACE or kinds[data[place + 1]] >= MARK
    if right == WORD and left in (JOINER, LONE_JOINER):
        return place < 2 or data[place - 2] <= SPACE or kinds[data[place - 2]] >= MARK
    return left == WORD or right == WORD or (left >= LONE_MARK and right >= LONE_MARK)


@njit(cache=True, nogil=True)
def _chunk_end(data: Any, begin: Any, whole: Any, kinds: Any) -> Any:
    end = begin + 1
    while end < data.size and data[end] == SPACE and data[end - 1] == SPACE:
        end += 1
    while end < data.size and data[end] != LINE_END:
        byte = data[end]
        if not whole and (byte in (SPACE, BREAK) or (kinds[byte] != OTHER and _may_cut(data, end, kinds))):
            break
        end += 1
    return end


@njit(cache=True, nogil=True)
def _same(data: Any, begin: Any, end: Any, pool: Any, first: Any, last: Any) -> Any:
    if last - first != end - begin:
        return False
    for offset in range(end - begin):  # noqa: SIM110 (Numba compiles the loop better)
        if data[begin + offset] != pool[first + offset]:
            return False
    return True


@njit(cache=True, nogil=True)
def look_up(
    data: Any, whole: Any, kinds: Any, slots: Any, hashes: Any, bounds: Any, pool: Any, entries: Any, out: Any
) -> Any:
    """Fills `out` with the entry of each chunk of `data` and -1 at each line end; new chunks are added.

    `whole[s]` says that line s is one chunk, spaces and breaks included. `kinds` gives the kind of each byte; spaces
    are dropped if theirs is WORD. `bounds[e]` is where entry e begins in `pool`. Returns the number of values written
    and the new number of entries; the caller has made room for both.
    """
    mask = np.uint64(slots.size - 1)
    written, line, begin = 0, 0, 0
    while begin < data.size:
        if data[begin] == LINE_END:
            out[written] = -1
            written += 1
            line += 1
            begin += 1
            continue
        if not whole[line] and (data[begin] == BREAK or (data[begin] == SPACE and kinds[SPACE] == WORD)):
            begin += 1
            continue
        end = _chunk_end(data, begin, whole[line], kinds)
        value = _hash(data, begin, end)
        slot = value & mask
        while True:
            entry = slots[slot] - 1
            if entry < 0:
                entry = entries
                slots[slot] = entry + 1
                hashes[entry] = value
                pool[bounds[entry] : bounds[entry] + end - begin] = data[begin:end]
                bounds[entry + 1] = bounds[entry] + end - begin
                entries += 1
                break
            if hashes[entry] == value and _same(data, begin, end, pool, bounds[entry], bounds[entry + 1]):
                break
            slot = (slot + np.uint64(1)) & mask
        out[written] = entry
        written += 1
        begin = end
    return written, entries


@njit(cache=True, nogil=True)
def refill(slots: Any, hashes: Any, entries: Any) -> Any:
    """Puts the first `entries` entries into an empty, larger table."""
    mask = np.uint64(slots.size - 1)
    for entry in range(entries):
        slot = hashes[entry] & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = entry + 1


@njit(cache=True, nogil=True)
def count_tokens(chunks: Any, bounds: Any) -> Any:
    """The number of tokens that `chunks` stand for; `bounds[e]` is where entry e's tokens begin."""
    total = 0
    for chunk in chunks:
        if chunk >= 0:
            total += bounds[chunk + 1] - bounds[chunk]
    return total


@njit(cache=True, nogil=True)
def emit(chunks: Any, bounds: Any, ids: Any, starts: Any, out_ids: Any, out_starts: Any, lengths: Any) -> Any:
    """Writes the tokens of all chunks one after the other, and the number of tokens of each line."""
    written, line, begin = 0, 0, 0
    for chunk in chunks:
        if chunk < 0:
            lengths[line] = written - begin
            line += 1
            begin = written
            continue
        for place in range(bounds[chunk], bounds[chunk + 1]):
            out_ids[written] = ids[place]
            out_starts[written] = starts[place]
            written += 1
