"""The maximum-entropy model against slow and obvious Python, and against solutions that are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.counts.maxent import MaxentScorer, MaxentWeights, fit_weights
from firth.counts.maxent_features import Likelihood, find_features
from firth.counts.recipe import MaxentRecipe
from firth.counts.trie import NEVER_PREDICTED
from firth.lm.language_model import TokenStream
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, UNK

VOCABULARY = 11
PREDICTED = [word for word in range(VOCABULARY) if word not in NEVER_PREDICTED]
FREE = 1e10
"""A prior that hardly holds any weight back."""


def some_text(seed: int, sentences: int = 30, starts_document: bool = False) -> TokenStream:
    """Sentences of uneven words, each of its own text or all of one."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(VOCABULARY - FIRST_WORD))
    words = [rng.choice(VOCABULARY - FIRST_WORD, size=rng.integers(0, 9), p=shares) for _ in range(sentences)]
    return TokenStream.of([(FIRST_WORD + sentence).tolist() for sentence in words], starts_document=starts_document)


def recipe_for(order: int = 3, triggers: int = 12, **fields: object) -> MaxentRecipe:
    return MaxentRecipe(order=order, triggers=triggers, window=7, prior=1.5, iterations=15, **fields)  # type: ignore[arg-type]


def some_weights(stream: TokenStream, recipe: MaxentRecipe, seed: int = 0) -> MaxentWeights:
    """The features of a text with weights drawn at random."""
    rng = np.random.default_rng(seed)
    features = find_features(recipe, stream, VOCABULARY)
    unigrams = rng.normal(size=VOCABULARY)
    unigrams[list(NEVER_PREDICTED)] = -np.inf
    return MaxentWeights(unigrams, features.pairs, features.first, features.words, rng.normal(size=features.words.size))


def slow_distribution(weights: MaxentWeights, history: list[int], window: int) -> list[float]:
    """p(w|h) of every word, with the normaliser summed over the whole vocabulary. The history is that of one text."""
    table: dict[tuple[object, ...], float] = {}
    for context in range(weights.first.size - 1):
        kind, word = divmod(context, VOCABULARY)
        if kind < 3:
            name: tuple[object, ...] = (("distance", "trigger", "bigram")[kind], word)
        else:
            name = ("trigram", *divmod(int(weights.pairs[context - 3 * VOCABULARY]), VOCABULARY))
        for feature in range(weights.first[context], weights.first[context + 1]):
            table[(*name, int(weights.words[feature]))] = float(weights.weights[feature])
    ends = [position for position, word in enumerate(history) if word == EOS]
    sentence = [BOS, *history[ends[-1] + 1 if ends else 0 :]]
    active: list[tuple[object, ...]] = [("bigram", sentence[-1])]
    if len(sentence) > 1:
        active += [("distance", sentence[-2]), ("trigram", sentence[-2], sentence[-1])]
    active += [("trigger", word) for word in set(history[-window:])]
    scores = {
        word: weights.unigrams[word] + sum(table.get((*context, word), 0.0) for context in active) for word in PREDICTED
    }
    normaliser = math.fsum(math.exp(score) for score in scores.values())
    return [math.exp(scores[word]) / normaliser if word in scores else 0.0 for word in range(VOCABULARY)]


def histories(stream: TokenStream) -> list[list[int]]:
    """The history of each position within its document."""
    found, text = [], 0
    for sentence, starts_document in enumerate(stream.starts_document):
        text = int(stream.bounds[sentence]) if starts_document else text
        begin, end = int(stream.bounds[sentence]), int(stream.bounds[sentence + 1])
        found += [stream.ids[text:position].tolist() for position in range(begin, end)]
    return found


