"""Numba kernels of telling senses apart: contexts of words, and spherical k-means over them.

Ids are uint32, bounds, places and members int64, vectors float32.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from firth.vectors._neighbour_kernels import dot
from firth.vectors._step_kernels import GOLDEN, mixed


@njit(cache=True, nogil=True)
def count_once(ids: Any, bounds: Any, last: Any, counts: Any) -> None:
    """Adds for each word the number of sentences that have it; `last` must be below 0 and is used up."""
    for sentence in range(bounds.size - 1):
        for place in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[place]
            if last[word] != sentence:
                last[word] = sentence
                counts[word] += 1


@njit(cache=True, nogil=True)
def pick_places(ids: Any, begin: Any, counts: Any, seen: Any, starts: Any, taken: Any, places: Any) -> None:
    """Writes where some words occur, evenly spread over the text; `ids` are those from place `begin` on.

    Word w, which occurs counts[w] times and seen[w] times before, has room for starts[w + 1] - starts[w] places, of
    which taken[w] are written. Occurrence number n is taken if it is the first at or after the next even share.
    """
    for place in range(ids.size):
        word = ids[place]
        room = starts[word + 1] - starts[word]
        if room > 0:
            if taken[word] < room and seen[word] * room >= taken[word] * counts[word]:
                places[starts[word] + taken[word]] = begin + place
                taken[word] += 1
            seen[word] += 1


@njit(cache=True, nogil=True, inline="always")
def _add(vectors: Any, weights: Any, word: Any, total: Any) -> None:
    weight = weights[word]
    for i in range(total.size):
        total[i] += weight * vectors[word, i]


@njit(cache=True, nogil=True)
def sum_context(
    ids: Any, begin: Any, end: Any, place: Any, window: Any, first_word: Any, vectors: Any, weights: Any, total: Any
) -> None:
    """The weighted sum of the words around a place, at most `window` on each side, in the sentence begin to end.

    Special tokens are passed over. The word itself takes a place but adds nothing: it stands near itself whatever it
    means, and were it passed over, a sentence of one word again and again would be walked through for each of them.
    """
    total[:] = 0
    word = ids[place]
    found, other = 0, place - 1
    while other >= begin and found < window:
        if ids[other] >= first_word:
            found += 1
            if ids[other] != word:
                _add(vectors, weights, ids[other], total)
        other -= 1
    found, other = 0, place + 1
    while other < end and found < window:
        if ids[other] >= first_word:
            found += 1
            if ids[other] != word:
                _add(vectors, weights, ids[other], total)
        other += 1


@njit(cache=True, nogil=True)
def scale(vector: Any) -> Any:
    """Gives a vector length 1, unless it is zero; returns the length that it had."""
    length = np.sqrt(dot(vector, vector))
    if length > 0:
        for i in range(vector.size):
            vector[i] /= length
    return length


@njit(cache=True, nogil=True)
def unit_contexts(
    ids: Any, sentences: Any, places: Any, window: Any, first_word: Any, vectors: Any, weights: Any, rows: Any
) -> None:
    """Writes the context of each place as a row of length 1; zeros where there are no words around."""
    for number in range(places.size):
        place = places[number]
        low, high = 0, sentences.size - 1  # sentences[low] <= place < sentences[high]
        while high - low > 1:
            middle = (low + high) // 2
            if np.int64(sentences[middle]) <= place:
                low = middle
            else:
                high = middle
        row, begin, end = rows[number], np.int64(sentences[low]), np.int64(sentences[high])
        sum_context(ids, begin, end, place, window, first_word, vectors, weights, row)
        scale(row)


@njit(cache=True, nogil=True, inline="always")
def _chance(start: Any, number: Any) -> Any:
    """Random number `number`, between 0 and 1."""
    return (mixed(uint64(start) + uint64(number + 1) * GOLDEN) >> uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def nearest(row: Any, centres: Any) -> Any:
    """The centre with the largest product, of equal ones the first."""
    best, found = dot(row, centres[0]), 0
    for centre in range(1, centres.shape[0]):
        score = dot(row, centres[centre])
        if score > best:
            best, found = score, centre
    return found


@njit(cache=True, nogil=True)
def label(rows: Any, members: Any, centres: Any, labels: Any) -> None:
    """Writes the nearest centre of each row."""
    for number in range(members.size):
        labels[number] = nearest(rows[members[number]], centres)


@njit(cache=True, nogil=True)
def add_up(rows: Any, members: Any, centres: Any, sums: Any, counts: Any) -> None:
    """Gives each row to its nearest centre: how many each has, and their sum."""
    sums[:] = 0
    counts[:] = 0
    for member in members:
        group = nearest(rows[member], centres)
        counts[group] += 1
        for i in range(sums.shape[1]):
            sums[group, i] += rows[member, i]


@njit(cache=True, nogil=True)
def draw_centres(rows: Any, members: Any, start: Any, centres: Any) -> None:
    """k-means++ (Arthur and Vassilvitskii 2007): each centre a row, far from those before it with greater chance."""
    far = np.full(members.size, 2.0)
    for number in range(centres.shape[0]):
        total = 0.0
        for place in range(members.size):
            if number > 0:
                far[place] = max(0.0, min(far[place], 1.0 - dot(rows[members[place]], centres[number - 1])))
            total += far[place]
        left = _chance(start, number) * total
        chosen = members.size - 1
        for place in range(members.size):
            left -= far[place]
            if left < 0:
                chosen = place
                break
        centres[number] = rows[members[chosen]]


@njit(cache=True, nogil=True)
def move_centres(rows: Any, members: Any, rounds: Any, centres: Any, sums: Any, counts: Any) -> Any:
    """Lloyd's rounds with cosines, until nothing gets better; returns the sum of the cosines to the nearest centre."""
    best = -np.inf
    for _ in range(rounds):
        add_up(rows, members, centres, sums, counts)
        score = 0.0
        for centre in range(centres.shape[0]):
            if counts[centre] > 0:
                centres[centre] = sums[centre]
                score += scale(centres[centre])
        if score <= best * (1 + 1e-6):
            break
        best = score
    return best


