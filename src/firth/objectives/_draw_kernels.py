"""Numba kernels that draw random numbers which are a function of a key and a number, never of what was drawn before."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def draw(key: Any, number: Any) -> Any:
    """64 random bits (splitmix64: Steele, Lea and Flood 2014)."""
    bits = np.uint64(key) + (np.uint64(number) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True, nogil=True)
def share(bits: Any) -> Any:
    """Random bits as a number from 0 to 1, which it never reaches."""
    return np.float64(bits >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def below(bits: Any, limit: Any) -> Any:
    """Random bits as a whole number from 0 to `limit`, which it never reaches and which is under 2^32."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def draw_all(key: Any, numbers: Any) -> Any:
    """64 random bits for each number."""
    found = np.empty(numbers.size, dtype=np.uint64)
    for index in range(numbers.size):
        found[index] = draw(key, numbers[index])
    return found