@pytest.mark.parametrize("starts_document", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("distance", [False, True])
@pytest.mark.parametrize("triggers", [0, 12])
def test_probabilities_are_those_of_the_formula(
    starts_document: bool, order: int, distance: bool, triggers: int
) -> None:
    recipe = recipe_for(order, triggers, distance_bigrams=distance, exclude_bigrams=False)
    weights = some_weights(some_text(1), recipe)
    stream = some_text(2, starts_document=starts_document)
    found = MaxentScorer(weights, recipe.window).token_logprobs(stream)
    expected = [
        slow_distribution(weights, history, recipe.window)[word]
        for history, word in zip(histories(stream), stream.ids.tolist(), strict=True)
    ]
    assert np.exp(found) == pytest.approx(expected, rel=1e-12)
    assert found == pytest.approx(np.log(expected), abs=1e-12)


def test_the_whole_distribution_is_that_of_the_formula() -> None:
    recipe = recipe_for(exclude_bigrams=False)
    weights = some_weights(some_text(1), recipe)
    ready = MaxentScorer(weights, recipe.window)
    for history in histories(some_text(3, sentences=8)):
        expected = slow_distribution(weights, history, recipe.window)
        assert np.exp(ready.next_logprobs(history)) == pytest.approx(expected, rel=1e-12)


def test_features_are_counted() -> None:
    """The count of every feature, from all positions."""
    stream = some_text(4, starts_document=True)
    recipe = recipe_for(exclude_bigrams=False, min_count=2)
    features = find_features(recipe, stream, VOCABULARY)
    seen: dict[tuple[int, ...], int] = {}
    for history, word in zip(histories(stream), stream.ids.tolist(), strict=True):
        ends = [position for position, one in enumerate(history) if one == EOS]
        sentence = [BOS, *history[ends[-1] + 1 if ends else 0 :]]
        active = [(2 * VOCABULARY + sentence[-1],), *((VOCABULARY + one,) for one in set(history[-7:]))]
        if len(sentence) > 1:
            active += [(sentence[-2],), (3 * VOCABULARY, sentence[-2], sentence[-1])]
        for context in active:
            seen[*context, word] = seen.get((*context, word), 0) + 1
    found = {}
    for context in range(features.first.size - 1):
        pair = divmod(int(features.pairs[context - 3 * VOCABULARY]), VOCABULARY) if context >= 3 * VOCABULARY else ()
        for feature in range(features.first[context], features.first[context + 1]):
            word = int(features.words[feature])
            found[min(context, 3 * VOCABULARY), *pair, word] = int(features.counts[feature])
    triggers = {key for key in found if VOCABULARY <= key[0] < 2 * VOCABULARY}
    assert len(triggers) == 12
    frequent = {key: count for key, count in seen.items() if count >= 2 and not VOCABULARY <= key[0] < 2 * VOCABULARY}
    assert {key: count for key, count in found.items() if key not in triggers} == frequent
    assert all(found[key] == seen[key] for key in triggers)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("distance", [False, True])
@pytest.mark.parametrize("triggers", [0, 12])
def test_the_gradient_equals_finite_differences(order: int, distance: bool, triggers: int) -> None:
    stream, recipe = some_text(5), recipe_for(order, triggers, distance_bigrams=distance, exclude_bigrams=False)
    features = find_features(recipe, stream, VOCABULARY)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=VOCABULARY + features.words.size)
    likelihood = Likelihood(features, stream, recipe.window, 1.5)
    _, slope = likelihood(weights)
    for number in range(weights.size):
        step = np.zeros(weights.size)
        step[number] = 1e-5
        difference = (likelihood(weights + step)[0] - likelihood(weights - step)[0]) / 2e-5
        assert slope[number] == pytest.approx(difference, abs=1e-6), number


def test_the_likelihood_is_that_of_the_probabilities() -> None:
    stream, recipe = some_text(6), recipe_for(exclude_bigrams=False)
    weights = some_weights(stream, recipe)
    features = find_features(recipe, stream, VOCABULARY)
    flat = np.concatenate([np.where(np.isfinite(weights.unigrams), weights.unigrams, 0), weights.weights])
    likelihood = Likelihood(features, stream, recipe.window, 1.5)
    value = likelihood(flat)[0] - likelihood.penalty(flat)
    assert likelihood.penalty(flat) == pytest.approx(np.sum(flat**2) / 3)
    assert value == pytest.approx(-MaxentScorer(weights, recipe.window).token_logprobs(stream).sum(), rel=1e-12)


@pytest.mark.parametrize("triggers", [0, 12])
def test_at_the_best_weights_every_feature_is_expected_as_often_as_it_occurs(triggers: int) -> None:
    """With the prior's pull, weight / variance, for the difference (Chen and Rosenfeld, 2000)."""
    stream, recipe = some_text(7), replace(recipe_for(triggers=triggers), iterations=2000)
    weights, _ = fit_weights(recipe, stream, VOCABULARY, None)
    features = find_features(recipe, stream, VOCABULARY)
    expected_words, expected = np.zeros(VOCABULARY), dict.fromkeys(range(weights.words.size), 0.0)
    for history in histories(stream):
        probabilities = slow_distribution(weights, history, recipe.window)
        expected_words += probabilities
        ends = [position for position, word in enumerate(history) if word == EOS]
        sentence = [BOS, *history[ends[-1] + 1 if ends else 0 :]]
        contexts = [2 * VOCABULARY + sentence[-1], *(VOCABULARY + word for word in set(history[-recipe.window :]))]
        if len(sentence) > 1:
            key = sentence[-2] * VOCABULARY + sentence[-1]
            contexts += [sentence[-2], *(3 * VOCABULARY + np.flatnonzero(weights.pairs == key)).tolist()]
        for context in contexts:
            for feature in range(weights.first[context], weights.first[context + 1]):
                expected[feature] += probabilities[weights.words[feature]]
    wanted = features.counts - weights.weights / 1.5
    assert np.array(list(expected.values())) == pytest.approx(wanted, abs=1e-3)
    counts = np.bincount(stream.ids, minlength=VOCABULARY)[PREDICTED]
    assert expected_words[PREDICTED] == pytest.approx(counts - weights.unigrams[PREDICTED] / 1.5, abs=1e-3)


