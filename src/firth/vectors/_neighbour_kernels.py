"""Numba kernels of nearest-neighbour search, exact and by codes: the index estimates cosines from bit codes."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from firth.prefetch import prefetch

# Sums may be reordered for SIMD; nothing else is relaxed.
_SUMS = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, fastmath=_SUMS)
def dot(one: Any, two: Any) -> Any:
    total = np.float32(0)
    for i in range(two.size):
        total += one[i] * two[i]
    return total


@njit(cache=True, nogil=True)
def inverse_norms(vectors: Any, inverse: Any, begin: Any, end: Any) -> None:
    """One over the norm of each row; 0 for rows of zeros."""
    for row in range(begin, end):
        square = dot(vectors[row], vectors[row])
        inverse[row] = np.float32(1) / np.sqrt(square) if square > 0 else np.float32(0)


@njit(cache=True, nogil=True)
def cosines(vectors: Any, inverse: Any, query: Any, scores: Any, begin: Any, end: Any) -> None:
    """The cosine of each row with a unit query."""
    for row in range(begin, end):
        scores[row] = dot(vectors[row], query) * inverse[row]


@njit(cache=True, nogil=True)
def heap_push(score: Any, row: Any, best: Any, rows: Any) -> None:
    """Replaces the worst of a bounded heap by a better row; of equal scores the earlier row is better."""
    if score < best[0] or (score == best[0] and row > rows[0]) or score != score:
        return
    i, size = 0, best.size
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (best[other] < best[child] or (best[other] == best[child] and rows[other] > rows[child])):
            child = other
        if best[child] > score or (best[child] == score and rows[child] < row):
            break
        best[i], rows[i] = best[child], rows[child]
        i = child
    best[i], rows[i] = score, row


@njit(cache=True, nogil=True)
def heap_push_tile(scores: Any, begin: Any, best: Any, rows: Any) -> None:
    """Pushes scores[q, i] of row `begin + i` to the heap of query q."""
    for query in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            if scores[query, i] >= best[query, 0]:
                heap_push(scores[query, i], np.int64(begin + i), best[query], rows[query])


@njit(cache=True, nogil=True)
def best_analogies(
    scores: Any, groups: Any, begin: Any, questions: Any, banned: Any, is_mul: Any, best: Any, rows: Any
) -> None:
    """Updates the best answer of each question "a is to b as c is to what".

    Line i of `scores` has the cosines of word i with the rows from `begin` on. Rows whose group is in a question's
    `banned` are excluded. Scores are b + c - a, or b * c / a of cosines shifted to [0, 1] (Levy and Goldberg 2014).
    """
    epsilon = np.float32(1e-6)
    for question in range(questions.shape[0]):
        a, b, c = scores[questions[question, 0]], scores[questions[question, 1]], scores[questions[question, 2]]
        highest = best[question]
        for i in range(scores.shape[1]):
            score = b[i] * c[i] / (a[i] + epsilon) if is_mul else b[i] + c[i] - a[i]
            if score > highest:
                group = groups[begin + i]
                if group != banned[question, 0] and group != banned[question, 1] and group != banned[question, 2]:
                    highest = score
                    rows[question] = begin + i
        best[question] = highest


@njit(cache=True, nogil=True)
def mean_rows(vectors: Any, ids: Any, bounds: Any, first_word: Any, means: Any) -> None:
    """The mean row of each text's ids; ids below `first_word` are skipped, and a text without any is left alone."""
    for text in range(bounds.size - 1):
        mean, count = means[text], 0
        for position in range(bounds[text], bounds[text + 1]):
            row = np.int64(ids[position])
            if row >= first_word:
                count += 1
                for i in range(mean.size):
                    mean[i] += vectors[row, i]
        if count > 1:
            for i in range(mean.size):
                mean[i] /= np.float32(count)


