"""The bootstrap: the same as drawing examples, right in width, the same for the same seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firth.metrics import bootstrap
from firth.metrics.bootstrap import (
    Floats,
    Sample,
    interval,
    kinds_of,
    measured,
    ratio,
    resamples,
    sums_by_code,
    sums_sample,
)


def accuracy_sample(right: int, wrong: int) -> Sample:
    rows = np.array([[1.0]] * right + [[0.0]] * wrong)
    return sums_sample(rows, lambda sums, count: {"accuracy": sums[:, 0] / count})


@pytest.mark.parametrize(("right", "wrong"), [(80, 20), (450, 50), (1000, 1000)])
def test_the_interval_of_accuracy_is_close_to_the_binomial_one(right: int, wrong: int) -> None:
    found = measured(accuracy_sample(right, wrong), samples=4000)
    total = right + wrong
    share = right / total
    half = 1.96 * math.sqrt(share * (1 - share) / total)
    assert found["accuracy"] == share
    assert found["accuracy_interval"] == pytest.approx([share - half, share + half], abs=0.15 * half + 0.5 / total)


def test_intervals_hold_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        right = int(rng.binomial(200, 0.7))
        low, high = measured(accuracy_sample(right, 200 - right), samples=300)["accuracy_interval"]
        held += low <= 0.7 <= high
    assert 0.90 <= held / 300 <= 0.99


def test_drawing_kinds_is_drawing_examples() -> None:
    """The spread of the weights is that of counts of examples drawn one by one."""
    counts = np.array([5, 3, 1, 1])
    weights = np.concatenate(list(resamples(counts, seed=1, samples=20_000)))
    assert weights.sum(axis=1) == pytest.approx(10)
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(4), counts)
    drawn = np.array([np.bincount(labels[rng.integers(0, 10, 10)], minlength=4) for _ in range(20_000)])
    assert weights.mean(axis=0) == pytest.approx(counts, abs=0.05)
    assert np.cov(weights.T) == pytest.approx(np.cov(drawn.T), abs=0.08)


def test_the_same_seed_gives_the_same_interval_whatever_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = accuracy_sample(60, 23)
    whole = measured(sample, seed=7)
    monkeypatch.setattr(bootstrap, "_MAX_WEIGHTS", 6)
    assert measured(sample, seed=7) == whole
    drawn = [np.concatenate(list(resamples(sample.counts, seed, 50))) for seed in (7, 8)]
    assert (drawn[0] != drawn[1]).any()


def test_more_resamples_begin_with_the_same_ones() -> None:
    counts = np.array([4, 4])
    few, many = (np.concatenate(list(resamples(counts, 3, samples))) for samples in (5, 9))
    assert (many[:5] == few).all()


def test_what_does_not_vary_has_an_interval_without_width() -> None:
    assert measured(accuracy_sample(9, 0)) == {"accuracy": 1.0, "accuracy_interval": [1.0, 1.0]}
    assert measured(accuracy_sample(0, 1))["accuracy_interval"] == [0.0, 0.0]


def test_intervals_are_percentiles() -> None:
    assert interval(np.arange(1001.0)) == pytest.approx([25.0, 975.0])
    assert interval(np.arange(101.0), level=0.5) == [25.0, 75.0]


def test_sums_by_code_is_a_product_with_indicators() -> None:
    rng = np.random.default_rng(0)
    weights, codes = rng.random((4, 9)), rng.integers(0, 5, 9)
    codes[codes == 2] = 3  # a code that does not occur
    assert sums_by_code(weights, codes, 5) == pytest.approx(weights @ np.eye(5)[codes])
    assert (sums_by_code(weights[:, :0], codes[:0], 5) == 0).all()


def test_kinds_and_ratios() -> None:
    kinds, counts = kinds_of(["b", "a", "b"])
    assert (kinds, counts.tolist()) == (["b", "a"], [2, 1])
    part: Floats = np.array([1.0, 0.0, 3.0])
    assert ratio(part, np.array([2.0, 0.0, 0.0])).tolist() == [0.5, 0.0, 0.0]
