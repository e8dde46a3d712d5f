"""The maximum-entropy model: n-grams, distance-2 bigrams and trigger pairs in one distribution (Rosenfeld, 1996).

    p(w|h) = exp(sum of the weights of the features active in (h, w)) / Z(h)

Among all distributions with the feature expectations of the text, this form has the highest entropy. The weights
maximise the likelihood under a Gaussian prior (Chen and Rosenfeld, 2000), which keeps unseen events possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import in_order
from firth.counts import _maxent_kernels as kernels
from firth.counts.em import history_stream, saved_array
from firth.counts.maxent_features import Likelihood, find_active_features, find_features
from firth.counts.recipe import MaxentRecipe
from firth.counts.trie import NEVER_PREDICTED, Floats, Integers, WordIds
from firth.errors import ArtifactError
from firth.lm.language_model import LanguageModel, TokenStream, UnknownWordModel, restore_spelling
from firth.progress import progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer

PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # the variances tried on held-out text
_DEFAULT_PRIOR = 2.0
_SAMPLE_TOKENS = 100_000  # of training text for the choice of the variance
_TRIAL_ITERATIONS = 20
_BLOCK = 1 << 14  # positions scored per task of a thread
_TOLERANCE = 1e-9
_SCALING = -0.4  # found on the Penn Treebank; -0.5 would equalise the curvature if features did not overlap


class MaxentWeights(NamedTuple):
    """The features of a model and their weights.

    A context is a word w as the last but one (number w), anywhere in the window (V + w) or last (2V + w), or the last
    two words `pairs[k]` (3V + k). Context c has the features `first[c]:first[c + 1]`.
    """

    unigrams: Floats  # -inf for words that are never predicted
    pairs: Integers  # the histories of trigrams as first * V + second, ascending
    first: Integers
    words: WordIds  # the word that each feature predicts
    weights: Floats


class MaxentModel(LanguageModel):
    """A maximum-entropy model."""

    def __init__(
        self,
        recipe: MaxentRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        weights: MaxentWeights,
        unknown_word_model: UnknownWordModel,
    ) -> None:
        super().__init__(recipe, tokenizer, layout, unknown_word_model)
        self.weights = weights
        self._scorer = MaxentScorer(weights, recipe.window)

    @property
    def carries_context(self) -> bool:  # type: ignore[override]  # of a class elsewhere, here of a recipe
        """Whether there are trigger pairs."""
        return bool(self.recipe.triggers)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {**self.weights._asdict(), "spelling": self.unknown_word_model.counts}

    def token_logprobs(self, stream: TokenStream) -> Floats:
        return self._scorer.token_logprobs(stream)

    def next_logprobs(self, history: Sequence[int]) -> Floats:
        return self._scorer.next_logprobs(history)

    def triggered_by(self, word: str) -> list[tuple[str, float]]:
        """The words triggered by a word and their weights, in descending order."""
        context = self.weights.unigrams.size + self.tokenizer.id(word)
        features = range(int(self.weights.first[context]), int(self.weights.first[context + 1]))
        found = [(self.tokenizer.vocabulary[self.weights.words[k]], float(self.weights.weights[k])) for k in features]
        return sorted(found, key=lambda pair: -pair[1])


class MaxentScorer:
    """The exponentials of the weights, ready for scoring."""

    def __init__(self, weights: MaxentWeights, window: int) -> None:
        self.window = window
        self.pairs = weights.pairs
        self.vocab_size = weights.unigrams.size
        self.index = (weights.first, weights.words)
        self.unigrams, self.factors = np.exp(weights.unigrams), np.exp(weights.weights)
        self.total = float(self.unigrams.sum())

    def token_logprobs(self, stream: TokenStream, threads: int | None = None) -> Floats:
        out = np.empty(stream.ids.size)
        score = self._block_scorer(stream, out, np.empty(0))
        list(in_order(lambda begin: score(begin, min(begin + _BLOCK, out.size)), range(0, out.size, _BLOCK), threads))
        return out

    def next_logprobs(self, history: Sequence[int]) -> Floats:
        stream = history_stream(history[-max(self.window, 3) :])
        last, distribution = stream.ids.size - 1, np.empty(self.vocab_size)
        self._block_scorer(stream, np.empty(last + 1), distribution)(last, last + 1)
        return distribution

    def _block_scorer(self, stream: TokenStream, out: Floats, distribution: Floats) -> Callable[[int, int], None]:
        """A function of `begin` and `end` that fills `out` there, and `distribution` at the last position."""
        active = find_active_features(stream, self.index, self.pairs, self.vocab_size, self.window)
        model = self.index, self.factors, self.unigrams, self.total

        def score(begin: int, end: int) -> None:
            kernels.score_positions(begin, end, stream.ids, tuple(active), *model, out, distribution)

        return score


def train_maxent(
    recipe: MaxentRecipe, stream: TokenStream, heldout: TokenStream | None, vocab_size: int, threads: int | None = None
) -> tuple[MaxentWeights, dict[str, Any]]:
    """The weights with the highest likelihood under the prior, and a report on the prior, features and triggers."""
    tried: dict[float, float] = {}
    prior = recipe.prior
    if prior is None:
        prior, tried = choose_prior(recipe, stream, heldout, vocab_size, threads)
    weights, report = fit_weights(replace(recipe, prior=prior), stream, vocab_size, threads)
    report |= {"prior": prior, "tried": tried}
    if heldout is not None and heldout.ids.size:
        report["heldout_perplexity"] = _perplexity(weights, recipe.window, heldout, threads)
    return weights, report


def choose_prior(
    recipe: MaxentRecipe, stream: TokenStream, heldout: TokenStream | None, vocab_size: int, threads: int | None
) -> tuple[float, dict[float, float]]:
    """The variance with the lowest held-out perplexity of a model of a sample, and the perplexities of all tried.

    Without held-out text, the last tenth of the sentences is held out. The best variance hardly depends on the size of
    the text (Chen and Rosenfeld, 2000), so a sample is enough, with the minimum count scaled to its size.
    """
    sentences = stream.starts_document.size
    if heldout is None or not heldout.ids.size:
        kept = sentences - max(1, sentences // 10)
        heldout, stream = _select_sentences(stream, kept, sentences), _select_sentences(stream, 0, kept)
    sample, heldout = _first_tokens(stream, _SAMPLE_TOKENS), _first_tokens(heldout, _SAMPLE_TOKENS // 2)
    if not sample.ids.size or not heldout.ids.size:
        return _DEFAULT_PRIOR, {}
    min_count = max(1, round(recipe.min_count * sample.ids.size / stream.ids.size))
    recipe = replace(recipe, min_count=min_count, iterations=min(recipe.iterations, _TRIAL_ITERATIONS))
    tried: dict[float, float] = {}

    def perplexity(number: int) -> float:
        if not 0 <= number < len(PRIORS):
            return float("inf")
        prior = PRIORS[number]
        if prior not in tried:
            weights, _ = fit_weights(replace(recipe, prior=prior), sample, vocab_size, threads)
            tried[prior] = _perplexity(weights, recipe.window, heldout, threads)
        return tried[prior]

    best = PRIORS.index(_DEFAULT_PRIOR)
    for step in (1, -1):
        while perplexity(best + step) < perplexity(best):
            best += step
    return PRIORS[best], dict(sorted(tried.items()))


def fit_weights(
    recipe: MaxentRecipe, stream: TokenStream, vocab_size: int, threads: int | None
) -> tuple[MaxentWeights, dict[str, Any]]:
    """The weights with the highest likelihood under the recipe's prior, and a report; the likelihood is concave.

    L-BFGS runs on scaled weights, so that features of all frequencies have about the same curvature: without scaling it
    needs more than ten times as many iterations.
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    prior = _DEFAULT_PRIOR if recipe.prior is None else float(recipe.prior)
    features = find_features(recipe, stream, vocab_size, threads)
    with (
        progress("fitting weights", total=recipe.iterations, unit="iterations") as advance,
        threadpool_limits(1, user_api="blas"),  # whose dot products would depend on the number of cores
    ):
        likelihood = Likelihood(features, stream, recipe.window, prior, threads)
        scale = (likelihood.observed + 1 / prior) ** _SCALING

        def cost(scaled: Floats) -> tuple[float, Floats]:
            value, gradient = likelihood(scaled * scale)
            advance(1)
            return value, gradient * scale

        options = {"maxfun": recipe.iterations - 1, "maxiter": recipe.iterations, "ftol": _TOLERANCE, "gtol": 0.0}
        found = minimize(cost, likelihood.start() / scale, jac=True, method="L-BFGS-B", options=options)
    weights = np.asarray(found.x * scale)
    unigrams = weights[:vocab_size].copy()
    unigrams[list(NEVER_PREDICTED)] = -np.inf
    report = features.report() | {
        "iterations": int(found.nfev),
        "perplexity": float(np.exp((found.fun - likelihood.penalty(weights)) / max(stream.ids.size, 1))),
    }
    return MaxentWeights(unigrams, features.pairs, features.first, features.words, weights[vocab_size:]), report


