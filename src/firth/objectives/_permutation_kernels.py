"""Numba kernels of permutation language modelling: which tokens are predicted, and in what order (Yang et al. 2019)."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._noise_kernels import below, draw, uniform

TOKENS, WORD_STARTS, WORDS = 0, 1, 2  # what a span is made of


@njit(cache=True, nogil=True)
def _find_units(candidates: Any, starts: Any, whole: Any, begins: Any, ends: Any) -> Any:
    """Write where each word (or token, unless `whole`) of the candidates of a row begins and ends; their number."""
    count, inside = 0, False
    for position in range(candidates.size):
        if candidates[position]:
            if not inside or not whole or starts[position]:
                begins[count] = position
                count += 1
            ends[count - 1] = position + 1
        inside = candidates[position]
    return count


@njit(cache=True, nogil=True)
def _choose_spans(
    units: Any, is_start: Any, seed: Any, cumulative: Any, context: Any, span_of: Any, begins_word: Any
) -> None:
    """Write the span of each unit of a circle, -1 for none.

    From a random unit on, a length n is drawn, and where a span of n is in the next n x context units. The rest of the
    circle has a span of 1 / context of its units, rounded up or down randomly. With `begins_word` a span is moved on to
    the next begin of a word.
    """
    span_of[:units] = -1
    turn = below(draw(seed, 0), units)
    at, span = 0, 0
    while at < units:
        size = 1 + np.searchsorted(cumulative, uniform(draw(seed, 3 * span + 1)), side="right")
        window = size * context
        if at + window > units:
            window = units - at
            size = np.int64(window / context + uniform(draw(seed, 3 * span + 2)))
        begin = turn + at + (below(draw(seed, 3 * span + 3), window - size + 1) if size > 0 else 0)
        if begins_word:
            moved = 0
            while moved < units and not is_start[begin % units]:
                begin += 1
                moved += 1
        for step in range(size):
            span_of[(begin + step) % units] = span
        at += window
        span += 1


@njit(cache=True, nogil=True)
def choose_targets(
    candidates: Any, starts: Any, seeds: Any, cumulative: Any, context: Any, unit: Any, positions: Any, groups: Any
) -> Any:
    """Write the positions of the flattened batch that are predicted, and the span of each; return their number."""
    rows, width = candidates.shape
    begins, ends = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    span_of = np.empty(width, dtype=np.int64)
    size, group = 0, -1
    for row in range(rows):
        units = _find_units(candidates[row], starts[row], unit == WORDS, begins, ends)
        if units == 0:
            continue
        is_start = starts[row][begins[:units]]
        _choose_spans(units, is_start, draw(seeds[row], 0), cumulative, context, span_of, unit == WORD_STARTS)
        for index in range(units):
            if span_of[index] < 0:
                continue
            if index == 0 or ends[index - 1] != begins[index] or span_of[index - 1] != span_of[index]:
                group += 1
            for position in range(begins[index], ends[index]):
                positions[size], groups[size] = row * width + position, group
                size += 1
    return size


@njit(cache=True, nogil=True)
def order_positions(is_late: Any, seeds: Any, boundary: Any, order: Any) -> None:
    """Write the order of attention of each row: that of the first `boundary` positions, then that of the rest.

    In each part those that are not late have the same order, before the late ones, which are permuted randomly.
    """
    rows, width = is_late.shape
    late = np.empty(width, dtype=np.int64)
    for row in range(rows):
        seed = draw(seeds[row], 1)
        for begin, end, base in ((0, boundary, 0), (boundary, width, width + 1)):
            count = 0
            for position in range(begin, end):
                order[row, position] = base
                if is_late[row, position]:
                    late[count] = position
                    count += 1
            for index in range(count):
                other = index + below(draw(seed, base + index), count - index)
                late[index], late[other] = late[other], late[index]
                order[row, late[index]] = base + 1 + index
