"""Private copies of the rows that a block of text touches, and their changes brought back in order.

The copies lie in spare rows of the same table, so that kernels need not know of them.
"""

from __future__ import annotations

from math import expm1
from typing import Any

from numba import float32, float64, njit

from firth.prefetch import prefetch

_SOON = 8  # rows that are asked for ahead
_NO_PULL = 1e-9
_LINE = 16  # numbers in a line of cache


@njit(cache=True, nogil=True)
def localise(rows: Any, first: Any, slots: Any, touched: Any, often: Any) -> Any:
    """Replaces rows by spare ones, numbered from `first` in the order in which they are met; returns how many.

    `touched` gets the rows that they stand for, `often` at how many places each stands; `slots` has -1 for every row of
    the table, and is left so.
    """
    met = 0
    for place in range(rows.size):
        row = rows[place]
        if slots[row] < 0:
            slots[row] = first + met
            touched[met] = row
            often[met] = 0
            met += 1
        rows[place] = slots[row]
        often[slots[row] - first] += 1
    for place in range(met):
        slots[touched[place]] = -1
    return met


@njit(cache=True, nogil=True)
def copy_rows(table: Any, touched: Any, count: Any, stride: Any, first: Any) -> Any:
    """Copies rows to the spare ones from `first` on."""
    for place in range(count):
        _ask_ahead(table, touched, count, place, stride)
        source, target = touched[place] * stride, (first + place) * stride
        table[target : target + stride] = table[source : source + stride]


@njit(cache=True, nogil=True)
def count_lanes(touched: Any, often: Any, count: Any, part: Any, parts: Any, lanes: Any, places: Any) -> Any:
    """Adds up for each row that is touched and this part's how many lanes touch it, and at how many places."""
    for place in range(count):
        row = touched[place]
        if row % parts == part:
            lanes[row] += 1
            places[row] += often[place]


@njit(cache=True, nogil=True)
def share_of_changes(lanes: Any, places: Any, rate: Any) -> Any:
    """How much of each lane's change counts, if so many lanes have touched a row at so many places in all.

    A row that each of n steps takes the share r of its way to where it is pulled has gone 1 - exp(-n r) of it. Lanes
    that start together all go the first part of the same way; one after the other they would have gone less each:
    (1 - exp(-k z)) / (k (1 - exp(-z))) for k lanes of z = n r. That is 1 for rare rows and 1 / k for frequent ones.
    """
    pull = rate * places / lanes
    return expm1(-lanes * pull) / (lanes * expm1(-pull)) if pull > _NO_PULL else 1.0


@njit(cache=True, nogil=True)
def merge_rows(
    table: Any,
    touched: Any,
    count: Any,
    stride: Any,
    first: Any,
    part: Any,
    parts: Any,
    lanes: Any,
    places: Any,
    rate: Any,
) -> Any:
    """Adds what one lane has changed to the rows that are this part's; each part can have its own thread.

    A row that k lanes have changed from x to y1, ... yk becomes x + f (y1 - x) + ... + f (yk - x), where f is the share
    that counts. `lanes` and `places` hold the sums over all lanes; the first that is merged clears `lanes` and leaves f
    in `places`.
    """
    for place in range(count):
        row = touched[place]
        if row % parts != part:
            continue
        _ask_ahead(table, touched, count, place, stride)
        source, target = (first + place) * stride, row * stride
        if lanes[row] == 1:
            table[target : target + stride] = table[source : source + stride]
        else:
            rest = float32(1.0)
            if lanes[row]:  # the first of them takes the old row off for all
                several = float64(lanes[row])
                places[row] = share_of_changes(several, places[row], rate)
                rest = float32(1.0 - several * places[row])
            share = float32(places[row])
            old, new = table[target : target + stride], table[source : source + stride]
            for column in range(stride):
                old[column] = rest * old[column] + share * new[column]
        lanes[row] = 0


@njit(cache=True, nogil=True)
def clear_places(touched: Any, count: Any, part: Any, parts: Any, places: Any) -> Any:
    """Sets the sums of this part's rows back to zero."""
    for place in range(count):
        if touched[place] % parts == part:
            places[touched[place]] = 0.0


@njit(cache=True, nogil=True)
def _ask_ahead(table: Any, touched: Any, count: Any, place: Any, stride: Any) -> Any:
    """Has a row that will be touched soon brought near."""
    if place + _SOON < count:
        for line in range(0, stride, _LINE):
            prefetch(table, touched[place + _SOON] * stride + line)
