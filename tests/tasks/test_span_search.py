"""The search of spans against brute force, and windows by BERT's rules."""

from __future__ import annotations

import numpy as np
import pytest

from firth.errors import RecipeError
from firth.tasks.span import ScoredSpan, best_span, window_owners, windows


@pytest.mark.parametrize("max_length", [1, 2, 4, 9, 30])
def test_the_best_span_is_that_of_brute_force(max_length: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng([seed, max_length])
        made = windows(int(rng.integers(1, 24)), 9, 4)
        owners = window_owners(made)
        starts, ends = ([rng.integers(0, 4, after - first) * 1.0 for first, after in made] for _ in range(2))
        expected = [
            ScoredSpan(i, j, float(starts[row][i - first] + ends[row][j - first]))
            for row, (first, after) in enumerate(made)
            for i in range(first, after)
            for j in range(i, min(i + max_length, after))
            if owners[i] == row
        ]
        assert best_span(starts, ends, made, max_length) == min(expected, key=lambda one: (-one.score, *one[:2]))


def test_scores_of_minus_infinity_and_empty_passages_have_no_span() -> None:
    assert best_span([np.zeros(0)], [np.zeros(0)], windows(0, 5, 2), 3) is None
    assert best_span([np.full(2, -np.inf)], [np.zeros(2)], [(0, 2)], 3) is None
    assert best_span([np.array([1, 7])], [np.array([1, -9])], [(0, 2)], 3) == ScoredSpan(0, 0, 2.0)


def test_windows_as_berts_code_makes_them() -> None:
    for length in range(1, 40):
        for capacity in range(1, 12):
            for stride in range(1, capacity + 1):
                expected, first = [], 0
                while True:  # run_squad.py's loop
                    expected.append((first, min(first + capacity, length)))
                    if first + capacity >= length:
                        break
                    first += stride
                assert windows(length, capacity, stride) == expected
    assert windows(0, 5, 2) == [(0, 0)]
    assert windows(5, 5, 5) == [(0, 5)]


@pytest.mark.parametrize(("capacity", "stride"), [(5, 6), (5, 0), (0, 0), (-1, 1)])
def test_windows_with_gaps_are_refused(capacity: int, stride: int) -> None:
    with pytest.raises(RecipeError, match="stride from 1"):
        windows(20, capacity, stride)


def test_most_context_is_the_rule_of_berts_code() -> None:
    made = windows(57, 20, 7)
    for token in range(57):
        scores = {}
        for number, (first, after) in enumerate(made):
            if first <= token < after:
                scores[number] = min(token - first, after - 1 - token) + 0.01 * (after - first)
        assert window_owners(made)[token] == max(scores, key=lambda number: (scores[number], -number))
    assert window_owners([(0, 4), (1, 7)])[2] == 1  # as near to a border in both; the second is wider
