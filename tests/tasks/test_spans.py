"""The search of spans against brute force, and windows by BERT's rules."""

from __future__ import annotations

import numpy as np
import pytest

from firth.errors import RecipeError
from firth.tasks.spans import Found, Numbers, Span, best_over_windows, best_spans, most_context, window_owners, windows


def brute_force(start: Numbers, end: Numbers, longest: int, begins: Numbers, ends: Numbers, number: int) -> list[Span]:
    found = [
        Span(i, j, float(start[i] + end[j]))
        for i in range(len(start))
        for j in range(i, min(i + longest, len(start)))
        if begins[i] and ends[j]
    ]
    return sorted(found, key=lambda span: (-span.score, span.begin, span.end))[:number]


@pytest.mark.parametrize("number", [1, 2, 20, 1000])
@pytest.mark.parametrize("longest", [1, 3, 100])
@pytest.mark.parametrize("tied", [False, True])
def test_the_best_spans_are_those_of_brute_force(number: int, longest: int, tied: bool) -> None:
    rng = np.random.default_rng((number, longest, tied))
    shape = (6, 13)
    start, end = (rng.integers(0, 3, shape) * 1.0 if tied else rng.normal(size=shape) for _ in range(2))
    allowed, begins = rng.random(shape) < 0.7, rng.random(shape) < 0.8
    allowed[0], begins[1] = False, False
    found = best_spans(start, end, longest=longest, allowed=allowed, begins=begins, number=number)
    for row, spans in enumerate(found):
        expected = brute_force(start[row], end[row], longest, allowed[row] & begins[row], allowed[row], number)
        assert spans == expected
    assert found[0] == found[1] == []
    everywhere = np.ones(13, dtype=bool)
    free = best_spans(start, end, longest=longest, number=number)
    assert free[2] == brute_force(start[2], end[2], longest, everywhere, everywhere, number)


def test_a_span_never_ends_before_it_begins() -> None:
    """The highest start comes after the highest end; a greedy choice would be wrong."""
    start, end = np.array([[1.0, 0.0, 9.0]]), np.array([[0.0, 8.0, 1.0]])
    assert best_spans(start, end, longest=3) == [[Span(2, 2, 10.0)]]
    assert best_spans(start - [[0, 0, 5.0]], end, longest=1) == [[Span(1, 1, 8.0)]]
    assert best_spans(start - [[0, 0, 5.0]], end, longest=2) == [[Span(0, 1, 9.0)]]


def test_no_places_no_spans() -> None:
    assert best_spans(np.zeros((2, 0)), np.zeros((2, 0)), longest=3) == [[], []]
    assert best_spans(np.zeros((0, 4)), np.zeros((0, 4)), longest=3, number=2) == []


@pytest.mark.parametrize(("longest", "number"), [(0, 1), (3, 0)])
def test_what_cannot_be_searched_is_refused(longest: int, number: int) -> None:
    with pytest.raises(RecipeError, match="1 or more"):
        best_spans(np.zeros((1, 4)), np.zeros((1, 4)), longest=longest, number=number)


def test_windows_as_berts_code_makes_them() -> None:
    for length in range(1, 40):
        for room in range(1, 12):
            for stride in range(1, room + 1):
                expected, first = [], 0
                while True:  # run_squad.py's loop
                    expected.append((first, min(first + room, length)))
                    if first + room >= length:
                        break
                    first += stride
                assert windows(length, room, stride) == expected
    assert windows(0, 5, 2) == [(0, 0)]
    assert windows(5, 5, 5) == [(0, 5)]


@pytest.mark.parametrize(("room", "stride"), [(5, 6), (5, 0), (0, 0), (-1, 1)])
def test_windows_with_gaps_are_refused(room: int, stride: int) -> None:
    with pytest.raises(RecipeError, match="stride from 1"):
        windows(20, room, stride)


def test_most_context_is_the_rule_of_berts_code() -> None:
    made = windows(57, 20, 7)
    for place in range(57):
        scores = {}
        for number, (first, after) in enumerate(made):
            if first <= place < after:
                scores[number] = min(place - first, after - 1 - place) + 0.01 * (after - first)
        assert most_context(place, made) == max(scores, key=lambda number: (scores[number], -number))
        assert window_owners(made)[place] == most_context(place, made)
    assert most_context(2, [(0, 4), (1, 7)]) == 1  # as near to a border in both; the second is wider


@pytest.mark.parametrize("number", [1, 5])
def test_the_best_over_windows_is_the_best_of_spans_that_begin_where_context_is_most(number: int) -> None:
    rng = np.random.default_rng(number)
    made = windows(23, 9, 4)
    starts, ends = ([rng.normal(size=after - first) for first, after in made] for _ in range(2))
    allowed = rng.random(23) < 0.8
    found = best_over_windows(starts, ends, [3.0, -1.0, 2.0, 5.0, 7.0], made, longest=4, allowed=allowed, number=number)
    expected = []
    for row, (first, after) in enumerate(made):
        for i in range(first, after):
            for j in range(i, min(i + 4, after)):
                if allowed[i] and allowed[j] and most_context(i, made) == row:
                    expected.append(Span(i, j, float(starts[row][i - first] + ends[row][j - first])))
    expected.sort(key=lambda span: -span.score)
    assert found.spans == expected[:number]
    assert found.none == -1.0  # the lowest
    assert found.odds == -1.0 - expected[0].score


def test_a_passage_without_places_has_no_answer() -> None:
    found = best_over_windows([np.zeros(0)], [np.zeros(0)], [1.5], windows(0, 5, 2), longest=3)
    assert found == Found([], 1.5)
    assert found.odds == float("inf")
