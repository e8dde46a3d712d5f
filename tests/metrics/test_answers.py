"""Exact match and F1 of answers: worked by hand from the definitions of SQuAD 2.0's and CMRC 2018's evaluations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firth.metrics.texts import (
    answer_scores,
    best_threshold,
    chinese_exact_match,
    chinese_f1,
    exact_match,
    plain_answer,
    word_f1,
)


@pytest.mark.parametrize(
    ("true", "predicted", "exact", "f1"),
    [
        ("France", "france.", 1, 1),
        ("the 10th and 11th centuries", "10th and 11th centuries", 1, 1),
        ("10th and 11th centuries", "in the 10th and 11th centuries", 0, 8 / 9),
        ("Denmark, Iceland and Norway", "Norway", 0, 2 * 1 * 0.25 / 1.25),
        ("a a b", "b b", 0, 2 / 3),  # the article goes: b against b b
        ("cat cat dog", "cat dog dog", 0, 2 / 3),  # words count as often as they are in both
        ("", "", 1, 1),
        ("", "Rome", 0, 0),
        ("Rome", "", 0, 0),
        ("the", "", 1, 1),  # nothing is left
        ("U.S.", "US", 1, 1),
        ("twenty-one", "twenty one", 0, 0),
        ("theory", "ory", 0, 0),  # articles are whole words
        ("  New\tYork ", "new york", 1, 1),
    ],
)
def test_squads_definitions(true: str, predicted: str, exact: float, f1: float) -> None:
    assert exact_match(true, predicted) == exact
    assert word_f1(true, predicted) == pytest.approx(f1)
    assert word_f1(predicted, true) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("true", "predicted", "exact", "f1"),
    [
        ("1963年", "1963年。", 1, 1),
        ("范廷颂", "范廷", 0, 0.8),
        ("北京大学", "大学北京", 0, 0.5),  # a piece, not a bag: 2 of 4
        ("北京的大学", "北京大学", 0, 4 / 9),  # and without gaps
        ("Windows XP系统", "windows xp", 0, 2 * 2 / (4 + 2)),
        ("《红楼梦》", "红楼梦", 1, 1),
        ("", "", 1, 1),
        ("", "北京", 0, 0),
        ("。", "，", 1, 1),
    ],
)
def test_cmrcs_definitions(true: str, predicted: str, exact: float, f1: float) -> None:
    assert chinese_exact_match(true, predicted) == exact
    assert chinese_f1(true, predicted) == pytest.approx(f1)


def test_the_best_gold_answer_counts() -> None:
    scores = answer_scores(
        [["Paris", "the city of Paris"], ["!", "Rome"], [], ["the"]], ["city Paris", "", "", ""], False
    )
    assert scores.tolist() == [[0.0, pytest.approx(0.8)], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert plain_answer("A Paris") == "paris"


def brute_force_threshold(odds: list[float], scores: list[float], answerable: list[bool]) -> float:
    """The best mean score of any threshold."""
    means = []
    for threshold in [-math.inf, *odds]:
        total = 0.0
        for odd, score, has in zip(odds, scores, answerable, strict=True):
            answered = odd <= threshold
            total += (score if has else 0.0) if answered else float(not has)
        means.append(total / len(odds))
    return max(means)


@pytest.mark.parametrize("tied", [False, True])
def test_the_threshold_is_the_best_there_is_and_gives_its_score(tied: bool) -> None:
    rng = np.random.default_rng(tied)
    for _ in range(100):
        number = int(rng.integers(1, 12))
        odds = (rng.integers(0, 4, number) * 1.0 if tied else rng.normal(size=number)).tolist()
        answerable = (rng.random(number) < 0.5).tolist()
        scores = [float(rng.integers(0, 3)) / 2 for _ in range(number)]
        value, score = best_threshold(odds, scores, answerable)
        assert score == pytest.approx(brute_force_threshold(odds, scores, answerable))
        rows = zip(odds, scores, answerable, strict=True)
        reached = sum((one if has else 0.0) if odd <= value else float(not has) for odd, one, has in rows)
        assert reached / number == pytest.approx(score)
        assert math.isfinite(value)


def test_the_lowest_of_equally_good_thresholds_is_taken() -> None:
    assert best_threshold([1.0, 2.0], [1.0, 0.0], [True, True]) == (1.0, 0.5)
    assert best_threshold([], [], []) == (0.0, 0.0)