def test_words_alone_without_a_prior_are_relative_frequencies() -> None:
    stream = TokenStream.of([[5, 5, 6], [UNK, 7, 8, 9, 10]])
    recipe = MaxentRecipe(order=1, distance_bigrams=False, triggers=0, prior=FREE, iterations=1000)
    weights, report = fit_weights(recipe, stream, VOCABULARY, None)
    counts = np.bincount(stream.ids, minlength=VOCABULARY)
    assert np.exp(MaxentScorer(weights, 1).next_logprobs([])) == pytest.approx(counts / counts.sum(), abs=1e-5)
    entropy = -sum(count / 10 * math.log(count / 10) for count in counts if count)
    assert report["perplexity"] == pytest.approx(math.exp(entropy), rel=1e-6)


def test_bigrams_without_a_prior_are_relative_frequencies() -> None:
    """All bigrams of the words are seen, so that there is a weight for every probability."""
    vocabulary = 7
    rng = np.random.default_rng(0)
    sentences = [rng.choice([UNK, 5, 6], size=rng.integers(0, 6), p=[0.2, 0.5, 0.3]).tolist() for _ in range(200)]
    stream = TokenStream.of(sentences)
    recipe = MaxentRecipe(order=2, distance_bigrams=False, triggers=0, prior=FREE, iterations=3000)
    weights, _ = fit_weights(recipe, stream, vocabulary, None)
    ready = MaxentScorer(weights, 1)
    for before in (BOS, UNK, 5, 6):
        positions = stream.bounds[:-1] if before == BOS else np.flatnonzero(stream.ids[:-1] == before) + 1
        counts = np.bincount(stream.ids[positions], minlength=vocabulary)
        assert np.all(counts[[UNK, EOS, 5, 6]] > 0)
        found = np.exp(ready.next_logprobs([] if before == BOS else [before]))
        assert found == pytest.approx(counts / counts.sum(), abs=1e-4)


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(FIRST_WORD, VOCABULARY - 1), max_size=6), min_size=1, max_size=8),
    st.lists(st.sampled_from([UNK, EOS, *range(FIRST_WORD, VOCABULARY)]), max_size=20),
    st.sampled_from([1e-6, 0.1, 2.0, 1e6]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 20),
    st.integers(1, 30),
)
def test_every_distribution_sums_to_one(
    sentences: list[list[int]], history: list[int], prior: float, order: int, distance: bool, triggers: int, window: int
) -> None:
    recipe = MaxentRecipe(
        order=order,
        distance_bigrams=distance,
        triggers=triggers,
        window=window,
        prior=prior,
        iterations=20,
        exclude_bigrams=False,
    )
    weights, report = fit_weights(recipe, TokenStream.of(sentences), VOCABULARY, 1)
    found = np.exp(MaxentScorer(weights, window).next_logprobs(history))
    assert found.sum() == pytest.approx(1, abs=1e-9)
    assert np.all(found[PREDICTED] > 0)
    assert np.all(found[list(NEVER_PREDICTED)] == 0)
    assert 1 <= report["perplexity"] < VOCABULARY + 1


def test_a_normaliser_that_all_but_vanishes_is_still_exact() -> None:
    """A feature that takes nearly all the mass away leaves too few digits to subtract: the sum is taken afresh."""
    stream, recipe = TokenStream.of([[5, 6, 7, 8, 9, 10]]), MaxentRecipe(order=2, distance_bigrams=False, triggers=0)
    weights = some_weights(stream, recipe)
    weights.unigrams[6] = 40.0
    weights.weights[:] = -80.0
    found = np.exp(MaxentScorer(weights, 1).next_logprobs([5]))
    assert found == pytest.approx(slow_distribution(weights, [5], 1), rel=1e-12)
    assert found.sum() == pytest.approx(1, abs=1e-12)
