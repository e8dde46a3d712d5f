"""The features of maximum-entropy models: finding them in a text, where they act, and how likely weights make it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _maxent_kernels as kernels
from firth.counts.trie import NEVER_PREDICTED
from firth.counts.triggers import TriggerPairs, choose_triggers, following, window_of
from firth.tokens.language import Stream
from firth.tokens.tokenizer import BOS, PAD

if TYPE_CHECKING:
    from firth.counts.maxent import MaxentRecipe

_BLOCKS = 16  # parts of the text whose sums are added in order, whatever the number of threads
_SHOWN = 20  # trigger pairs in a report

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_NONE = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))  # features of a kind that is not looked at


class Rows(NamedTuple):
    """The features of all contexts: row c is `first[c]:first[c + 1]`."""

    first: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint32]
    """The word that each feature is about."""


class Places(NamedTuple):
    """What acts at every place of a stream, as rows of features."""

    before: npt.NDArray[np.int32]
    """The row of the word before."""
    pairs: npt.NDArray[np.int32]
    """The row of the two words before."""
    beyond: npt.NDArray[np.int32]
    """The row of the last word but one."""
    lows: Integers
    """The first place from where a trigger reaches here."""
    upto: Integers
    """How many events there are before the place: occurrences of words that trigger any others."""
    events: npt.NDArray[np.int32]
    """The place of each event,"""
    again: npt.NDArray[np.int32]
    """the place where its word comes again,"""
    effects: npt.NDArray[np.int32]
    """and the row of what it triggers."""


class Groups(NamedTuple):
    """The places of a stream, sorted by the word before and then by the one before that."""

    order: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    """`order[places[p]:places[p + 1]]` have pair p of words before them."""
    pairs: npt.NDArray[np.int64]
    """Pairs `pairs[g]:pairs[g + 1]` end with the word of group g."""
    words: npt.NDArray[np.int32]
    """The row of each group's word."""


class Features(NamedTuple):
    """The features of a text, in the order of `MaxentWeights`."""

    pairs: Integers
    first: Integers
    words: npt.NDArray[np.uint32]
    counts: Integers
    """How often each feature is active where its word comes."""
    triggers: TriggerPairs
    vocabulary: int

    def report(self) -> dict[str, Any]:
        """How many features there are of each kind, and the most informative trigger pairs with their millibits."""
        names = ("distance", "triggers", "bigrams", "trigrams")
        cuts = [self.first[kind * self.vocabulary] for kind in range(4)] + [self.first[-1]]
        shown = [column[:_SHOWN].tolist() for column in self.triggers]
        millibits = [1000 * information / np.log(2) for information in shown[3]]
        return {
            "features": {name: int(end - begin) for name, (begin, end) in zip(names, pairwise(cuts), strict=True)},
            "triggers": [list(pair) for pair in zip(shown[0], shown[1], millibits, strict=True)],
        }


