"""Numba kernels of character n-grams."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FNV_BASIS, _PRIME, _LOW = np.uint64(2166136261), np.uint64(16777619), np.uint64(0xFFFFFFFF)
_SIGN = np.uint64(0xFFFFFF00)  # sign extension of bytes above 127


@njit(cache=True, nogil=True)
def _is_continuation(byte: Any) -> Any:
    return byte & 0xC0 == 0x80


@njit(cache=True, nogil=True)
def fnv1a(value: Any, byte: Any) -> Any:
    """One step of FNV-1a over signed bytes."""
    extended = np.uint64(byte) | _SIGN if byte > 127 else np.uint64(byte)
    return ((value ^ extended) * _PRIME) & _LOW


@njit(cache=True, nogil=True)
def hash_ngrams(data: Any, bounds: Any, starts: Any, min_n: Any, max_n: Any, buckets: Any, rows: Any) -> Any:
    """Fills `rows` with the bucket of each n-gram of `min_n` to `max_n` characters of the words in `data`.

    `bounds` are the words' bounds in `data`, `starts` those of their n-grams in `rows`. Single characters at either
    end, which are the padding, are skipped.
    """
    for word in range(bounds.size - 1):
        index, begin, end = starts[word], bounds[word], bounds[word + 1]
        if starts[word + 1] == index:
            continue
        for first in range(begin, end):
            if _is_continuation(data[first]):
                continue
            value, position, n = FNV_BASIS, first, 0
            while position < end and n < max_n:
                value = fnv1a(value, data[position])
                position += 1
                while position < end and _is_continuation(data[position]):
                    value = fnv1a(value, data[position])
                    position += 1
                n += 1
                if n >= min_n and (n > 1 or (first > begin and position < end)):
                    rows[index] = value % buckets
                    index += 1


@njit(cache=True, nogil=True)
def mean_rows(own: Any, ngrams: Any, starts: Any, rows: Any, out: Any) -> Any:
    """Fills `out` with the mean of each word's own row and the rows of its n-grams."""
    for word in range(own.shape[0]):
        for column in range(own.shape[1]):
            out[word, column] = own[word, column]
        for position in range(starts[word], starts[word + 1]):
            row = rows[position]
            for column in range(own.shape[1]):
                out[word, column] += ngrams[row, column]
        scale = np.float32(1.0 / (1 + starts[word + 1] - starts[word]))
        for column in range(own.shape[1]):
            out[word, column] *= scale
