"""Numba kernels of the approximate index: distances of bit codes, and true cosines of those that seem near."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from firth.prefetch import prefetch
from firth.vectors._neighbour_kernels import dot, push


def _count_bits(context: Any, number: Any) -> Any:
    """How many bits of a number are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


count_bits: Any = intrinsic(_count_bits)
ONE = 4096
_SOON = 8  # rows that are asked for ahead
_LINE = 16  # numbers in a line of cache


@njit(cache=True, nogil=True)
def _sum(bits: Any, planes: Any, line: Any) -> Any:
    """The sum of the coordinates 2 v_j - 15 of a line for which the code's bit is set; `planes` has the bits of v_j."""
    low = count_bits(bits & planes[line, 0]) + (count_bits(bits & planes[line, 1]) << np.uint64(1))
    high = count_bits(bits & planes[line, 2]) + (count_bits(bits & planes[line, 3]) << np.uint64(1))
    doubled = (low + (high << np.uint64(2))) << np.uint64(1)
    return np.int64(doubled) - 15 * np.int64(count_bits(bits))


@njit(cache=True, nogil=True)
def score_codes(
    codes: Any, weights: Any, offsets: Any, planes: Any, scale: Any, shift: Any, base: Any, begin: Any, scores: Any
) -> None:
    """About the cosines of a query with the rows of a cell, which begins at `begin`, in units of 1 / `ONE`.

    The part of the cell's centre is `base`. Of the rest of a row, the code has the signs of 256 coordinates, 64 a line;
    `planes` has the bits of the query's. All four lines in one loop are twice as quick as one after the other.
    """
    end = begin + scores.size
    first, second, third, fourth = (
        codes[0][begin:end], codes[1][begin:end], codes[2][begin:end], codes[3][begin:end]
    )  # fmt: skip
    weights, offsets = weights[begin:end], offsets[begin:end]
    for i in range(scores.size):
        total = _sum(first[i], planes, 0) + _sum(second[i], planes, 1)
        total += _sum(third[i], planes, 2) + _sum(fourth[i], planes, 3)
        about = base + offsets[i] + weights[i] * (scale * np.float32(np.int32(total)) - shift)
        scores[i] = np.int16(np.int32(min(max(about, np.float32(-1)), np.float32(1)) * np.float32(ONE)))


@njit(cache=True, nogil=True)
def keep_best(scores: Any, rows: Any, limit: Any, kept: Any, kept_scores: Any, count: Any, histogram: Any) -> Any:
    """Appends the rows whose scores reach the limit; returns how many there are then."""
    for begin in range(0, scores.size, 32):
        end = min(begin + 32, scores.size)
        highest = scores[begin]
        for i in range(begin + 1, end):  # most blocks have none, which wide registers tell at once
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
    """Puts the nearest rows of some cells into a heap: only those that seem nearest are compared in full.

    The limit is the score that `wanted` rows have reached so far; cells that come later must do as well.
    """
    total = largest = 0
    for cell in cells:
        total += starts[cell + 1] - starts[cell]
        largest = max(largest, starts[cell + 1] - starts[cell])
    scores = np.empty(largest, dtype=np.int16)
    kept, kept_scores = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int16)
    histogram = np.zeros(2 * ONE + 1, dtype=np.int32)
    limit, count, below = -ONE, 0, 0
    for cell in cells:
        begin, end = starts[cell], starts[cell + 1]
        part = scores[: end - begin]
        score_codes(codes, weights, offsets, planes, scale, shift, bases[cell], begin, part)
        count = keep_best(part, rows[begin:end], limit, kept, kept_scores, count, histogram)
        while count - below - histogram[limit + ONE] >= wanted:
            below += histogram[limit + ONE]
            limit += 1
    compare(kept, choose(kept, kept_scores, limit, count), vectors, inverse, query, best, found)


@njit(cache=True, nogil=True)
def choose(kept: Any, kept_scores: Any, limit: Any, count: Any) -> Any:
    """Moves the rows whose scores reach the limit to the front; returns how many there are."""
    chosen = 0
    for i in range(count):
        if kept_scores[i] >= limit:
            kept[chosen] = kept[i]
            chosen += 1
    return chosen


@njit(cache=True, nogil=True)
def compare(rows: Any, count: Any, vectors: Any, inverse: Any, query: Any, best: Any, found: Any) -> None:
    """Puts the first rows into a heap by their true cosines; they lie anywhere, so they are asked for ahead."""
    flat, width = vectors.reshape(-1), vectors.shape[1]
    for i in range(count):
        if i + _SOON < count:
            later = np.int64(rows[i + _SOON])
            prefetch(inverse, later)
            for place in range(0, width, _LINE):
                prefetch(flat, later * width + place)
        row = np.int64(rows[i])
        push(dot(vectors[row], query) * inverse[row], row, best, found)