def _select_sentences(stream: TokenStream, begin: int, end: int) -> TokenStream:
    bounds = stream.bounds[begin : end + 1]
    return TokenStream(stream.ids[bounds[0] : bounds[-1]], bounds - bounds[0], stream.starts_document[begin:end])


def _first_tokens(stream: TokenStream, tokens: int) -> TokenStream:
    """The first sentences of a stream, with at most this many tokens but at least one sentence."""
    sentences = max(1, int(np.searchsorted(stream.bounds, tokens, "right")) - 1)
    return _select_sentences(stream, 0, min(stream.starts_document.size, sentences))


def _perplexity(weights: MaxentWeights, window: int, stream: TokenStream, threads: int | None) -> float:
    return float(np.exp(-MaxentScorer(weights, window).token_logprobs(stream, threads).mean()))


def restore_maxent(
    recipe: MaxentRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> MaxentModel:
    """The model of the arrays of a saved artifact."""
    size = len(tokenizer)
    pairs = saved_array(arrays, "pairs", np.int64, (None,))
    first = saved_array(arrays, "first", np.int64, (3 * size + pairs.size + 1,))
    words = saved_array(arrays, "words", np.uint32, (None,))
    values = saved_array(arrays, "weights", np.float64, words.shape)
    unigrams = saved_array(arrays, "unigrams", np.float64, (size,))
    unknown_word_model = restore_spelling(arrays)
    is_sorted = first[0] == 0 and first[-1] == words.size and np.all(np.diff(first) >= 0)
    is_finite = np.all(np.isfinite(values)) and not np.any(np.isnan(unigrams) | (unigrams == np.inf))
    is_valid = is_sorted and is_finite and np.all(words < size) and np.any(np.isfinite(unigrams))
    if not (is_valid and np.all(np.diff(pairs) > 0)):
        raise ArtifactError("the features of the model contradict each other: train it again.")
    weights = MaxentWeights(unigrams, pairs, first, words, values)
    return MaxentModel(recipe, tokenizer, layout, weights, unknown_word_model)
