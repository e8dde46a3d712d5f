"""Private copies of the rows that a block of text touches, and their changes brought back in order.

The copies lie in spare rows of the same table, so that kernels need not know of them.
"""

from __future__ import annotations

from typing import Any

from numba import float32, njit

from firth.prefetch import prefetch

_SOON = 8  # rows that are asked for ahead
_LINE = 16  # numbers in a line of cache


@njit(cache=True, nogil=True)
def localise(rows: Any, first: Any, slots: Any, touched: Any) -> Any:
    """Replaces rows by spare ones, numbered from `first` in the order in which they are met; returns how many.

    `touched` gets the rows that they stand for; `slots` has -1 for every row of the table, and is left so.
    """
    met = 0
    for place in range(rows.size):
        row = rows[place]
        if slots[row] < 0:
            slots[row] = first + met
            touched[met] = row
            met += 1
        rows[place] = slots[row]
    for place in range(met):
        slots[touched[place]] = -1
    return met


@njit(cache=True, nogil=True)
def copy_rows(table: Any, touched: Any, count: Any, stride: Any, first: Any) -> Any:
    """Copies rows to the spare ones from `first` on."""
    for place in range(count):
        _ask_ahead(table, touched, count, place, stride)
        source, target = touched[place] * stride, (first + place) * stride
        for column in range(stride):
            table[target + column] = table[source + column]


@njit(cache=True, nogil=True)
def count_lanes(touched: Any, count: Any, part: Any, parts: Any, lanes: Any) -> Any:
    """Adds one to the lanes of each row that is touched and this part's."""
    for place in range(count):
        if touched[place] % parts == part:
            lanes[touched[place]] += 1


@njit(cache=True, nogil=True)
def merge_rows(table: Any, touched: Any, count: Any, stride: Any, first: Any, part: Any, parts: Any, lanes: Any) -> Any:
    """Adds what one lane has changed to the rows that are this part's; each part can have its own thread.

    A row that k lanes have changed from x to y1, ... yk becomes y1 + ... + yk - (k - 1) x. `lanes` holds k before the
    first of them is merged, 0 afterwards.
    """
    for place in range(count):
        row = touched[place]
        if row % parts != part:
            continue
        _ask_ahead(table, touched, count, place, stride)
        source, target = (first + place) * stride, row * stride
        # The first takes (k - 1) x off; the others only add.
        factor = float32(1 - lanes[row]) if lanes[row] else float32(1.0)
        lanes[row] = 0
        if factor == 0:
            for column in range(stride):
                table[target + column] = table[source + column]
        else:
            for column in range(stride):
                table[target + column] = factor * table[target + column] + table[source + column]


@njit(cache=True, nogil=True)
def _ask_ahead(table: Any, touched: Any, count: Any, place: Any, stride: Any) -> Any:
    """Has a row that will be touched soon brought near."""
    if place + _SOON < count:
        for line in range(0, stride, _LINE):
            prefetch(table, touched[place + _SOON] * stride + line)
