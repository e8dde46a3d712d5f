"""Numba kernels that compare vectors with many others and keep the best."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Sums may be taken in any order, which lets the compiler use wide registers; nothing else is loosened.
_SUMS = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, fastmath=_SUMS)
def dot(one: Any, two: Any) -> Any:
    """The inner product of two vectors."""
    total = np.float32(0)
    for i in range(two.size):
        total += one[i] * two[i]
    return total


@njit(cache=True, nogil=True)
def measure_rows(vectors: Any, inverse: Any, begin: Any, end: Any) -> None:
    """One over the length of each row; 0 for rows of zeros."""
    for row in range(begin, end):
        square = dot(vectors[row], vectors[row])
        inverse[row] = np.float32(1) / np.sqrt(square) if square > 0 else np.float32(0)


@njit(cache=True, nogil=True)
def score_rows(vectors: Any, inverse: Any, query: Any, scores: Any, begin: Any, end: Any) -> None:
    """The cosine of each row with a query of length 1."""
    for row in range(begin, end):
        scores[row] = dot(vectors[row], query) * inverse[row]


@njit(cache=True, nogil=True)
def push(score: Any, row: Any, best: Any, rows: Any) -> None:
    """Puts a row in the place of the worst of a heap, if it is better: of equal scores, the earlier row is."""
    if score < best[0] or (score == best[0] and row > rows[0]) or score != score:
        return
    place, size = 0, best.size
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (best[other] < best[child] or (best[other] == best[child] and rows[other] > rows[child])):
            child = other
        if best[child] > score or (best[child] == score and rows[child] < row):
            break
        best[place], rows[place] = best[child], rows[child]
        place = child
    best[place], rows[place] = score, row


@njit(cache=True, nogil=True)
def push_tile(scores: Any, begin: Any, best: Any, rows: Any) -> None:
    """Puts the scores of each line, which are of the rows from `begin` on, into that line's heap."""
    for line in range(scores.shape[0]):
        for place in range(scores.shape[1]):
            if scores[line, place] >= best[line, 0]:
                push(scores[line, place], np.int64(begin + place), best[line], rows[line])


@njit(cache=True, nogil=True)
def answer_tile(
    scores: Any, kinds: Any, begin: Any, asked: Any, banned: Any, multiply: Any, best: Any, rows: Any
) -> None:
    """The best answer of each question "a is to b as c is to what" so far.

    Line i of `scores` has the cosines of word i with the rows from `begin` on. A row whose kind is among a question's
    `banned` is no answer. Scores are b + c - a, or b * c / a of cosines moved to 0 to 1 (Levy and Goldberg 2014).
    """
    small = np.float32(1e-6)
    for question in range(asked.shape[0]):
        a, b, c = scores[asked[question, 0]], scores[asked[question, 1]], scores[asked[question, 2]]
        highest = best[question]
        for place in range(scores.shape[1]):
            score = b[place] * c[place] / (a[place] + small) if multiply else b[place] + c[place] - a[place]
            if score > highest:
                kind = kinds[begin + place]
                if kind != banned[question, 0] and kind != banned[question, 1] and kind != banned[question, 2]:
                    highest = score
                    rows[question] = begin + place
        best[question] = highest


@njit(cache=True, nogil=True)
def mean_rows(vectors: Any, ids: Any, bounds: Any, least: Any, means: Any) -> None:
    """The mean of the rows of each text's ids; ids below `least` are left out, and a text of none stays as it is."""
    for text in range(bounds.size - 1):
        mean, count = means[text], 0
        for place in range(bounds[text], bounds[text + 1]):
            row = np.int64(ids[place])
            if row >= least:
                count += 1
                for i in range(mean.size):
                    mean[i] += vectors[row, i]
        if count > 1:
            for i in range(mean.size):
                mean[i] /= np.float32(count)
