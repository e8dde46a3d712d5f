"""Numba kernels that choose words or spans of words to be hidden, and hide them."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._draw_kernels import below, draw, share

MASK_ID, FIRST_ID, UNKNOWN_ID = 4, 5, 1  # literal, because kernels are compiled; `masking` checks them


@njit(cache=True, nogil=True)
def is_text(token: Any) -> Any:
    """Whether an id is no special token: those that stand for unknown text are text."""
    return token >= FIRST_ID or token == UNKNOWN_ID


@njit(cache=True, nogil=True)
def _find_units(ids: Any, starts: Any, whole: Any, begins: Any, ends: Any) -> Any:
    """Where each word (or with `whole` false each token) of a row begins and ends; returns how many there are.

    A word ends where another begins or where a special token or padding stands, so none reaches over parts of the row.
    """
    count, inside = 0, False
    for place in range(ids.size):
        if not is_text(ids[place]):
            inside = False
            continue
        if not inside or not whole or starts[place]:
            begins[count] = place
            count += 1
        ends[count - 1] = place + 1
        inside = True
    return count


@njit(cache=True, nogil=True)
def _draw_lengths(units: Any, rate: Any, cumulative: Any, means: Any, key: Any, lengths: Any) -> Any:
    """Lengths of spans that cover `rate` of so many units in the mean; returns how many and what they cover."""
    longest = min(means.size, units)
    wanted = np.int64(rate * units / means[longest - 1] + share(draw(key, 0)))
    count, covered = 0, 0
    while count < wanted and covered < units:
        length = 1 + np.searchsorted(cumulative, share(draw(key, count + 1)), side="right")
        lengths[count] = min(length, longest, units - covered)
        covered += lengths[count]
        count += 1
    return count, covered


@njit(cache=True, nogil=True)
def _arrange(units: Any, lengths: Any, count: Any, covered: Any, key: Any, span_of: Any) -> None:
    """Writes which span each unit belongs to, -1 for none; all arrangements on a circle are equally likely.

    So each unit is covered with the same probability. A span that reaches over the end goes on at the beginning.
    """
    span_of[:units] = -1
    items = count + units - covered  # spans, and units between them
    place, span = below(draw(key, 0), units), 0
    for item in range(items):
        if span < count and share(draw(key, item + 1)) * (items - item) < count - span:
            for step in range(lengths[span]):
                span_of[(place + step) % units] = span
            place += lengths[span]
            span += 1
        else:
            place += 1


@njit(cache=True, nogil=True)
def choose_places(
    ids: Any, starts: Any, keys: Any, whole: Any, rate: Any, cumulative: Any, means: Any, places: Any, groups: Any
) -> Any:
    """Writes the chosen places, row after row, and the group of each; returns how many there are.

    `cumulative` has the probabilities that a span has at most 1, 2, ... units, all but the last, which is 1; `means`
    the mean length of spans that are cut to 1, 2, ... units. A group is a span, or a part of one that is cut by special
    tokens.
    """
    rows, width = ids.shape
    begins, ends = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    lengths, span_of = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    size, group = 0, -1
    for row in range(rows):
        units = _find_units(ids[row], starts[row], whole, begins, ends)
        if units == 0:
            continue
        count, covered = _draw_lengths(units, rate, cumulative, means, draw(keys[row], 0), lengths)
        _arrange(units, lengths, count, covered, draw(keys[row], 1), span_of)
        for unit in range(units):
            if span_of[unit] < 0:
                continue
            if unit == 0 or span_of[unit - 1] != span_of[unit] or ends[unit - 1] != begins[unit]:
                group += 1
            for place in range(begins[unit], ends[unit]):
                places[size] = row * width + place
                groups[size] = group
                size += 1
    return size


@njit(cache=True, nogil=True)
def hide_places(
    ids: Any, keys: Any, places: Any, groups: Any, alike: Any, mask: Any, random: Any, vocabulary: Any
) -> None:
    """Replaces the tokens of places by the mask, by a random token or not at all; with `alike` all of a group so."""
    width = ids.shape[1]
    first = np.int64(0)
    for index in range(places.size):
        if index == 0 or not alike or groups[index] != groups[index - 1]:
            first = places[index]
        row, place = places[index] // width, places[index] % width
        chance = share(draw(keys[row], 2 * (first % width)))
        if chance < mask:
            ids[row, place] = MASK_ID
        elif chance < mask + random and vocabulary > FIRST_ID:
            ids[row, place] = FIRST_ID + below(draw(keys[row], 2 * place + 1), vocabulary - FIRST_ID)
