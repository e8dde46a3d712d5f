"""Numba kernels of sense induction: context vectors, and spherical k-means over them.

Ids are uint32, bounds, positions and members int64, vectors float32.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from firth.vectors._neighbour_kernels import dot
from firth.vectors._step_kernels import GOLDEN, splitmix64


@njit(cache=True, nogil=True)
def count_sentences(ids: Any, bounds: Any, last: Any, counts: Any) -> None:
    """Adds the number of sentences that contain each word; `last` must be negative and is overwritten."""
    for sentence in range(bounds.size - 1):
        for position in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[position]
            if last[word] != sentence:
                last[word] = sentence
                counts[word] += 1


@njit(cache=True, nogil=True)
def sample_positions(ids: Any, begin: Any, counts: Any, seen: Any, starts: Any, sampled: Any, positions: Any) -> None:
    """Writes evenly spaced occurrences of words; `ids` are those from position `begin` on.

    Word w occurs counts[w] times, seen[w] times so far, and has starts[w + 1] - starts[w] samples, sampled[w] of them
    so far.
    """
    for position in range(ids.size):
        word = ids[position]
        wanted = starts[word + 1] - starts[word]
        if wanted > 0:
            if sampled[word] < wanted and seen[word] * wanted >= sampled[word] * counts[word]:
                positions[starts[word] + sampled[word]] = begin + position
                sampled[word] += 1
            seen[word] += 1


@njit(cache=True, nogil=True, inline="always")
def _add(vectors: Any, weights: Any, word: Any, total: Any) -> None:
    weight = weights[word]
    for i in range(total.size):
        total[i] += weight * vectors[word, i]


@njit(cache=True, nogil=True)
def sum_context(
    ids: Any, begin: Any, end: Any, position: Any, window: Any, first_word: Any, vectors: Any, weights: Any, total: Any
) -> None:
    """The weighted sum of the words around a position, at most `window` on each side, in the sentence begin to end.

    Special tokens are skipped. The word itself counts towards the window but adds nothing: it occurs near itself in any
    sense, and if it were skipped, a sentence of one repeated word would take quadratic time.
    """
    total[:] = 0
    for step in (-1, 1):
        found, other = 0, position + step
        while begin <= other < end and found < window:
            if ids[other] >= first_word:
                found += 1
                if ids[other] != ids[position]:
                    _add(vectors, weights, ids[other], total)
            other += step


@njit(cache=True, nogil=True)
def normalize(vector: Any) -> Any:
    """Scales a vector to unit norm, unless it is zero; returns the norm it had."""
    length = np.sqrt(dot(vector, vector))
    if length > 0:
        for i in range(vector.size):
            vector[i] /= length
    return length


@njit(cache=True, nogil=True)
def unit_contexts(
    ids: Any, sentences: Any, positions: Any, window: Any, first_word: Any, vectors: Any, weights: Any, rows: Any
) -> None:
    """Writes the unit context vector of each position; zeros where there are no words around."""
    for i in range(positions.size):
        position = positions[i]
        low, high = 0, sentences.size - 1  # sentences[low] <= position < sentences[high]
        while high - low > 1:
            middle = (low + high) // 2
            if np.int64(sentences[middle]) <= position:
                low = middle
            else:
                high = middle
        row, begin, end = rows[i], np.int64(sentences[low]), np.int64(sentences[high])
        sum_context(ids, begin, end, position, window, first_word, vectors, weights, row)
        normalize(row)


@njit(cache=True, nogil=True, inline="always")
def _uniform(start: Any, i: Any) -> Any:
    return (splitmix64(uint64(start) + uint64(i + 1) * GOLDEN) >> uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def nearest(row: Any, centres: Any) -> Any:
    """The centre with the largest product; ties go to the first."""
    best, found = dot(row, centres[0]), 0
    for centre in range(1, centres.shape[0]):
        score = dot(row, centres[centre])
        if score > best:
            best, found = score, centre
    return found


@njit(cache=True, nogil=True)
def assign(rows: Any, members: Any, centres: Any, assignments: Any) -> None:
    """Writes the nearest centre of each row."""
    for i in range(members.size):
        assignments[i] = nearest(rows[members[i]], centres)


@njit(cache=True, nogil=True)
def assign_and_sum(rows: Any, members: Any, centres: Any, sums: Any, counts: Any) -> None:
    """The number of rows nearest to each centre, and their sum."""
    sums[:] = 0
    counts[:] = 0
    for member in members:
        centre = nearest(rows[member], centres)
        counts[centre] += 1
        for i in range(sums.shape[1]):
            sums[centre, i] += rows[member, i]


@njit(cache=True, nogil=True)
def kmeans_pp(rows: Any, members: Any, start: Any, centres: Any) -> None:
    """k-means++ initialisation (Arthur and Vassilvitskii 2007)."""
    distances = np.full(members.size, 2.0)
    for i in range(centres.shape[0]):
        total = 0.0
        for position in range(members.size):
            if i > 0:
                distance = 1.0 - dot(rows[members[position]], centres[i - 1])
                distances[position] = max(0.0, min(distances[position], distance))
            total += distances[position]
        left = _uniform(start, i) * total
        chosen = members.size - 1
        for position in range(members.size):
            left -= distances[position]
            if left < 0:
                chosen = position
                break
        centres[i] = rows[members[chosen]]


@njit(cache=True, nogil=True)
def lloyd(rows: Any, members: Any, rounds: Any, centres: Any, sums: Any, counts: Any) -> Any:
    """Lloyd's algorithm with cosines, until convergence; returns the summed cosines to the nearest centre."""
    best = -np.inf
    for _ in range(rounds):
        assign_and_sum(rows, members, centres, sums, counts)
        score = 0.0
        for centre in range(centres.shape[0]):
            if counts[centre] > 0:
                centres[centre] = sums[centre]
                score += normalize(centres[centre])
        if score <= best * (1 + 1e-6):
            break
        best = score
    return best


@njit(cache=True, nogil=True)
def spherical_kmeans(rows: Any, members: Any, start: Any, restarts: Any, rounds: Any, centres: Any) -> None:
    """Spherical k-means over some rows; writes the best of several restarts to `centres`."""
    found = np.empty_like(centres)
    sums, counts = np.empty_like(centres), np.empty(centres.shape[0], np.int64)
    best = -np.inf
    for i in range(restarts):
        kmeans_pp(rows, members, splitmix64(uint64(start) + uint64(i) * GOLDEN), found)
        score = lloyd(rows, members, rounds, found, sums, counts)
        if score > best:
            best = score
            centres[:] = found


@njit(cache=True, nogil=True)
def relabel(
    ids: Any, bounds: Any, window: Any, first_word: Any, vectors: Any, weights: Any, senses: Any, centre_starts: Any,
    centres: Any, biases: Any, out: Any,
) -> None:  # fmt: skip
    """Writes the row of the most probable sense of each word: log P(sense | context) is its product plus its bias.

    The rows of word w begin at senses[w]; its centres, multiplied by their concentration, at centre_starts[w].
    """
    total = np.empty(vectors.shape[1], np.float32)
    for sentence in range(bounds.size - 1):
        for position in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[position]
            row = senses[word]
            low, high = centre_starts[word], centre_starts[word + 1]
            if high > low:
                begin, end = bounds[sentence], bounds[sentence + 1]
                sum_context(ids, begin, end, position, window, first_word, vectors, weights, total)
                normalize(total)
                best, found = -np.inf, low
                for centre in range(low, high):
                    score = dot(total, centres[centre]) + biases[centre]
                    if score > best:
                        best, found = score, centre
                row += found - low
            out[position] = row
