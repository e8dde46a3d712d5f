"""The maximum-entropy model: n-grams, distance-2 bigrams and trigger pairs in one distribution (Rosenfeld, 1996).

    p(w|h) = exp(sum of the weights of the features that are active in (h, w)) / Z(h)

Of all distributions that expect every feature as often as the text has it, this form has the highest entropy. The
weights are those that make the text likeliest, held to 0 by a Gaussian prior (Chen and Rosenfeld, 2000), without which
what never happened would be impossible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _maxent_kernels as kernels
from firth.counts.em import going_on_stream, saved_array
from firth.counts.maxent_features import Floats, Integers, Likelihood, Places, Rows, find_features, places_of
from firth.counts.trie import NEVER_PREDICTED
from firth.errors import ArtifactError, RecipeError
from firth.progress import progress
from firth.text.layout import Layout
from firth.tokens.language import LanguageModel, Stream
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.spelling import END, Spelling
from firth.tokens.tokenizer import Tokenizer

PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""The variances that are tried on held-out text."""
_USUAL = 2.0
_SAMPLE = 100_000  # tokens of text on which variances are compared
_TRIAL_ROUNDS = 20
_PARCEL = 1 << 14  # places that a thread scores at a time
_TOLERANCE = 1e-9
_CONDITION = -0.4  # found on the Penn Treebank; -0.5 would make the curvature even if features did not overlap