def _count_bits(context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


count_bits: Any = intrinsic(_count_bits)
ONE = 4096
_AHEAD = 8  # rows prefetched ahead
_LINE = 16  # floats in a cache line


@njit(cache=True, nogil=True)
def _signed_sum(bits: Any, planes: Any, word: Any) -> Any:
    """The sum of the query's coordinates 2 v_j - 15 over the set bits of a code; `planes` has the bits of v_j."""
    low = count_bits(bits & planes[word, 0]) + (count_bits(bits & planes[word, 1]) << np.uint64(1))
    high = count_bits(bits & planes[word, 2]) + (count_bits(bits & planes[word, 3]) << np.uint64(1))
    doubled = (low + (high << np.uint64(2))) << np.uint64(1)
    return np.int64(doubled) - 15 * np.int64(count_bits(bits))


@njit(cache=True, nogil=True)
def score_codes(
    codes: Any, weights: Any, offsets: Any, planes: Any, scale: Any, shift: Any, base: Any, begin: Any, scores: Any
) -> None:
    """Estimates the cosines of a query with the rows of the cell that begins at `begin`, in units of 1 / `ONE`.

    `base` is the contribution of the cell's centroid. A code has the signs of 256 coordinates of the residual, 64 to a
    word; all four words in one loop are twice as fast as one after the other.
    """
    end = begin + scores.size
    first, second = codes[0][begin:end], codes[1][begin:end]
    third, fourth = codes[2][begin:end], codes[3][begin:end]
    weights, offsets = weights[begin:end], offsets[begin:end]
    for i in range(scores.size):
        total = _signed_sum(first[i], planes, 0) + _signed_sum(second[i], planes, 1)
        total += _signed_sum(third[i], planes, 2) + _signed_sum(fourth[i], planes, 3)
        estimate = base + offsets[i] + weights[i] * (scale * np.float32(np.int32(total)) - shift)
        scores[i] = np.int16(np.int32(min(max(estimate, np.float32(-1)), np.float32(1)) * np.float32(ONE)))


@njit(cache=True, nogil=True)
def append_candidates(
    scores: Any, rows: Any, limit: Any, kept: Any, kept_scores: Any, count: Any, histogram: Any
) -> Any:
    """Appends the rows whose scores reach the limit; returns the new number of candidates."""
    for begin in range(0, scores.size, 32):
        end = min(begin + 32, scores.size)
        highest = scores[begin]
        for i in range(begin + 1, end):  # most blocks have none, which SIMD finds at once
            highest = max(highest, scores[i])
        if highest < limit:
            continue
        for i in range(begin, end):
            if scores[i] >= limit:
                kept[count], kept_scores[count] = rows[i], scores[i]
                histogram[scores[i] + ONE] += 1
                count += 1
    return count


@njit(cache=True, nogil=True)
def search(
    codes: Any, weights: Any, offsets: Any, planes: Any, scale: Any, shift: Any, bases: Any, rows: Any,
    starts: Any, cells: Any, wanted: Any, vectors: Any, inverse: Any, query: Any, best: Any, found: Any,
) -> None:  # fmt: skip
    """Pushes the nearest rows of some cells to a heap; only the best by estimate are compared exactly.

    The limit is the score that `wanted` rows have reached so far; later cells must reach it too.
    """
    total = largest = 0
    for cell in cells:
        total += starts[cell + 1] - starts[cell]
        largest = max(largest, starts[cell + 1] - starts[cell])
    scores = np.empty(largest, dtype=np.int16)
    kept, kept_scores = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int16)
    histogram = np.zeros(2 * ONE + 1, dtype=np.int32)
    limit, count, dropped = -ONE, 0, 0
    for cell in cells:
        begin, end = starts[cell], starts[cell + 1]
        cell_scores = scores[: end - begin]
        score_codes(codes, weights, offsets, planes, scale, shift, bases[cell], begin, cell_scores)
        count = append_candidates(cell_scores, rows[begin:end], limit, kept, kept_scores, count, histogram)
        while count - dropped - histogram[limit + ONE] >= wanted:
            dropped += histogram[limit + ONE]
            limit += 1
    push_exact(kept, select(kept, kept_scores, limit, count), vectors, inverse, query, best, found)


@njit(cache=True, nogil=True)
def select(kept: Any, kept_scores: Any, limit: Any, count: Any) -> Any:
    """Moves the candidates whose scores reach the limit to the front; returns their number."""
    chosen = 0
    for i in range(count):
        if kept_scores[i] >= limit:
            kept[chosen] = kept[i]
            chosen += 1
    return chosen


@njit(cache=True, nogil=True)
def push_exact(rows: Any, count: Any, vectors: Any, inverse: Any, query: Any, best: Any, found: Any) -> None:
    """Pushes the first rows to a heap by their exact cosines, prefetching them."""
    flat, width = vectors.reshape(-1), vectors.shape[1]
    for i in range(count):
        if i + _AHEAD < count:
            ahead = np.int64(rows[i + _AHEAD])
            prefetch(inverse, ahead)
            for column in range(0, width, _LINE):
                prefetch(flat, ahead * width + column)
        row = np.int64(rows[i])
        heap_push(dot(vectors[row], query) * inverse[row], row, best, found)
