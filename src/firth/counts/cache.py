"""Cache models: words that occurred recently are likelier to occur again (Kuhn and De Mori, 1990).

    p(w | h) = l_0 p_base(w | h) + l_1 p_1(w) + l_2 p_2(w | h) + l_3 p_3(w | h)

p_n is the relative frequency of w among the cache entries with the same n - 1 preceding words. The weights depend on
the longest history found in the cache, on the number of its entries, and on the size of the cache so far; an empty
cache leaves p_base unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _adaptive_kernels as kernels
from firth.counts import em
from firth.counts.ngram import NgramModel, restore_ngram
from firth.counts.recipe import CacheRecipe
from firth.counts.trie import Floats, Integers, Mask
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import LanguageModel, TokenStream
from firth.text.layout import Layout
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, UNK, Tokenizer

DECAYS = (0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.032)
"""The decay rates tried on held-out text."""
_NEGLIGIBLE = 500.0  # entries with less than exp(-500) of the newest weight are dropped
_PRIOR_TOKENS = 200.0  # prior strength of the weights of all tokens with the same history length, for each bucket
_HALF_TRUST = 50.0  # entries at which the cache gets half the weight of a full one, before fitting
_DEFAULT_WEIGHT = 0.1  # of the cache without held-out text


class CacheModel(LanguageModel):
    """A base model interpolated with a cache."""

    carries_context: ClassVar[bool] = True

    def __init__(self, recipe: CacheRecipe, base: LanguageModel, cacheable: Mask, weights: Floats) -> None:
        """`cacheable` is true for the words that enter the cache; `weights` is as in the kernel `mix_cache`."""
        super().__init__(recipe, base.tokenizer, base.layout, base.unknown_word_model)
        self.base, self.cacheable, self.weights = base, cacheable, weights

    @property
    def parameters(self) -> dict[str, Any]:
        """The fitted decay rate, and the weights of a full cache by the length of the longest known history."""
        best = {str(n): self.weights[n - 1, -1, -1, : n + 1].tolist() for n in range(1, self.recipe.order + 1)}
        return {"decay": self.recipe.decay, "weights": best}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return em.add_prefix("base", self.base.arrays()) | {"cacheable": self.cacheable, "weights": self.weights}

    def token_logprobs(self, stream: TokenStream) -> Floats:
        logprobs = self.base.token_logprobs(stream)
        return mix_cache(logprobs, match_cache(self.recipe, self.cacheable, stream), self.weights)

    def next_logprobs(self, history: Sequence[int]) -> Floats:
        base = self.base.next_logprobs(history)
        frequencies, entries = self._match_all(history, base.size)
        known = int(np.count_nonzero(entries))  # a history in the cache has its suffixes there too
        if not known:
            return base
        count, size = (kernels.bucket_of(count, self.weights.shape[1]) for count in (entries[known - 1], entries[0]))
        row = self.weights[known - 1, count, size]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(row[0] * np.exp(base) + row[1 : known + 1] @ frequencies[:known]))

    def _match_all(self, history: Sequence[int], words: int) -> tuple[Floats, Integers]:
        """(order, word): the frequency of every word in the cache after `history`; (order): the matching entries."""
        stream = em.history_stream(history)
        _, histories, _ = number_ngrams(stream, self.recipe.order, words)
        cached = np.flatnonzero(self.cacheable[stream.ids[:-1]])[-cache_capacity(self.recipe) :]
        weights = np.exp(-(self.recipe.decay or 0.0) * np.arange(cached.size)[::-1])
        matches = histories[:, cached] == histories[:, -1:]
        frequencies = np.zeros((self.recipe.order, words))
        for order in range(self.recipe.order):
            found = cached[matches[order]]
            if found.size:
                sums = np.bincount(stream.ids[found], weights=weights[matches[order]], minlength=words)
                frequencies[order] = sums / sums.sum()
        return frequencies, matches.sum(axis=1)


class CacheMatches(NamedTuple):
    """The cache lookups of the tokens of a stream."""

    frequencies: Floats  # (order, token): among the entries with the token's history
    entries: npt.NDArray[np.int32]  # (order, token): the number of these entries


def match_cache(recipe: CacheRecipe, cacheable: Mask, stream: TokenStream) -> CacheMatches:
    """The cache lookups of every token of a stream, with the decay rate of the recipe."""
    nodes, histories, count = number_ngrams(stream, recipe.order, cacheable.size)
    found = CacheMatches(np.empty(nodes.shape), np.empty(nodes.shape, dtype=np.int32))
    settings = cache_capacity(recipe), float(recipe.decay or 0.0), count
    kernels.match_cache(nodes, histories, cacheable[stream.ids], em.document_starts(stream), *settings, *found)
    return found


def mix_cache(logprobs: Floats, found: CacheMatches, weights: Floats) -> Floats:
    out = np.empty(logprobs.size)
    kernels.mix_cache(logprobs, *found, weights, out)
    return out


def number_ngrams(
    stream: TokenStream, order: int, words: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """(order, token): the number of the n-gram that ends at each token and of its history; and the count of numbers."""
    ids = stream.ids
    nodes, histories = np.empty((order, ids.size), dtype=np.int32), np.zeros((order, ids.size), dtype=np.int32)
    nodes[0] = ids
    nodes[0] += 1
    count = words + 2
    for n, before in zip(range(1, order), (BOS + 1, words + 1), strict=False):
        histories[n, 1:] = nodes[n - 1, :-1]
        histories[n, stream.bounds[:-1]] = before
        slots = np.zeros(1 << max(4, (2 * ids.size).bit_length()), dtype=np.int32)
        keys = np.empty(ids.size, dtype=np.uint64)
        count = int(kernels.number_pairs(histories[n], ids, count, slots, keys, nodes[n]))
    return nodes, histories, count


def cache_capacity(recipe: CacheRecipe) -> int:
    """The number of entries held: old ones are dropped when their weight is negligible."""
    if not isinstance(recipe.decay, (int, float)) or recipe.decay * recipe.size <= _NEGLIGIBLE:
        return recipe.size
    return int(_NEGLIGIBLE / recipe.decay)


def train_cache(
    recipe: CacheRecipe,
    base_for_weights: LanguageModel,
    base: LanguageModel,
    heldout: TokenStream | None,
    counts: npt.NDArray[Any] | None = None,
) -> CacheModel:
    """The cache model around `base`, with weights and decay rate fitted to the held-out text.

    `base_for_weights` was not trained on the held-out text; it may be `base`. `counts` are the word counts of the
    training text, which may decide which words enter; they default to those of an n-gram model.
    """
    if counts is None and isinstance(base, NgramModel):
        counts = base.trie.counts[: base.trie.vocab_size]
    cacheable = cacheable_words(recipe, base.tokenizer, counts)
    if heldout is None or not heldout.ids.size:
        if recipe.weight is None or recipe.decay == "auto":
            raise RecipeError("a cache needs held-out text: give --valid, or set weight=0.1 and decay=0.006.")
        return CacheModel(recipe, base, cacheable, _initial_weights(recipe))
    logprobs = base_for_weights.token_logprobs(heldout)
    best, likelihood, weights = recipe, -np.inf, _initial_weights(recipe)
    for decay in DECAYS if recipe.decay == "auto" else (recipe.decay,):
        candidate = replace(recipe, decay=decay)
        found = match_cache(candidate, cacheable, heldout)
        fitted = _fit_weights(candidate, logprobs, found)
        reached = em.floored_likelihood(mix_cache(logprobs, found, fitted))
        if reached > likelihood:
            best, likelihood, weights = candidate, reached, fitted
    return CacheModel(best, base, cacheable, weights)


def cacheable_words(recipe: CacheRecipe, tokenizer: Tokenizer, counts: npt.NDArray[Any] | None = None) -> Mask:
    """The mask of the words that enter the cache."""
    mask = np.ones(len(tokenizer), dtype=np.bool_)
    if recipe.cached_words != "all":
        if counts is None:
            raise RecipeError(
                f"cached_words={recipe.cached_words} needs the counts of the training text: set cached_words=all."
            )
        words = np.array(counts, dtype=np.int64)
        words[:FIRST_WORD] = 0
        is_rare = recipe.cached_words == "rare"
        mask = words <= recipe.max_count if is_rare else _content_words(words, recipe.stopword_fraction, tokenizer)
    mask[:FIRST_WORD] = False
    mask[EOS] = recipe.cache_eos and recipe.cached_words == "all"
    mask[UNK] = recipe.cache_unk
    return mask


def _content_words(counts: Integers, stopword_fraction: float, tokenizer: Tokenizer) -> Mask:
    """Words with a letter or digit, except the most frequent ones, which make up a fraction of the text."""
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    mask = np.array([any(character.isalnum() for character in word) for word in tokenizer.vocabulary])
    mask[order[before < stopword_fraction * counts.sum()]] = False
    return mask


def _fit_weights(recipe: CacheRecipe, logprobs: Floats, found: CacheMatches) -> Floats:
    """The weights of every bucket by EM, with those of all tokens with the same history length as a prior."""
    weights = _initial_weights(recipe)
    parts = np.vstack([np.exp(logprobs), found.frequencies])
    lengths = np.count_nonzero(found.entries, axis=0)
    for known in range(1, recipe.order + 1):
        here = np.flatnonzero(lengths == known)
        seen = parts[: known + 1, here]
        counts, sizes = (np.frexp(found.entries[n, here])[1] - 1 for n in (known - 1, 0))  # integer parts of log2
        level = _fit_row(recipe, seen, weights[known - 1, -1, -1], 1.0)
        weights[known - 1] = _by_size(recipe, level)
        for b, f in np.unique(np.stack([counts, sizes]), axis=1).T.tolist():
            row = weights[known - 1, b, f]
            weights[known - 1, b, f] = _fit_row(recipe, seen[:, (counts == b) & (sizes == f)], row, _PRIOR_TOKENS)
    return weights


def _fit_row(recipe: CacheRecipe, parts: Floats, prior: Floats, strength: float) -> Floats:
    """The weights of base and cache orders by EM; a fixed cache weight is only divided among the orders."""
    row = np.zeros(recipe.order + 1)
    if recipe.weight is None:
        row[: len(parts)] = em.em_weights(parts, prior=strength * prior[: len(parts)]).weights
        return row
    mixed = (1 - recipe.weight) * parts[0] + recipe.weight * parts[1:]
    orders = prior[1 : len(parts)]
    fractions = em.em_weights(mixed, prior=strength * orders / orders.sum()).weights if recipe.weight else orders
    row[0], row[1 : len(parts)] = 1 - recipe.weight, recipe.weight * fractions
    return row


def _initial_weights(recipe: CacheRecipe) -> Floats:
    """Weights before fitting: a small one for the cache, divided equally among its orders."""
    cache = _DEFAULT_WEIGHT if recipe.weight is None else recipe.weight
    rows = np.zeros((recipe.order, recipe.order + 1))
    for known in range(1, recipe.order + 1):
        rows[known - 1, : known + 1] = [1 - cache, *[cache / known] * known]
    return np.stack([_by_size(recipe, row) for row in rows])


def _by_size(recipe: CacheRecipe, row: Floats) -> Floats:
    """The weights of a full cache for every bucket, smaller for a cache with few entries, unless they are fixed."""
    buckets = recipe.size.bit_length()  # by the number of entries: 1, 2-3, 4-7, ..., and the last for a full cache
    entries = 1.5 * 2.0 ** np.arange(buckets)
    trust = entries / (entries + _HALF_TRUST) if recipe.weight is None else np.ones(buckets)
    rows = trust[:, None] * row
    rows[:, 0] = 1 - rows[:, 1:].sum(axis=1)
    return np.tile(rows, (buckets, 1, 1))


def restore_cache(recipe: CacheRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> CacheModel:
    """The model of the arrays of a saved artifact."""
    if recipe.decay == "auto":
        raise ArtifactError("the recipe does not give the decay rate of the cache: train the model again.")
    buckets = recipe.size.bit_length()
    cacheable = em.saved_array(arrays, "cacheable", np.bool_, (len(tokenizer),))
    weights = em.saved_weights(arrays, "weights", (recipe.order, buckets, buckets, recipe.order + 1))
    base = restore_ngram(recipe.base, em.strip_prefix("base", arrays), tokenizer, layout)
    return CacheModel(recipe, base, cacheable, weights)
