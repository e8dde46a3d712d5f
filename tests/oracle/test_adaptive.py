"""Adaptive models against slow and obvious implementations, token by token and word by word."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from firth.counts.cache import CacheModel, cache_capacity
from firth.counts.classes import ClassModel, class_tokenizer
from firth.counts.em import em_weights
from firth.counts.mixture import MixtureModel
from firth.counts.recipe import CacheRecipe, ClassRecipe, MixtureRecipe
from firth.lm.language_model import LanguageModel, UnknownWordModel
from firth.tokens.tokenizer import EOS, UNK, Tokenizer
from tests.oracle.slow_adaptive import (
    Distribution,
    TableModel,
    TableRecipe,
    histories,
    random_text,
    slow_cache,
    slow_classes,
    slow_mixture,
    small_tokenizer,
)

CLOSE = {"rel": 1e-12, "abs": 1e-14}
_tokenizer = cache(small_tokenizer)


def base(seed: int, tokenizer: Tokenizer | None = None) -> TableModel:
    return TableModel.random(tokenizer or _tokenizer(), seed)


def compare(model: LanguageModel, slow: Any, seed: int) -> None:
    """`next_logprobs` is the slow distribution after every history of a text, and `token_logprobs` the words of it."""
    stream = random_text(seed)
    logs = np.exp(model.token_logprobs(stream)).tolist()
    for position, history in enumerate(histories(stream)):
        expected: Distribution = slow(history)
        found = np.exp(model.next_logprobs(history))
        assert found.tolist() == pytest.approx(expected, **CLOSE)
        assert found.sum() == pytest.approx(1, abs=1e-12)
        assert logs[position] == pytest.approx(expected[stream.ids[position]], **CLOSE)


def random_weights(recipe: CacheRecipe, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Any weights; none for orders beyond the longest history that is known."""
    rows = recipe.size.bit_length()
    weights = rng.dirichlet(np.ones(recipe.order + 1), size=(recipe.order, rows, rows))
    for known in range(1, recipe.order):
        weights[known - 1, ..., known + 1 :] = 0
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


CACHES: list[dict[str, Any]] = [
    {"order": 1, "size": 5, "decay": None},
    {"order": 1, "size": 5, "decay": 0.3},
    {"order": 2, "size": 1, "decay": 0.1},
    {"order": 2, "size": 8, "decay": None},
    {"order": 3, "size": 9, "decay": 0.5},
    {"order": 3, "size": 100, "decay": 0.02},
    {"order": 3, "size": 100, "decay": 0.0, "cache_eos": False},
    {"order": 3, "size": 100, "decay": 10, "cache_unk": False},
]


@pytest.mark.parametrize("settings", CACHES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cache(settings: dict[str, Any], seed: int) -> None:
    recipe = CacheRecipe(base=TableRecipe(), **settings)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    words = set(rng.permutation(np.arange(5, 13))[: rng.integers(3, 9)].tolist())
    words |= ({EOS} if recipe.cache_eos else set()) | ({UNK} if recipe.cache_unk else set())
    cacheable = np.isin(np.arange(13), list(words))
    weights = random_weights(recipe, rng)

    def row(known: int, times: int, entries: int) -> list[float]:
        found: list[float] = weights[known - 1, int(np.log2(times)), int(np.log2(entries))].tolist()
        return found

    model = CacheModel(recipe, base(seed), cacheable, weights)
    decay = float(recipe.decay or 0)  # type: ignore[arg-type]
    compare(
        model,
        lambda h: slow_cache(model.base, words.__contains__, cache_capacity(recipe), decay, recipe.order, row, h),
        seed,
    )


def test_a_long_text_does_not_wear_the_cache_out() -> None:
    recipe = CacheRecipe(base=TableRecipe(), order=2, size=50, decay=0.4)  # type: ignore[arg-type]
    weights = random_weights(recipe, np.random.default_rng(0))
    model = CacheModel(recipe, base(0), np.arange(13) > 4, weights)
    stream = random_text(7, sentences=900)._replace(starts_document=np.arange(900) == 0)
    logs, found = model.token_logprobs(stream), histories(stream)
    for position in range(0, len(found), 37):
        assert logs[position] == pytest.approx(model.next_logprobs(found[position])[stream.ids[position]], **CLOSE)


@pytest.mark.parametrize(("strength", "keep"), [(1.0, 1.0), (0.3, 0.9), (20.0, 0.5), (2, 0)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_adaptive_mixture(strength: float, keep: float, seed: int) -> None:
    parts = [base(number + 10 * seed) for number in range(3)]
    weights = np.array([0.2, 0.5, 0.3])
    recipe = MixtureRecipe(base=TableRecipe(), prior_strength=strength, decay_factor=keep)  # type: ignore[arg-type]
    model = MixtureModel(recipe, parts, weights)
    compare(model, lambda h: slow_mixture(parts, weights.tolist(), strength, keep, h), seed)


def test_mixture_that_stays() -> None:
    parts, weights = [base(1), base(2)], np.array([0.25, 0.75])
    recipe = MixtureRecipe(base=TableRecipe(), adapt=False, prior_strength=1, decay_factor=1)  # type: ignore[arg-type]
    compare(
        MixtureModel(recipe, parts, weights),
        lambda h: (0.25 * np.exp(parts[0].next_logprobs(h)) + 0.75 * np.exp(parts[1].next_logprobs(h))).tolist(),
        3,
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("delta", [0.01, 1.0])
def test_classes(seed: int, delta: float) -> None:
    rng = np.random.default_rng(seed)
    classes = np.array([*range(5), 5, 6, 7, *rng.integers(5, 8, size=5)], dtype=np.uint32)
    counts = rng.integers(0, 9, size=13)
    inner = base(seed, class_tokenizer(8))
    recipe = ClassRecipe(base=TableRecipe(), delta=delta)  # type: ignore[arg-type]
    model = ClassModel(recipe, _tokenizer(), "lines", UnknownWordModel.train(["a"]), classes, counts, inner)
    compare(model, lambda h: slow_classes(inner, classes.tolist(), counts.tolist(), delta, h), seed)


@pytest.mark.parametrize("seed", range(10))
def test_em_finds_the_best_of_all_pairs_of_weights(seed: int) -> None:
    parts = np.random.default_rng(seed).random((2, 30)) ** 3
    grid = np.linspace(0, 1, 100_001)
    likelihood = np.zeros(grid.size)
    for one, two in parts.T:
        likelihood += np.log(np.maximum(grid * one + (1 - grid) * two, 1e-300))
    best = grid[likelihood.argmax()]
    found = em_weights(parts)
    assert found.history[-1] >= likelihood.max() - 1e-6
    assert found.weights[0] == pytest.approx(best, abs=2e-3)


@pytest.mark.parametrize("seed", range(5))
def test_em_where_each_token_has_one_explanation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, 3, size=50)
    parts = np.where(np.arange(3)[:, None] == owner, rng.random(50) + 0.1, 0.0)
    found = em_weights(parts)
    assert found.weights.tolist() == pytest.approx(np.bincount(owner, minlength=3) / 50, rel=1e-12)
