"""EM for mixture weights: monotone likelihood, convergence, and zero probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts.em import (
    MAX_ITERATIONS,
    add_prefix,
    document_starts,
    em_weights,
    history_stream,
    saved_array,
    saved_weights,
    strip_prefix,
)
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import TokenStream
from firth.tokens.tokenizer import EOS


def test_one_iteration_by_hand() -> None:
    parts = np.array([[0.4, 0.1], [0.1, 0.3]])
    start = np.array([0.5, 0.5])
    found = em_weights(parts, start)
    assert found.history[0] == pytest.approx(np.log(0.25) + np.log(0.2))
    after = np.array([0.8 + 0.25, 0.2 + 0.75]) / 2
    assert found.history[1] == pytest.approx(np.log(after @ parts).sum())


def test_the_maximum_by_hand() -> None:
    """With (a, b) n times and (b, a) m times, the weight of the first is (n a - m b) / ((n + m)(a - b))."""
    parts = np.array([[0.5] * 7 + [0.1] * 3, [0.1] * 7 + [0.5] * 3])
    assert em_weights(parts).weights[0] == pytest.approx((7 * 0.5 - 3 * 0.1) / (10 * 0.4), abs=1e-3)


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.lists(
            st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 0.01, 0.3, 1.0]), min_size=count, max_size=count), max_size=30
        ).map(lambda rows: np.array(rows, dtype=np.float64).reshape(-1, count).T)
    )
)
def test_the_likelihood_never_falls(parts: np.ndarray) -> None:
    found = em_weights(parts)
    assert np.all(np.diff(found.history) >= -1e-9 * np.abs(found.history[:-1]))
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(found.weights >= 0)
    assert found.left_out == np.count_nonzero(~parts.any(axis=0))
    assert 1 <= found.history.size <= MAX_ITERATIONS + 1


def test_the_start_does_not_matter() -> None:
    parts = np.random.default_rng(0).random((3, 200))
    one, two = em_weights(parts), em_weights(parts, np.array([0.98, 0.01, 0.01]))
    assert one.weights == pytest.approx(two.weights, abs=1e-2)
    assert one.history[-1] == pytest.approx(two.history[-1], rel=1e-6)
    assert np.array_equal(one.weights, em_weights(parts).weights)


def test_zeros() -> None:
    parts = np.array([[0.0, 0.0, 0.2], [0.0, 0.5, 0.0]])
    found = em_weights(parts)
    assert found.left_out == 1
    assert found.weights.tolist() == [0.5, 0.5]
    nothing = em_weights(np.zeros((2, 3)))
    assert (nothing.left_out, nothing.weights.tolist(), nothing.history.tolist()) == (3, [0.5, 0.5], [0.0])
    assert em_weights(np.zeros((4, 0))).weights.tolist() == [0.25] * 4
    useless = em_weights(np.array([[0.5, 0.5], [0.0, 0.0]]))
    assert useless.weights[1] == pytest.approx(0, abs=1e-9)


def test_a_prior_is_a_pseudo_count() -> None:
    parts = np.random.default_rng(1).random((2, 40))
    imagined = np.hstack([np.repeat([[1.0], [0.0]], 6, axis=1), np.repeat([[0.0], [1.0]], 2, axis=1), parts])
    assert em_weights(parts, prior=np.array([6.0, 2.0])).weights == pytest.approx(
        em_weights(imagined).weights, rel=1e-9
    )
    assert em_weights(np.zeros((2, 0)), prior=np.array([3.0, 1.0])).weights.tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("parts", "start", "message"),
    [
        (np.zeros((0, 3)), None, "at least one component"),
        (np.zeros(3), None, "at least one component"),
        (np.array([[-0.1]]), None, "must give probabilities"),
        (np.array([[np.nan]]), None, "must give probabilities"),
        (np.ones((2, 1)), np.array([1.0, 0.0]), "weights above 0"),
        (np.ones((2, 1)), np.array([1.0]), "2 weights"),
    ],
)
def test_invalid_mixtures(parts: np.ndarray, start: np.ndarray | None, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        em_weights(parts, start)


def test_histories_become_streams() -> None:
    stream = history_stream([])
    assert (stream.ids.tolist(), stream.bounds.tolist(), stream.starts_document.tolist()) == ([EOS], [0, 1], [True])
    stream = history_stream([7, EOS])
    assert (stream.ids.tolist(), stream.bounds.tolist(), stream.starts_document.tolist()) == (
        [7, 3, 3],
        [0, 2, 3],
        [True, False],
    )
    assert document_starts(TokenStream.of([[5], [6, 7]], starts_document=True)).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_arrays_of_parts_do_not_mix() -> None:
    kept = add_prefix("part1", {"w": np.zeros(1)}) | add_prefix("part10", {"w": np.ones(2)}) | {"w": np.ones(3)}
    assert list(kept) == ["part1.w", "part10.w", "w"]
    assert strip_prefix("part1", kept)["w"].size == 1
    assert list(strip_prefix("part2", kept)) == []


@pytest.mark.parametrize("array", [None, np.zeros(3, dtype=np.float32), np.zeros((1, 3)), np.zeros(2)])
def test_damaged_arrays_are_refused(array: np.ndarray | None) -> None:
    with pytest.raises(ArtifactError, match="'w' is missing or not float64 of 3"):
        saved_array({} if array is None else {"w": array}, "w", np.float64, (3,))


@pytest.mark.parametrize("weights", [[0.5, 0.4], [1.5, -0.5], [np.nan, 1.0], []])
def test_damaged_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ArtifactError, match="do not sum to 1"):
        saved_weights({"w": np.array(weights)}, "w", (None,))
