"""Numba kernels that join the words of phrases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _find(key: Any, keys: Any, low: Any, high: Any) -> Any:
    """Where `key` stands among the sorted `keys[low:high]`, or -1."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < end and keys[low] == key else -1


@njit(cache=True, nogil=True)
def join_pairs(
    ids: Any, bounds: Any, keys: Any, low: Any, high: Any, opens: Any, first: Any, out: Any, ends: Any
) -> Any:
    """Writes sentences with the pairs `keys[low:high]` joined, greedily from the left; returns how many ids there are.

    Pair number i is `left << 32 | right` and becomes the id `first + i`. `opens` says which ids are the left of some
    pair. `ends` takes the place where each sentence ends. `out` may be `ids`: writing never overtakes reading.
    """
    size = np.int64(0)
    for sentence in range(bounds.size - 1):
        place, end = np.int64(bounds[sentence]), np.int64(bounds[sentence + 1])
        while place < end:
            left = np.int64(ids[place])
            place += 1
            if opens[left] and place < end:
                pair = _find((left << 32) | np.int64(ids[place]), keys, low, high)
                if pair >= 0:
                    left = first + pair
                    place += 1
            out[size] = left
            size += 1
        ends[sentence] = size
    return size
