"""Numba kernels behind `duplicates`: hashing text, min-wise signatures, and tables of 64-bit keys.

A *unit* is a space-separated word, or one character of Chinese, Japanese or Thai. A *window* is a run of units of fixed
weight. Arithmetic is modulo 2**64 unless stated otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_EMPTY = np.uint64(0)
_BYTE = np.uint64(0xFF)


@njit(cache=True, inline="always")
def _mix(state: Any, value: Any) -> Any:
    mixed = (state ^ value) * _MULTIPLIER
    return mixed ^ (mixed >> _HALF)


@njit(cache=True, inline="always")
def _is_space(code: Any) -> Any:
    if code < 0x85:
        return code <= 0x20 and (code >= 0x1C or 0x09 <= code <= 0x0D)
    return code in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000) or 0x2000 <= code <= 0x200A


@njit(cache=True, inline="always")
def _is_unspaced(code: Any) -> Any:
    """Whether a character belongs to a script without spaces between words, or to its punctuation."""
    if code < 0x0E00:
        return False
    return (
        code <= 0x0EFF  # Thai, Lao
        or 0x2E80 <= code <= 0x9FFF  # Chinese and Japanese, with their punctuation
        or 0xF900 <= code <= 0xFAFF
        or 0xFE30 <= code <= 0xFE4F
        or 0xFF00 <= code <= 0xFFEF
        or 0x20000 <= code <= 0x3FFFF
    )


@njit(cache=True)
def hash_units(codes: Any, split_unspaced: bool) -> Any:
    """Hash of each unit of a text of code points, whether it is a single character, and its line."""
    hashes = np.empty(len(codes), np.uint64)
    alone = np.empty(len(codes), np.bool_)
    lines = np.empty(len(codes), np.int32)
    count = 0
    line = 0
    word = _GOLDEN
    in_word = False
    for code in codes:
        space = _is_space(code)
        single = split_unspaced and not space and _is_unspaced(code)
        if in_word and (space or single):
            hashes[count], alone[count], lines[count] = word, False, line
            count += 1
            word, in_word = _GOLDEN, False
        if single:
            hashes[count], alone[count], lines[count] = _mix(_GOLDEN, np.uint64(code)), True, line
            count += 1
        elif not space:
            word, in_word = _mix(word, np.uint64(code)), True
        if code == 10:
            line += 1
    if in_word:
        hashes[count], alone[count], lines[count] = word, False, line
        count += 1
    return hashes[:count], alone[:count], lines[:count]


@njit(cache=True)
def hash_windows(codes: Any, word_weight: int, character_weight: int, weight: int, across: bool) -> Any:
    """Hash of the window from each unit; with `across` over lines, and a text shorter than a window is one."""
    hashes, alone, lines = hash_units(codes, True)
    windows = np.empty(len(hashes), np.uint64)
    count = 0
    for start in range(len(hashes)):
        reached = 0
        state = _GOLDEN
        end = start
        while reached < weight and end < len(hashes) and (across or lines[end] == lines[start]):
            reached += character_weight if alone[end] else word_weight
            state = _mix(state, hashes[end])
            end += 1
        if reached >= weight or (across and start == 0):
            windows[count] = state
            count += 1
    return windows[:count]


@njit(cache=True)
def lower_minima(minima: Any, windows: Any, factors: Any, offsets: Any) -> None:
    """Update `minima` with the minimum of `factor * window + offset` modulo 2**32 over the windows."""
    for window in windows:
        value = np.uint32(window >> _HALF)
        for i in range(len(minima)):
            candidate = np.uint32(factors[i] * value + offsets[i])
            minima[i] = min(minima[i], candidate)


@njit(cache=True, inline="always")
def _first_slot(key: Any, size: int) -> Any:
    # The high bits of the product; the size of a table is a power of two, at most 2**32.
    return np.int64(((key * _GOLDEN) >> _HALF) & np.uint64(size - 1))


@njit(cache=True)
def _slot_of(slots: Any, key: Any) -> Any:
    """The slot of `key`, or the free slot for it. The last slot is that of key 0, which means free elsewhere."""
    size = len(slots) - 1
    if key == _EMPTY:
        return size
    slot = _first_slot(key, size)
    while slots[slot] != _EMPTY and slots[slot] != key:
        slot = (slot + 1) & (size - 1)
    return slot


@njit(cache=True)
def insert_keys(slots: Any, keys: Any, capacity: int) -> Any:
    """Add at most `capacity` keys; returns which keys were not in the table."""
    is_new = np.zeros(len(keys), np.bool_)
    for i in range(len(keys)):
        slot = _slot_of(slots, keys[i])
        is_new[i] = slots[slot] == _EMPTY
        if is_new[i] and capacity > 0:
            slots[slot] = max(keys[i], np.uint64(1))
            capacity -= 1
    return is_new, capacity


@njit(cache=True)
def find_keys(slots: Any, keys: Any) -> Any:
    found = np.empty(len(keys), np.bool_)
    for i in range(len(keys)):
        found[i] = slots[_slot_of(slots, keys[i])] != _EMPTY
    return found


@njit(cache=True)
def move_keys(old: Any, new: Any) -> None:
    for key in old[:-1]:
        if key != _EMPTY:
            new[_slot_of(new, key)] = key
    new[-1] = old[-1]


@njit(cache=True)
def count_equal_bytes(a: Any, b: Any) -> int:
    count = 0
    for i in range(len(a)):
        difference = a[i] ^ b[i]
        for _ in range(8):
            if difference & _BYTE == _EMPTY:
                count += 1
            difference >>= np.uint64(8)
    return count


@njit(cache=True)
def _band_slot(bands: Any, signatures: Any, signature: Any, band: int) -> Any:
    """The slot of the first text with the same band, or the free slot for this text."""
    size = bands.shape[1]
    slot = _first_slot(signature[band], size)
    while bands[band, slot] > 0 and signatures[bands[band, slot] - 1, band] != signature[band]:
        slot = (slot + 1) & (size - 1)
    return slot


@njit(cache=True)
def find_signature(bands: Any, signatures: Any, signature: Any, min_agreement: int) -> int:
    """The index of the text that agrees in most bytes, at least `min_agreement`, or -1."""
    best, best_count = -1, min_agreement - 1
    for band in range(len(signature)):
        text = bands[band, _band_slot(bands, signatures, signature, band)] - 1
        if text >= 0 and text != best:
            count = count_equal_bytes(signatures[text], signature)
            if count > best_count:
                best, best_count = text, count
    return best


@njit(cache=True)
def store_signatures(bands: Any, signatures: Any, start: int, stop: int) -> None:
    """Insert texts `start` to `stop` into the table of each band, unless an earlier text has the same band."""
    for text in range(start, stop):
        for band in range(signatures.shape[1]):
            slot = _band_slot(bands, signatures, signatures[text], band)
            if bands[band, slot] == 0:
                bands[band, slot] = text + 1