@njit(cache=True, nogil=True)
def group(rows: Any, members: Any, start: Any, tries: Any, rounds: Any, centres: Any) -> None:
    """Spherical k-means over some rows; the best of several tries is written to `centres`."""
    found = np.empty_like(centres)
    sums, counts = np.empty_like(centres), np.empty(centres.shape[0], np.int64)
    best = -np.inf
    for number in range(tries):
        draw_centres(rows, members, mixed(uint64(start) + uint64(number) * GOLDEN), found)
        score = move_centres(rows, members, rounds, found, sums, counts)
        if score > best:
            best = score
            centres[:] = found


@njit(cache=True, nogil=True)
def relabel(
    ids: Any,
    bounds: Any,
    window: Any,
    first_word: Any,
    vectors: Any,
    weights: Any,
    senses: Any,
    centre_starts: Any,
    centres: Any,
    biases: Any,
    out: Any,
) -> None:
    """Writes the row of the most probable sense of each word: log P(sense | context) is its product and its bias.

    The rows of word w begin at senses[w]; its centres, already times their concentration, at centre_starts[w].
    """
    total = np.empty(vectors.shape[1], np.float32)
    for sentence in range(bounds.size - 1):
        for place in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[place]
            row = senses[word]
            low, high = centre_starts[word], centre_starts[word + 1]
            if high > low:
                begin, end = bounds[sentence], bounds[sentence + 1]
                sum_context(ids, begin, end, place, window, first_word, vectors, weights, total)
                scale(total)
                best, found = -np.inf, low
                for centre in range(low, high):
                    score = dot(total, centres[centre]) + biases[centre]
                    if score > best:
                        best, found = score, centre
                row += found - low
            out[place] = row
