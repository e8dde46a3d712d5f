"""The best spans of a passage by the scores of their first and last places (Devlin et al. 2019, section 4.2).

A span from i to j, both included, scores start[i] + end[j]; j is not before i, and the span no longer than `longest`.
A passage too long for one input is read in windows that overlap; each place then may begin a span only in the window in
which it has most context. The score of no answer is that of the `[CLS]` span, and of several windows the lowest: one
window that is sure of an answer outweighs all others (as BERT's own code for SQuAD 2.0 has it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import RecipeError

Numbers = npt.NDArray[Any]
Window = tuple[int, int]


class Span(NamedTuple):
    """A piece of a passage, both places included."""

    begin: int
    end: int
    score: float


class Found(NamedTuple):
    """The best spans of a passage, best first, and the score of there being none."""

    spans: list[Span]
    none: float

    @property
    def odds(self) -> float:
        """The score of no answer less that of the best span: no answer is given if it is above the threshold."""
        return self.none - self.spans[0].score if self.spans else float("inf")


def best_spans(
    start: Numbers,
    end: Numbers,
    *,
    longest: int,
    allowed: Numbers | None = None,
    begins: Numbers | None = None,
    number: int = 1,
) -> list[list[Span]]:
    """For each row of scores the best spans, best first; fewer than `number` if there are no more.

    start, end: (rows, places). allowed: the places that spans may begin and end at, all if None. begins: those they may
    begin at, if not all of these. Of equal scores the earlier begin comes first, then the shorter span.

    >>> best_spans(np.array([[0.0, 2.0, 1.0]]), np.array([[9.0, 0.0, 3.0]]), longest=2, number=2)
    [[Span(begin=0, end=0, score=9.0), Span(begin=1, end=2, score=5.0)]]
    """
    if longest < 1 or number < 1:
        raise RecipeError(f"spans of at most {longest} places, {number} of them: both must be 1 or more.")
    rows, places = start.shape
    longest = min(longest, places)
    if not rows or not places:
        return [[] for _ in range(rows)]
    begin_scores = _barred(_barred(start, allowed), begins)
    end_scores = np.pad(_barred(end, allowed), ((0, 0), (0, longest - 1)), constant_values=-np.inf)
    reach = np.lib.stride_tricks.sliding_window_view(end_scores, longest, axis=1)  # (rows, places, longest)
    scores = (begin_scores[:, :, None] + reach).reshape(rows, -1)
    return [
        [Span(int(at // longest), int(at // longest + at % longest), float(row[at])) for at in best]
        for row, best in zip(scores, _best_places(scores, number), strict=True)
    ]


def best_over_windows(
    starts: Sequence[Numbers],
    ends: Sequence[Numbers],
    nones: Sequence[float],
    windows: Sequence[Window],
    *,
    longest: int,
    allowed: Numbers | None = None,
    number: int = 1,
) -> Found:
    """The best spans of a passage read in windows, in places of the passage.

    starts, ends: for each window the scores of its places, and of nothing else. nones: its score of no answer.
    allowed: as for `best_spans`, over the whole passage.
    """
    widest = max(end - begin for begin, end in windows)
    start, end = (np.full((len(windows), widest), -np.inf) for _ in range(2))
    begins = np.zeros((len(windows), widest), dtype=bool)
    owners = window_owners(windows)
    for row, (first, after) in enumerate(windows):
        inside = slice(0, after - first)
        bar = None if allowed is None else allowed[first:after]
        start[row, inside] = _barred(np.asarray(starts[row]), bar)
        end[row, inside] = _barred(np.asarray(ends[row]), bar)
        begins[row, inside] = owners[first:after] == row
    by_window = best_spans(start, end, longest=longest, begins=begins, number=number)
    spans = [
        Span(span.begin + first, span.end + first, span.score)
        for (first, _), found in zip(windows, by_window, strict=True)
        for span in found
    ]
    spans.sort(key=lambda span: (-span.score, span.begin, span.end))
    return Found(spans[:number], float(min(nones)))


def windows(length: int, room: int, stride: int) -> list[Window]:
    """Where windows of at most `room` places begin and end, each `stride` places after the last, until all are read.

    A passage without places has one window, so that its question is asked nonetheless.

    >>> windows(10, room=6, stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    if not 1 <= stride <= room:
        raise RecipeError(f"windows of {room} places cannot be {stride} apart: choose a stride from 1 to {room}.")
    last = max(0, -(-(length - room) // stride))
    return [(first * stride, min(first * stride + room, length)) for first in range(last + 1)]


def most_context(place: int, windows: Sequence[Window]) -> int:
    """The number of the window in which a place has most context: see `window_owners`.

    >>> most_context(4, [(0, 6), (3, 9), (6, 10)]), most_context(5, [(0, 6), (3, 9), (6, 10)])
    (0, 1)
    """
    return int(_context(np.array([place]), windows).argmax(axis=1)[0])


def window_owners(windows: Sequence[Window]) -> Numbers:
    """For each place of the passage the window in which it has most context.

    That is the distance to the nearer border, and a hundredth of the window's width; of equals the first (the rule of
    BERT's code).
    """
    owners: Numbers = _context(np.arange(windows[-1][1]), windows).argmax(axis=1)
    return owners


def _context(places: Numbers, windows: Sequence[Window]) -> Numbers:
    """How much context each place has in each window; -1 in windows that it is not in."""
    first, after = np.array(windows, dtype=np.int64).T
    nearer = np.minimum(places[:, None] - first, after - 1 - places[:, None])
    context: Numbers = np.where(nearer >= 0, nearer + 0.01 * (after - first), -1.0)
    return context


def _barred(scores: Numbers, allowed: Numbers | None) -> Numbers:
    return scores if allowed is None else np.where(allowed, scores, -np.inf)


def _best_places(scores: Numbers, number: int) -> list[Numbers]:
    """In each row where the best finite scores are, best first; of equals the first."""
    if number == 1:
        best = scores.argmax(axis=1)
        return [
            np.array([at]) if row[at] > -np.inf else np.array([], dtype=int)
            for row, at in zip(scores, best, strict=True)
        ]
    number = min(number, scores.shape[1])
    least = np.partition(scores, -number, axis=1)[:, -number]
    chosen = []
    for row, bound in zip(scores, least, strict=True):
        candidates = np.flatnonzero((row >= bound) & (row > -np.inf))
        chosen.append(candidates[np.argsort(-row[candidates], kind="stable")][:number])
    return chosen
