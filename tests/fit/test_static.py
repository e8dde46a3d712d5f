"""Static vectors: means of contexts, principal components, weights and the fit against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from firth.errors import RecipeError
from firth.fit.compress.static import (
    StaticOptions,
    context_means,
    fit_vectors,
    principal_components,
    sample_sentences,
    token_weights,
)
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD
from firth.tokens.train import train_tokenizer
from tests.nets.small_nets import CHINESE, ENGLISH, small_net


def test_a_vector_is_the_mean_of_its_contexts() -> None:
    """The states of `the` in two sentences, from the layers of the model, and its state alone if that is asked for."""
    model = small_net("bert", length=32)
    texts = [ENGLISH[0], "The fox"]
    options = StaticOptions(min_contexts=1)
    found = context_means(model, model.tokenizer, "tokens", texts, options, "mean")
    token = "fox"
    states = []
    for text in texts:
        tokens = model.tokenizer.tokenize(text)
        states += [model.layers([text])[0][-1][at] for at, one in enumerate(tokens) if one == token]
    assert len(states) == 2
    row = model.tokenizer.id(token)
    assert found[row] == pytest.approx(np.mean(states, axis=0), abs=1e-5)
    alone = context_means(model, model.tokenizer, "tokens", texts, StaticOptions(contexts="alone"), "mean")
    assert alone[row] == pytest.approx(model.layers([token])[0][-1][0], abs=1e-5)
    # With 2 of 3 contexts, a third of the vector is that of the token alone.
    mixed = context_means(model, model.tokenizer, "tokens", texts, StaticOptions(min_contexts=3), "mean")
    assert mixed[row] == pytest.approx((2 * found[row] + alone[row]) / 3, abs=1e-5)
    assert not found[:FIRST_WORD].any()


def test_chinese_words_of_characters() -> None:
    """A word of two characters has the mean of their states."""
    model = small_net("bert", kind="chars", length=64)
    recipe = TokenizerRecipe(model="words", min_count=1)
    words = train_tokenizer(recipe, read_corpus([CHINESE]))
    assert "语言" in words.vocabulary
    found = context_means(model, words, "words", CHINESE[:1], StaticOptions(min_contexts=1), "mean")
    text = CHINESE[0]
    states = model.layers([text])[0][-1]
    wanted = [states[at : at + 2].mean(0) for at in range(len(text)) if text[at : at + 2] == "语言"]
    segmented = words.tokenize(text)
    assert segmented.count("语言") == 1, segmented  # the other is a part of a longer word
    assert any(np.allclose(found[words.id("语言")], one, atol=1e-4) for one in wanted)


def test_principal_components_by_hand() -> None:
    """Points on a line: the first component has their distances from the mean, the second nothing."""
    rows = np.zeros((FIRST_WORD + 3, 2), dtype=np.float32)
    rows[FIRST_WORD:] = [[0, 0], [3, 4], [6, 8]]
    found = principal_components(rows, 2)
    assert found.rows[FIRST_WORD:, 0] == pytest.approx([-5, 0, 5])
    assert found.rows[FIRST_WORD:, 1] == pytest.approx([0, 0, 0], abs=1e-5)
    assert found.mean == pytest.approx([3, 4])
    assert not found.rows[:FIRST_WORD].any()


def test_weights_by_hand() -> None:
    counts = np.array([0] * FIRST_WORD + [6, 1, 3])
    sif = token_weights(counts, StaticOptions(smoothing=0.1))[FIRST_WORD:]
    assert sif == pytest.approx([0.1 / 0.7, 0.1 / 0.2, 0.1 / 0.4])
    zipf = token_weights(counts, StaticOptions(weighting="zipf"))[FIRST_WORD:]
    assert zipf == pytest.approx(np.log([2, 4, 3]))
    assert token_weights(counts, StaticOptions(weighting="none"))[FIRST_WORD:].tolist() == [1, 1, 1]


def test_the_fit_is_ridge_regression() -> None:
    """Against the normal equations of (s A)' (s A) + penalty, solved directly."""
    rng = np.random.default_rng(0)
    size = FIRST_WORD + 4
    vectors = np.zeros((size, 3), dtype=np.float32)
    vectors[FIRST_WORD:] = rng.normal(size=(4, 3))
    texts = [rng.integers(FIRST_WORD, size, rng.integers(1, 5)) for _ in range(12)]
    ids, bounds = np.concatenate(texts), np.concatenate([[0], np.cumsum([len(one) for one in texts])])
    wanted = rng.normal(size=(12, 3))
    found = fit_vectors(vectors, ids, bounds, wanted, 0.7)
    matrix = np.zeros((12, size))
    for row, one in enumerate(texts):
        np.add.at(matrix[row], one, 1 / len(one))
    first = matrix @ vectors
    scale = (first * wanted).sum() / (first**2).sum()
    penalty = 0.7 * scale**2 * np.mean([1 / len(one) for one in texts]) ** 2
    left = scale**2 * matrix.T @ matrix + penalty * np.eye(size)
    exact = vectors + np.linalg.solve(left, scale * matrix.T @ (wanted - scale * first))
    assert found == pytest.approx(exact, abs=1e-4)


def test_sentences_are_sampled_once_and_alike() -> None:
    corpus = read_corpus([[f"sentence {number % 50}" for number in range(100)]], layout="lines")
    some = sample_sentences(corpus, 20, 1)
    assert len(set(some)) == len(some) == 20
    assert some == sample_sentences(corpus, 20, 1)
    assert len(sample_sentences(corpus, 1000, 1)) == 50


@pytest.mark.parametrize("change", [{"dimension": 0}, {"ridge": 0.0}, {"sentences": 0}, {"smoothing": 0.0}])
def test_impossible_options(change: dict[str, float]) -> None:
    with pytest.raises(RecipeError):
        StaticOptions(**change)  # type: ignore[arg-type]
