"""Numba kernels of the noise of objectives: random numbers, masks, negative samples and exchanged segments."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def draw(seed: Any, index: Any) -> Any:
    """64 random bits (splitmix64: Steele, Lea and Flood 2014)."""
    bits = np.uint64(seed) + (np.uint64(index) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True, nogil=True)
def uniform(bits: Any) -> Any:
    """Random bits as a float in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def below(bits: Any, limit: Any) -> Any:
    """Random bits as an integer in [0, limit), where the limit is below 2^32."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def draw_all(seed: Any, indices: Any) -> Any:
    """64 random bits for each index."""
    found = np.empty(indices.size, dtype=np.uint64)
    for i in range(indices.size):
        found[i] = draw(seed, indices[i])
    return found


@njit(cache=True, nogil=True)
def uniforms_at(seeds: Any, positions: Any, width: Any) -> Any:
    """A float in [0, 1) for each position of a flattened batch, drawn by the seed of its row."""
    found = np.empty(positions.size, dtype=np.float64)
    for i in range(positions.size):
        found[i] = uniform(draw(seeds[positions[i] // width], positions[i] % width))
    return found


MASK_ID, FIRST_ID, UNKNOWN_ID = 4, 5, 1  # literal, because kernels are compiled; `masking` checks them


@njit(cache=True, nogil=True)
def is_text(token: Any) -> Any:
    """Whether an id is not special; the id of unknown text is text."""
    return token >= FIRST_ID or token == UNKNOWN_ID


@njit(cache=True, nogil=True)
def _find_units(ids: Any, starts: Any, whole: Any, begins: Any, ends: Any) -> Any:
    """Write where each word (or token, unless `whole`) of a row begins and ends; return their number.

    A word ends where another begins or at a special token or padding, so none crosses sequences.
    """
    count, inside = 0, False
    for position in range(ids.size):
        if not is_text(ids[position]):
            inside = False
            continue
        if not inside or not whole or starts[position]:
            begins[count] = position
            count += 1
        ends[count - 1] = position + 1
        inside = True
    return count


@njit(cache=True, nogil=True)
def _draw_lengths(units: Any, rate: Any, cumulative: Any, means: Any, seed: Any, lengths: Any) -> Any:
    """Draw lengths of spans that cover `rate` of the units in expectation; return their number and sum."""
    longest = min(means.size, units)
    wanted = np.int64(rate * units / means[longest - 1] + uniform(draw(seed, 0)))
    count, covered = 0, 0
    while count < wanted and covered < units:
        length = 1 + np.searchsorted(cumulative, uniform(draw(seed, count + 1)), side="right")
        lengths[count] = min(length, longest, units - covered)
        covered += lengths[count]
        count += 1
    return count, covered


@njit(cache=True, nogil=True)
def _arrange(units: Any, lengths: Any, count: Any, covered: Any, seed: Any, span_of: Any) -> None:
    """Write the span of each unit, -1 for none; all arrangements on a circle are equally likely.

    So each unit is covered with the same probability. A span that crosses the end continues at the beginning.
    """
    span_of[:units] = -1
    items = count + units - covered  # spans, and units between them
    position, span = below(draw(seed, 0), units), 0
    for item in range(items):
        if span < count and uniform(draw(seed, item + 1)) * (items - item) < count - span:
            for step in range(lengths[span]):
                span_of[(position + step) % units] = span
            position += lengths[span]
            span += 1
        else:
            position += 1


@njit(cache=True, nogil=True)
def choose_positions(
    ids: Any, starts: Any, seeds: Any, whole: Any, rate: Any, cumulative: Any, means: Any, positions: Any, groups: Any
) -> Any:
    """Write the chosen positions of the flattened batch and the group of each; return their number.

    `cumulative` has the probabilities that a span has at most 1, 2, ... units, without the last, which is 1; `means`
    the mean length of spans truncated to 1, 2, ... units. A group is a span, or a part of one split by special tokens.
    """
    rows, width = ids.shape
    begins, ends = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    lengths, span_of = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    size, group = 0, -1
    for row in range(rows):
        units = _find_units(ids[row], starts[row], whole, begins, ends)
        if units == 0:
            continue
        count, covered = _draw_lengths(units, rate, cumulative, means, draw(seeds[row], 0), lengths)
        _arrange(units, lengths, count, covered, draw(seeds[row], 1), span_of)
        for unit in range(units):
            if span_of[unit] < 0:
                continue
            if unit == 0 or span_of[unit - 1] != span_of[unit] or ends[unit - 1] != begins[unit]:
                group += 1
            for position in range(begins[unit], ends[unit]):
                positions[size] = row * width + position
                groups[size] = group
                size += 1
    return size


@njit(cache=True, nogil=True)
def mask_tokens(
    ids: Any, seeds: Any, positions: Any, groups: Any, by_group: Any, mask: Any, random: Any, vocabulary: Any
) -> None:
    """Replace tokens by the mask or a random token, or keep them; with `by_group` all of a group by_group."""
    width = ids.shape[1]
    first = np.int64(0)
    for index in range(positions.size):
        if index == 0 or not by_group or groups[index] != groups[index - 1]:
            first = positions[index]
        row, position = positions[index] // width, positions[index] % width
        drawn = uniform(draw(seeds[row], 2 * (first % width)))
        if drawn < mask:
            ids[row, position] = MASK_ID
        elif drawn < mask + random and vocabulary > FIRST_ID:
            ids[row, position] = FIRST_ID + below(draw(seeds[row], 2 * position + 1), vocabulary - FIRST_ID)


@njit(cache=True, nogil=True)
def choose_middles(ids: Any, seeds: Any, step: Any, vocabulary: Any) -> Any:
    """Every `step`-th position of each row, from a random one on, if it is text; and a negative sample for each.

    Negative samples are drawn from all words but the true one.
    """
    rows, width = ids.shape
    positions, words = np.empty(ids.size, dtype=np.int64), np.empty(ids.size, dtype=np.int64)
    size = 0
    for row in range(rows):
        for position in range(below(draw(seeds[row], 0), step), width, step):
            token = ids[row, position]
            known = token >= FIRST_ID
            choices = vocabulary - FIRST_ID - (1 if known else 0)
            if not is_text(token) or choices < 1:
                continue
            word = FIRST_ID + below(draw(seeds[row], position + 1), choices)
            positions[size], words[size] = row * width + position, word + (1 if known and word >= token else 0)
            size += 1
    return positions[:size].copy(), words[:size].copy()


_TRIES = 64  # sequences compared to find one that fits


@njit(cache=True, nogil=True)
def _swap(starts: Any, ends: Any, one: Any, other: Any, max_tokens: Any, labels: Any) -> None:
    """Exchange two second segments; truncate them to `max_tokens` of the sequence."""
    starts[one, 1], starts[other, 1] = starts[other, 1], starts[one, 1]
    ends[one, 1], ends[other, 1] = ends[other, 1], ends[one, 1]
    for each in (one, other):
        left = max_tokens - (ends[each, 0] - starts[each, 0])
        ends[each, 1] = min(ends[each, 1], starts[each, 1] + left)
        labels[each] = 1


@njit(cache=True, nogil=True)
def exchange(starts: Any, ends: Any, order: Any, documents: Any, max_tokens: Any, labels: Any) -> None:
    """Exchange the second segments of pairs of sequences in `order`, and label them 1.

    Each is paired with the next one that is of another document and fits without loss; the rest with one of another
    document, and last with any. `documents` has the document of each sequence in the order.
    """
    free = np.ones(order.size, dtype=np.bool_)
    for strict in (2, 1, 0):
        for first in range(order.size):
            if not free[first]:
                continue
            one, tried = order[first], 0
            one_first, one_second = ends[one, 0] - starts[one, 0], ends[one, 1] - starts[one, 1]
            for second in range(first + 1, order.size):
                if not free[second]:
                    continue
                tried += 1
                if tried > _TRIES:
                    break
                other = order[second]
                other_first, other_second = ends[other, 0] - starts[other, 0], ends[other, 1] - starts[other, 1]
                fits = one_first + other_second <= max_tokens and other_first + one_second <= max_tokens
                if (documents[first] != documents[second] or strict == 0) and (fits or strict < 2):
                    _swap(starts, ends, one, other, max_tokens, labels)
                    free[first] = free[second] = False
                    break
