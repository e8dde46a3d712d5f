"""Memory between steps: what one step frees the next one needs again."""

from __future__ import annotations

import ctypes

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of the GNU C library
_LARGEST = 32 << 20  # the most that the second may be


def keep_memory() -> bool:
    """Lets the process keep memory that is freed, as far as its C library can; tells whether it does.

    Otherwise arrays of some megabytes are given back to the system and fetched again many times in a step, and filling
    each page with zeros takes a tenth of the time of small networks. The most that is held at a time stays the same.
    """
    try:
        change = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(change(_MAP, _LARGEST)) and bool(change(_TRIM, 2**31 - 1))
