"""The maximum-entropy model: recipes, training, scoring, saving and loading."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firth.artifact.restore import restore
from firth.counts.maxent import (
    PRIORS,
    MaxentModel,
    MaxentRecipe,
    MaxentScorer,
    MaxentWeights,
    choose_prior,
    fit_weights,
    train_maxent,
)
from firth.counts.trie import NEVER_PREDICTED
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import TokenStream, UnknownWordModel
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS, FIRST_WORD, UNK, Tokenizer
from firth.tokens.train import train_tokenizer

VOCABULARY = 60
SMALL = MaxentRecipe(triggers=40, window=20, prior=1.0, iterations=12)


def topical_text(sentences: int, seed: int) -> TokenStream:
    """Two alternating topics with different words, so that there are trigger pairs."""
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(sentences):
        own = 30 + 15 * (number // 10 % 2) + rng.integers(0, 15, 12)
        common = FIRST_WORD + rng.zipf(1.6, 12) % 25
        lines.append(np.where(rng.random(12) < 0.5, own, common).tolist())
    return TokenStream.of(lines)


@pytest.fixture(scope="module")
def trained() -> MaxentModel:
    lines = ["the stock rose and the shares rose", "the cat sat and the dog sat", "stock fell as shares fell"] * 3
    tokenizer = train_tokenizer(TokenizerRecipe(model="words"), read_corpus([lines], layout="lines"), 1)
    recipe = replace(SMALL, tokenizer=tokenizer.recipe, exclude_bigrams=False)
    empty = MaxentModel(recipe, tokenizer, "lines", no_weights(tokenizer), UnknownWordModel.train(["cat"]))
    weights, _ = train_maxent(recipe, empty.stream(lines, [len(lines)])[0], None, len(tokenizer), 1)
    return MaxentModel(recipe, tokenizer, "lines", weights, UnknownWordModel.train(["cat"]))


def no_weights(tokenizer: Tokenizer) -> MaxentWeights:
    size = len(tokenizer)
    first = np.zeros(3 * size + 1, dtype=np.int64)
    unigrams = np.zeros(size)
    unigrams[list(NEVER_PREDICTED)] = -np.inf
    return MaxentWeights(unigrams, first[:0], first, np.empty(0, dtype=np.uint32), np.empty(0))


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("order", 4, "1, 2 or 3"),
        ("order", 0, "1, 2 or 3"),
        ("triggers", -1, "0 for none"),
        ("window", 0, "from 1 to 10000"),
        ("window", 10_001, "from 1 to 10000"),
        ("min_count", 0, "1 or more"),
        ("prior", 0.0, "above 0"),
        ("prior", math.inf, "above 0"),
        ("prior", math.nan, "above 0"),
        ("iterations", 0, "1 or more"),
    ],
)
def test_impossible_recipes_are_refused(field: str, value: Any, remedy: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(remedy)):
        MaxentRecipe(**{field: value})


def test_recipe_properties() -> None:
    chars = TokenizerRecipe(model="chars")
    assert MaxentRecipe().kind == "counts"
    assert MaxentRecipe(order=2).with_tokenizer(chars) == MaxentRecipe(order=2, tokenizer=chars)


def test_tokens_and_the_next_word_agree_to_the_bit() -> None:
    weights, _ = fit_weights(SMALL, topical_text(60, 0), VOCABULARY, 1)
    ready, stream = MaxentScorer(weights, SMALL.window), topical_text(12, 1)
    logs = ready.token_logprobs(stream)
    for position in range(stream.ids.size):
        after = ready.next_logprobs(stream.ids[:position].tolist())
        assert after[stream.ids[position]] == logs[position]
        assert np.exp(after).sum() == pytest.approx(1, abs=1e-9)
        assert np.all(after[list(NEVER_PREDICTED)] == -np.inf)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.counts.maxent._BLOCK", 100)
    stream, heldout = topical_text(200, 2), topical_text(50, 3)
    recipe = replace(SMALL, prior=None, iterations=6)
    one, report_one = train_maxent(recipe, stream, heldout, VOCABULARY, 1)
    two, report_two = train_maxent(recipe, stream, heldout, VOCABULARY, 2)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert report_one == report_two
    logs = [MaxentScorer(one, recipe.window).token_logprobs(heldout, threads) for threads in (1, 2)]
    assert np.array_equal(*logs)


def test_distance_and_triggers_help() -> None:
    stream, heldout = topical_text(600, 4), topical_text(200, 5)
    rng = np.random.default_rng(6)
    for text in (stream, heldout):  # the last word but one is repeated often
        positions = np.flatnonzero(rng.random(text.ids.size) < 0.3)
        positions = positions[(positions >= 2)]
        positions = positions[np.all([text.ids[positions - back] != EOS for back in range(3)], axis=0)]
        text.ids[positions] = text.ids[positions - 2]
    found = {}
    for distance, triggers in ((False, 0), (True, 0), (False, 200), (True, 200)):
        recipe = replace(SMALL, distance_bigrams=distance, triggers=triggers, iterations=25)
        found[distance, triggers] = train_maxent(recipe, stream, heldout, VOCABULARY, 1)[1]["heldout_perplexity"]
    assert found[True, 0] < 0.97 * found[False, 0]
    assert found[False, 200] < 0.97 * found[False, 0]
    assert found[True, 200] < min(found[True, 0], found[False, 200])


def test_a_trigger_reaches_over_sentences_but_not_over_texts(trained: MaxentModel) -> None:
    assert trained.carries_context
    lines = ["stock rose", "cat cat sat", "shares fell"]
    together, _ = trained.stream(lines, [3])
    apart, _ = trained.stream(lines, [1, 1, 1])
    logs = [trained.token_logprobs(stream) for stream in (together, apart)]
    first = int(together.bounds[1])
    assert np.array_equal(logs[0][:first], logs[1][:first])
    assert not np.array_equal(logs[0][first:], logs[1][first:])
    alone = [trained.token_logprobs(trained.stream([line], [1])[0]) for line in lines]
    assert np.array_equal(np.concatenate(alone), logs[1])
    plain = MaxentModel(
        replace(trained.recipe, triggers=0),
        trained.tokenizer,
        "lines",
        no_weights(trained.tokenizer),
        trained.unknown_word_model,
    )
    assert not plain.carries_context


def test_only_the_window_matters() -> None:
    weights, _ = fit_weights(SMALL, topical_text(60, 0), VOCABULARY, 1)
    ready = MaxentScorer(weights, SMALL.window)
    history = topical_text(5, 7).ids.tolist()[:-1]
    expected = ready.next_logprobs(history[-SMALL.window :])
    assert np.array_equal(ready.next_logprobs(history), expected)
    assert np.array_equal(ready.next_logprobs(history[: -SMALL.window] * 3 + history[-SMALL.window :]), expected)
    assert not np.array_equal(ready.next_logprobs(history[-3:]), expected)


def test_unknown_words_have_a_sensible_probability() -> None:
    """The text has no `<unk>` and not all words of the vocabulary."""
    stream = TokenStream.of([[5, 6, 7, 5, 6], [7, 7, 5]] * 20)
    weights, _ = fit_weights(SMALL, stream, VOCABULARY, 1)
    logs = MaxentScorer(weights, SMALL.window).next_logprobs([])
    assert math.isfinite(weights.unigrams[UNK])
    assert 1e-6 < math.exp(logs[UNK]) < math.exp(logs[7]) / 5
    assert logs[UNK] == pytest.approx(logs[40])


def test_the_prior_is_fitted_on_held_out_text() -> None:
    stream, heldout = topical_text(150, 8), topical_text(60, 9)
    best, tried = choose_prior(SMALL, stream, heldout, VOCABULARY, 1)
    assert best in PRIORS
    assert tried[best] == min(tried.values())
    weights, report = train_maxent(replace(SMALL, prior=None), stream, heldout, VOCABULARY, 1)
    assert (report["prior"], report["tried"]) == (best, tried)
    assert math.exp(-MaxentScorer(weights, 20).token_logprobs(heldout).mean()) == pytest.approx(
        report["heldout_perplexity"]
    )
    noise = TokenStream.of(np.random.default_rng(0).integers(FIRST_WORD, VOCABULARY, (60, 12)).tolist())
    assert choose_prior(SMALL, noise, topical_text(60, 9), VOCABULARY, 1)[0] == PRIORS[0]


def test_without_held_out_text_the_end_of_the_text_is_held_out() -> None:
    stream = topical_text(100, 10)
    sentences = [stream.ids[a : b - 1].tolist() for a, b in zip(stream.bounds[:-1], stream.bounds[1:], strict=True)]
    parts = TokenStream.of(sentences[:90]), TokenStream.of(sentences[90:])
    expected = choose_prior(SMALL, *parts, VOCABULARY, 1)
    assert choose_prior(SMALL, stream, None, VOCABULARY, 1) == expected
    assert choose_prior(SMALL, TokenStream.of(sentences[:1]), None, VOCABULARY, 1) == (2.0, {})


@pytest.mark.parametrize("sentences", [[[]], [[5]], [[5, 5, 5, 5]] * 50, [[1]], [[5], [6], [7]]])
@pytest.mark.parametrize("prior", [None, 1e-3, 1e3])
def test_the_smallest_texts_have_models(sentences: list[list[int]], prior: float | None) -> None:
    weights, report = train_maxent(replace(SMALL, prior=prior), TokenStream.of(sentences), None, VOCABULARY, 1)
    after = MaxentScorer(weights, SMALL.window).next_logprobs(sentences[0])
    assert np.exp(after).sum() == pytest.approx(1, abs=1e-9)
    assert np.all(np.isfinite(after[[UNK, EOS, *range(FIRST_WORD, VOCABULARY)]]))
    assert report["iterations"] >= 1


def test_rare_features_are_left_out() -> None:
    stream = topical_text(80, 11)
    counts = [fit_weights(replace(SMALL, min_count=least), stream, VOCABULARY, 1)[1]["features"] for least in (1, 2, 4)]
    for name in ("bigrams", "trigrams", "distance"):
        assert counts[0][name] > counts[1][name] > counts[2][name] > 0
    none = fit_weights(MaxentRecipe(order=1, distance_bigrams=False, triggers=0, prior=1.0), stream, VOCABULARY, 1)[1]
    assert none["features"] == {"distance": 0, "triggers": 0, "bigrams": 0, "trigrams": 0}


def test_bigrams_are_excluded_from_triggers() -> None:
    stream = topical_text(80, 12)
    every = fit_weights(replace(SMALL, exclude_bigrams=False), stream, VOCABULARY, 1)[1]["triggers"]
    far = fit_weights(SMALL, stream, VOCABULARY, 1)[1]["triggers"]
    bigrams = set(zip(stream.ids[:-1].tolist(), stream.ids[1:].tolist(), strict=True))
    assert any((a, b) in bigrams and a != b for a, b, _ in every)
    assert not any((a, b) in bigrams and a != b for a, b, _ in far)
    assert all(millibits > 0 for _, _, millibits in far)


def test_triggered_words(trained: MaxentModel) -> None:
    found = trained.triggered_by("stock")
    assert dict(found)
    assert [weight for _, weight in found] == sorted((weight for _, weight in found), reverse=True)
    assert trained.triggered_by("neverseen") == []


def test_scoring_prediction_and_generation(trained: MaxentModel) -> None:
    likely, unlikely = trained.score(["the stock rose", "rose stock the"])
    assert likely.logprob > unlikely.logprob
    assert sum(probability for _, probability in trained.next("the stock", top=None)) == pytest.approx(1, abs=1e-9)
    assert trained.generate("the", seed=1) == trained.generate("the", seed=1)


def test_arrays_round_trip(trained: MaxentModel) -> None:
    again = restore(trained.recipe, trained.arrays(), trained.tokenizer, "lines")
    stream, _ = trained.stream(["the stock fell", "as unheard of shares"], [2])
    assert np.array_equal(again.token_logprobs(stream), trained.token_logprobs(stream))
    assert again.arrays().keys() == trained.arrays().keys()
    assert all(np.array_equal(array, trained.arrays()[name]) for name, array in again.arrays().items())


DAMAGE: dict[str, Callable[[Any], Any]] = {
    "unigrams": lambda array: array[1:],
    "pairs": lambda array: array[::-1].copy(),
    "first": lambda array: array[::-1].copy(),
    "words": lambda array: array + np.uint32(1000),
    "weights": lambda array: array * np.nan,
    "spelling": lambda array: array.astype(float),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_arrays_are_refused(trained: MaxentModel, name: str) -> None:
    arrays = trained.arrays()
    for wrong in ({k: v for k, v in arrays.items() if k != name}, {**arrays, name: DAMAGE[name](arrays[name])}):
        with pytest.raises(ArtifactError, match="train it again"):
            restore(trained.recipe, wrong, trained.tokenizer, "lines")


def test_the_report_shows_words_of_one_topic_as_triggers() -> None:
    """The first pairs consist of words of the same topic."""
    _, report = fit_weights(replace(SMALL, exclude_bigrams=False), topical_text(600, 13), VOCABULARY, 1)
    for a, b, _ in report["triggers"][:10]:
        assert a >= 30
        assert b >= 30
    assert report["features"]["triggers"] == 40


def test_variances_are_compared_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first quarter of the text, with a quarter of the minimum count."""
    stream, heldout = topical_text(200, 14), topical_text(20, 15)
    quarter = TokenStream(stream.ids[: stream.bounds[50]], stream.bounds[:51], stream.starts_document[:50])
    expected = choose_prior(SMALL, quarter, heldout, VOCABULARY, 1)
    monkeypatch.setattr("firth.counts.maxent._SAMPLE_TOKENS", stream.ids.size // 4)
    assert choose_prior(replace(SMALL, min_count=4), stream, heldout, VOCABULARY, 1) == expected