def find_features(recipe: MaxentRecipe, stream: Stream, vocabulary: int, threads: int | None = None) -> Features:
    """What the recipe looks at, as far as it occurs often enough in the stream."""
    ids, least = stream.ids.astype(np.int64), recipe.min_count
    before, beyond = words_before(stream)
    inside = beyond != PAD  # the first word of a sentence has only <s> before it
    bigrams, distant, pairs, trigrams = _NONE, _NONE, _NONE[0], _NONE
    triggers = TriggerPairs.joined([])
    if recipe.order > 1:
        bigrams = _often(before * vocabulary + ids, least)
    if recipe.distance:
        distant = _often((beyond * vocabulary + ids)[inside], least)
    if recipe.triggers:
        covered = bigrams[0] if recipe.far else None
        triggers = choose_triggers(stream, vocabulary, recipe.triggers, recipe.window, covered=covered, threads=threads)
    if recipe.order > 2:
        pairs, trigrams = _trigrams((beyond * vocabulary + before)[inside], ids[inside], vocabulary, least)
    order = np.lexsort((triggers.words, triggers.triggers))
    triggered = (triggers.triggers * vocabulary + triggers.words)[order], triggers.counts[order]
    kinds = (distant, triggered, bigrams, trigrams)
    contexts = [found // vocabulary + kind * vocabulary for kind, (found, _) in enumerate(kinds)]
    return Features(
        pairs,
        np.searchsorted(np.concatenate(contexts), np.arange(3 * vocabulary + pairs.size + 1)),
        np.concatenate([found % vocabulary for found, _ in kinds]).astype(np.uint32),
        np.concatenate([counts for _, counts in kinds]),
        triggers,
        vocabulary,
    )


def _trigrams(
    histories: Integers, ids: Integers, vocabulary: int, least: int
) -> tuple[Integers, tuple[Integers, Integers]]:
    """The pairs of words that have trigrams; and these, as the number of the pair * V + word, with their counts."""
    pairs, numbers = np.unique(histories, return_inverse=True)
    found, counts = _often(numbers * vocabulary + ids, least)
    kept, numbers = np.unique(found // vocabulary, return_inverse=True)
    return pairs[kept], (numbers * vocabulary + found % vocabulary, counts)


def _often(keys: Integers, least: int) -> tuple[Integers, Integers]:
    """The keys that occur so often, in rising order, and how often they do."""
    found, counts = np.unique(keys, return_counts=True)
    return found[counts >= least], counts[counts >= least]


class Likelihood:
    """The negative penalised log-likelihood of a stream and its slope, as a function of all weights.

    The slope is what each feature is expected to count, less what it does count, plus weight / prior. The text is cut
    into a fixed number of blocks that are added in order, so that threads do not change the sums.
    """

    def __init__(
        self, features: Features, stream: Stream, window: int, prior: float, threads: int | None = None
    ) -> None:
        vocabulary = features.vocabulary
        self.prior = prior
        self.rows = Rows(features.first, features.words)
        self.shared = int(features.first[2 * vocabulary])  # the first features are of distances and triggers
        self.places = places_of(stream, self.rows, features.pairs, vocabulary, window)
        self.groups = groups_of(stream, vocabulary)
        self.counts = np.bincount(stream.ids, minlength=vocabulary)
        self.observed = np.concatenate([self.counts, features.counts]).astype(np.float64)
        self.predicted = np.ones(vocabulary, dtype=np.bool_)
        self.predicted[list(NEVER_PREDICTED)] = False
        ends = self.groups.places[self.groups.pairs]
        self.blocks = list(pairwise(np.searchsorted(ends, np.linspace(0, stream.ids.size, _BLOCKS + 1)).tolist()))
        self.executor = ThreadPoolExecutor(cores(threads))

    def __enter__(self) -> Likelihood:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.shutdown()

    def start(self) -> Floats:
        """Weights to begin with: words by themselves as frequent as they are, all else indifferent."""
        single = np.log(self.counts + 0.5)
        single = np.where(self.predicted, single - single[self.predicted].mean(), 0.0)
        return np.concatenate([single, np.zeros(self.rows.words.size)])

    def penalty(self, weights: Floats) -> float:
        return float(np.sum(weights * weights)) / (2 * self.prior)

    def __call__(self, weights: Floats) -> tuple[float, Floats]:
        size = self.predicted.size
        plain, factors = np.where(self.predicted, np.exp(weights[:size]), 0.0), np.exp(weights[size:])
        total = float(plain.sum())
        slope = weights / self.prior - self.observed
        own = slope[size:]

        def expect(block: tuple[int, int]) -> tuple[float, Floats, Floats]:
            single, shared = np.zeros(size), np.zeros(self.shared)
            logs = kernels.expectations(
                *block,
                tuple(self.groups),
                tuple(self.places),
                tuple(self.rows),
                factors,
                plain,
                total,
                single,
                shared,
                own,
            )
            return logs, single, shared

        value = self.penalty(weights) - float(np.sum(self.observed * weights))
        for logs, single, shared in self.executor.map(expect, self.blocks):
            value += logs
            slope[:size] += single
            own[: self.shared] += shared
        return value, slope


def words_before(stream: Stream) -> tuple[Integers, Integers]:
    """The word before each place and the one before that; `<s>` begins a sentence, before which there is `<pad>`.

    >>> [column.tolist() for column in words_before(Stream.of([[5, 6], [7]]))]
    [[2, 5, 6, 2, 7], [0, 2, 5, 0, 2]]
    """
    before, beyond = np.full(stream.ids.size, PAD, dtype=np.int64), np.full(stream.ids.size, PAD, dtype=np.int64)
    before[1:] = stream.ids[:-1]
    before[stream.bounds[:-1]] = BOS
    beyond[1:] = before[:-1]
    beyond[stream.bounds[:-1]] = PAD
    return before, beyond


def places_of(stream: Stream, rows: Rows, pairs: Integers, vocabulary: int, window: int) -> Places:
    """The rows of features that act at each place of a stream."""
    before, beyond = words_before(stream)
    both = np.zeros(before.size, dtype=np.int64)
    if pairs.size:
        keys = beyond * vocabulary + before
        found = np.minimum(np.searchsorted(pairs, keys), pairs.size - 1)
        both = np.where(pairs[found] == keys, 3 * vocabulary + found, PAD)
    effects = vocabulary + stream.ids.astype(np.int64)
    acts = rows.first[effects + 1] > rows.first[effects]
    return Places(
        (2 * vocabulary + before).astype(np.int32),
        both.astype(np.int32),
        beyond.astype(np.int32),
        window_of(stream, window)[0],
        np.cumsum(acts) - acts,
        np.flatnonzero(acts).astype(np.int32),
        following(stream.ids, vocabulary)[acts].astype(np.int32),
        effects[acts].astype(np.int32),
    )


def groups_of(stream: Stream, vocabulary: int) -> Groups:
    """The places of a stream by the words before them."""
    before, beyond = words_before(stream)
    keys = before * vocabulary + beyond
    order = np.argsort(keys, kind="stable")
    pairs, places = np.unique(keys[order], return_index=True)
    words, groups = np.unique(pairs // vocabulary, return_index=True)
    return Groups(
        order, np.append(places, order.size), np.append(groups, pairs.size), (2 * vocabulary + words).astype(np.int32)
    )
