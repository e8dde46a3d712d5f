"""Numba kernel that exchanges the second segments of pairs."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_TRIES = 64  # sequences that are looked at for one that fits


@njit(cache=True, nogil=True)
def _swap(begins: Any, ends: Any, one: Any, other: Any, room: Any, labels: Any) -> None:
    """Exchanges two second segments; what does not fit into `room` is left out at the end."""
    begins[one, 1], begins[other, 1] = begins[other, 1], begins[one, 1]
    ends[one, 1], ends[other, 1] = ends[other, 1], ends[one, 1]
    for each in (one, other):
        left = room - (ends[each, 0] - begins[each, 0])
        ends[each, 1] = min(ends[each, 1], begins[each, 1] + left)
        labels[each] = 1


@njit(cache=True, nogil=True)
def exchange(begins: Any, ends: Any, order: Any, documents: Any, room: Any, labels: Any) -> None:
    """Exchanges the second segments of the sequences in `order`, two by two, and labels those 1.

    Each takes the next one in the order that is of another document and fits without loss; those that find none take
    one of another document, and last of all any. `documents` has the document of each sequence in the order.
    """
    free = np.ones(order.size, dtype=np.bool_)
    for strict in (2, 1, 0):
        for first in range(order.size):
            if not free[first]:
                continue
            one, tried = order[first], 0
            one_first, one_second = ends[one, 0] - begins[one, 0], ends[one, 1] - begins[one, 1]
            for second in range(first + 1, order.size):
                if not free[second]:
                    continue
                tried += 1
                if tried > _TRIES:
                    break
                other = order[second]
                other_first, other_second = ends[other, 0] - begins[other, 0], ends[other, 1] - begins[other, 1]
                fits = one_first + other_second <= room and other_first + one_second <= room
                if (documents[first] != documents[second] or strict == 0) and (fits or strict < 2):
                    _swap(begins, ends, one, other, room, labels)
                    free[first] = free[second] = False
                    break