@dataclass(frozen=True, kw_only=True)
class MaxentRecipe:
    """Features of the history, weighed against each other.

    >>> MaxentRecipe(order=4)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: order=4 must be 1, 2 or 3: for longer n-grams take an n-gram model.
    """

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    order: int = 3
    """Features for n-grams up to this length."""
    distance: bool = True
    """Features for the last word but one and the next, whatever stands between (distance-2 bigrams)."""
    triggers: int = 10_000
    """So many trigger pairs, those with the highest average mutual information; 0 for none."""
    window: int = 200
    """Tokens, ends of sentences among them, over which a trigger reaches within a text."""
    far: bool = True
    """Whether words that stand side by side anywhere, which are a bigram, are left out of the trigger pairs."""
    min_count: int = 1
    """N-grams and distance-2 bigrams that occur less often are no features."""
    prior: float | None = None
    """Variance of the Gaussian prior on the weights; none means found on held-out text."""
    rounds: int = 40
    """Passes over the text."""

    def __post_init__(self) -> None:
        if self.order not in (1, 2, 3):
            raise RecipeError(f"order={self.order} must be 1, 2 or 3: for longer n-grams take an n-gram model.")
        if not 0 <= self.triggers <= 10_000_000:
            raise RecipeError(f"triggers={self.triggers} must be 0 for none, or some thousands of pairs.")
        if not 1 <= self.window <= 10_000:
            raise RecipeError(f"window={self.window} must be from 1 to 10000 tokens: 200 is usual.")
        if self.min_count < 1:
            raise RecipeError(f"min_count={self.min_count} must be 1 or more.")
        if self.prior is not None and not 0 < self.prior < float("inf"):
            raise RecipeError(f"prior={self.prior} must be above 0, or none to find it on held-out text: 2 is usual.")
        if self.rounds < 1:
            raise RecipeError(f"rounds={self.rounds} would leave all weights at 0: set it to 1 or more.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "counts"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> MaxentRecipe:
        """The same recipe over other tokens."""
        return replace(self, tokenizer=tokenizer)

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> MaxentModel:
        """The model of a saved artifact's arrays."""
        size = len(tokenizer)
        pairs = saved_array(arrays, "pairs", np.int64, (None,))
        first = saved_array(arrays, "first", np.int64, (3 * size + pairs.size + 1,))
        words = saved_array(arrays, "words", np.uint32, (None,))
        values = saved_array(arrays, "weights", np.float64, words.shape)
        single = saved_array(arrays, "single", np.float64, (size,))
        spelling = Spelling(saved_array(arrays, "spelling", np.int64, (END + 1, END + 1)))
        rising = (
            first[0] == 0 and first[-1] == words.size and np.all(np.diff(first) >= 0) and np.all(np.diff(pairs) > 0)
        )
        finite = np.all(np.isfinite(values)) and not np.any(np.isnan(single) | (single == np.inf))
        if not (rising and finite and np.all(words < size) and np.any(np.isfinite(single))):
            raise ArtifactError("the features of the model contradict each other: train it again.")
        return MaxentModel(self, tokenizer, layout, MaxentWeights(single, pairs, first, words, values), spelling)


class MaxentWeights(NamedTuple):
    """The features of a model and their weights.

    A context is a word w as the last but one (number w), anywhere in the window (V + w) or last (2V + w), or two last
    words `pairs[k]` (3V + k). Context c has the features `first[c]:first[c + 1]`.
    """

    single: Floats
    """The weight of each word by itself; -inf for those that are never predicted."""
    pairs: Integers
    """Pairs of words that have trigrams, first * V + second, in rising order."""
    first: Integers
    words: npt.NDArray[np.uint32]
    """The word that each feature predicts."""
    weights: Floats


class MaxentModel(LanguageModel):
    """Words weighed by all that the history says of them."""

    def __init__(
        self, recipe: MaxentRecipe, tokenizer: Tokenizer, layout: Layout, weights: MaxentWeights, spelling: Spelling
    ) -> None:
        super().__init__(recipe, tokenizer, layout, spelling)
        self.weights = weights
        self._ready = Ready(weights, recipe.window)

    @property
    def remembers(self) -> bool:  # type: ignore[override]  # of a class elsewhere, here of a recipe
        """Whether there are trigger pairs."""
        return bool(self.recipe.triggers)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {**self.weights._asdict(), "spelling": self.spelling.counts}

    def log_tokens(self, stream: Stream) -> Floats:
        return self._ready.log_tokens(stream)

    def log_next(self, history: Sequence[int]) -> Floats:
        return self._ready.log_next(history)

    def triggered_by(self, word: str) -> list[tuple[str, float]]:
        """The words that a word triggers, with their weights, the strongest first."""
        size = self.weights.single.size
        row = size + self.tokenizer.id(word)
        features = range(int(self.weights.first[row]), int(self.weights.first[row + 1]))
        found = [(self.tokenizer.vocabulary[self.weights.words[k]], float(self.weights.weights[k])) for k in features]
        return sorted(found, key=lambda pair: -pair[1])


class Ready:
    """Weights made ready for use: their exponentials, and the sum of those of the words by themselves."""

    def __init__(self, weights: MaxentWeights, window: int) -> None:
        self.window = window
        self.pairs = weights.pairs
        self.vocabulary = weights.single.size
        self.rows = Rows(weights.first, weights.words)
        self.plain, self.factors = np.exp(weights.single), np.exp(weights.weights)
        self.total = float(self.plain.sum())

    def log_tokens(self, stream: Stream, threads: int | None = None) -> Floats:
        """The log-probability of every id of a stream."""
        places, out = self._places(stream), np.empty(stream.ids.size)

        def log_parcel(begin: int) -> None:
            self._log(begin, min(begin + _PARCEL, out.size), stream, places, out, np.empty(0))

        with ThreadPoolExecutor(cores(threads)) as executor:
            list(executor.map(log_parcel, range(0, out.size, _PARCEL)))
        return out

    def log_next(self, history: Sequence[int]) -> Floats:
        """The log-probability of every word after a history."""
        stream = going_on_stream(history[-max(self.window, 3) :])
        last, whole = stream.ids.size - 1, np.empty(self.vocabulary)
        self._log(last, last + 1, stream, self._places(stream), np.empty(last + 1), whole)
        return whole

    def _places(self, stream: Stream) -> Places:
        return places_of(stream, self.rows, self.pairs, self.vocabulary, self.window)

    def _log(self, begin: int, end: int, stream: Stream, places: Places, out: Floats, whole: Floats) -> None:
        weighed = self.factors, self.plain, self.total
        kernels.log_places(begin, end, stream.ids, tuple(places), tuple(self.rows), *weighed, out, whole)


def train_maxent(
    recipe: MaxentRecipe, stream: Stream, heldout: Stream | None, vocabulary: int, threads: int | None = None
) -> tuple[MaxentWeights, dict[str, Any]]:
    """The weights that make the stream likeliest under the prior, and a report: its `prior`, features and triggers."""
    tried: dict[float, float] = {}
    prior = recipe.prior
    if prior is None:
        prior, tried = choose_prior(recipe, stream, heldout, vocabulary, threads)
    weights, report = fit_weights(replace(recipe, prior=prior), stream, vocabulary, threads)
    report |= {"prior": prior, "tried": tried}
    if heldout is not None and heldout.ids.size:
        report["heldout_perplexity"] = _perplexity(weights, recipe.window, heldout, threads)
    return weights, report


def choose_prior(
    recipe: MaxentRecipe, stream: Stream, heldout: Stream | None, vocabulary: int, threads: int | None
) -> tuple[float, dict[float, float]]:
    """The variance with which a sample of the text foretells held-out text best, and the perplexities of all tried.

    Without held-out text, the last tenth of the sentences is used. The best variance hardly depends on how much text
    there is (Chen and Rosenfeld, 2000), so a sample will do, if less is asked of its features' counts.
    """
    sentences = stream.fresh.size
    if heldout is None or not heldout.ids.size:
        kept = sentences - max(1, sentences // 10)
        heldout, stream = _part(stream, kept, sentences), _part(stream, 0, kept)
    sample, heldout = _beginning(stream, _SAMPLE), _beginning(heldout, _SAMPLE // 2)
    if not sample.ids.size or not heldout.ids.size:
        return _USUAL, {}
    least = max(1, round(recipe.min_count * sample.ids.size / stream.ids.size))
    recipe = replace(recipe, min_count=least, rounds=min(recipe.rounds, _TRIAL_ROUNDS))
    tried: dict[float, float] = {}

    def perplexity(number: int) -> float:
        if not 0 <= number < len(PRIORS):
            return float("inf")
        prior = PRIORS[number]
        if prior not in tried:
            weights, _ = fit_weights(replace(recipe, prior=prior), sample, vocabulary, threads)
            tried[prior] = _perplexity(weights, recipe.window, heldout, threads)
        return tried[prior]

    best = PRIORS.index(_USUAL)
    for step in (1, -1):
        while perplexity(best + step) < perplexity(best):
            best += step
    return PRIORS[best], dict(sorted(tried.items()))


def fit_weights(
    recipe: MaxentRecipe, stream: Stream, vocabulary: int, threads: int | None
) -> tuple[MaxentWeights, dict[str, Any]]:
    """The weights under the prior of the recipe; the likelihood is concave, so there is one best answer.

    L-BFGS takes the weights divided by a scale that makes features of all frequencies bend the likelihood about
    equally: without it, it needs more than ten times as many rounds.
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    prior = _USUAL if recipe.prior is None else float(recipe.prior)
    features = find_features(recipe, stream, vocabulary, threads)
    with (
        progress("fitting weights", total=recipe.rounds, unit="rounds") as advance,
        threadpool_limits(1, user_api="blas"),  # whose dot products would depend on the number of cores
        Likelihood(features, stream, recipe.window, prior, threads) as likelihood,
    ):
        scale = (likelihood.observed + 1 / prior) ** _CONDITION

        def cost(scaled: Floats) -> tuple[float, Floats]:
            value, slope = likelihood(scaled * scale)
            advance(1)
            return value, slope * scale

        options = {"maxfun": recipe.rounds - 1, "maxiter": recipe.rounds, "ftol": _TOLERANCE, "gtol": 0.0}
        found = minimize(cost, likelihood.start() / scale, jac=True, method="L-BFGS-B", options=options)
    weights = np.asarray(found.x * scale)
    single = weights[:vocabulary].copy()
    single[list(NEVER_PREDICTED)] = -np.inf
    report = features.report() | {
        "rounds": int(found.nfev),
        "perplexity": float(np.exp((found.fun - likelihood.penalty(weights)) / max(stream.ids.size, 1))),
    }
    return MaxentWeights(single, features.pairs, features.first, features.words, weights[vocabulary:]), report


def _part(stream: Stream, begin: int, end: int) -> Stream:
    """Some sentences of a stream."""
    bounds = stream.bounds[begin : end + 1]
    return Stream(stream.ids[bounds[0] : bounds[-1]], bounds - bounds[0], stream.fresh[begin:end])


def _beginning(stream: Stream, tokens: int) -> Stream:
    """The first sentences of a stream, with at most so many tokens but never none."""
    return _part(stream, 0, min(stream.fresh.size, max(1, int(np.searchsorted(stream.bounds, tokens, "right")) - 1)))


def _perplexity(weights: MaxentWeights, window: int, stream: Stream, threads: int | None) -> float:
    return float(np.exp(-Ready(weights, window).log_tokens(stream, threads).mean()))
