"""Numba kernels for the character n-grams of words.

Names: at = where the next number goes; place = position in bytes.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_BASIS, _PRIME, _LOW = np.uint64(2166136261), np.uint64(16777619), np.uint64(0xFFFFFFFF)
_SIGN = np.uint64(0xFFFFFF00)  # what a signed byte above 127 is extended with


@njit(cache=True, nogil=True)
def _goes_on(byte: Any) -> Any:
    """Whether a byte continues a character of UTF-8."""
    return byte & 0xC0 == 0x80


@njit(cache=True, nogil=True)
def _mix(value: Any, byte: Any) -> Any:
    """One step of FNV-1a over signed bytes."""
    extended = np.uint64(byte) | _SIGN if byte > 127 else np.uint64(byte)
    return ((value ^ extended) * _PRIME) & _LOW


@njit(cache=True, nogil=True)
def hash_ngrams(data: Any, bounds: Any, starts: Any, least: Any, most: Any, buckets: Any, rows: Any) -> Any:
    """Fills `rows` with the bucket of each n-gram of `least` to `most` characters of the words in `data`.

    `bounds` are the words' places in `data`, `starts` those of their n-grams in `rows`. Single characters at either
    end, which are the signs around a word, are left out.
    """
    for word in range(bounds.size - 1):
        at, begin, end = starts[word], bounds[word], bounds[word + 1]
        if starts[word + 1] == at:
            continue
        for first in range(begin, end):
            if _goes_on(data[first]):
                continue
            value, place, n = _BASIS, first, 0
            while place < end and n < most:
                value = _mix(value, data[place])
                place += 1
                while place < end and _goes_on(data[place]):
                    value = _mix(value, data[place])
                    place += 1
                n += 1
                if n >= least and (n > 1 or (first > begin and place < end)):
                    rows[at] = value % buckets
                    at += 1


@njit(cache=True, nogil=True)
def mean_rows(own: Any, ngrams: Any, starts: Any, rows: Any, out: Any) -> Any:
    """Fills `out` with the mean of each word's own row and the rows of its n-grams."""
    for word in range(own.shape[0]):
        for column in range(own.shape[1]):
            out[word, column] = own[word, column]
        for place in range(starts[word], starts[word + 1]):
            row = rows[place]
            for column in range(own.shape[1]):
                out[word, column] += ngrams[row, column]
        share = np.float32(1.0 / (1 + starts[word + 1] - starts[word]))
        for column in range(own.shape[1]):
            out[word, column] *= share
