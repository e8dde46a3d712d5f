"""The features of maximum-entropy models: selection, the features active at each position, and the likelihood.

Trigger pairs are words that change the probability of another word some distance later (Rosenfeld, 1994). A pair a -> b
is scored by the average mutual information between "a is in the window" and "b is the next word", over the four cells
of their contingency table:

    I(a; b) = sum over x in {a, not a}, y in {b, not b} of p(x, y) log (p(x, y) / (p(x) p(y)))
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import in_order
from firth.counts import _maxent_kernels as kernels
from firth.counts.recipe import MaxentRecipe
from firth.counts.trie import NEVER_PREDICTED, Floats, Integers, WordIds
from firth.lm.language_model import TokenStream
from firth.progress import progress
from firth.tokens.tokenizer import BOS, FIRST_WORD, PAD

MAX_TRIGGERS_PER_WORD = 3  # as in Rosenfeld's dictionary; further ones are mostly redundant
_MIN_COUNT = 5  # rarer words neither trigger nor are triggered
_TRIGGER_BLOCK = 1 << 16  # occurrences per task of a thread
_BLOCKS = 16  # parts of the text whose sums are added in order, whatever the number of threads
_REPORTED = 20  # trigger pairs in a report

FeatureIndex = tuple[Integers, WordIds]
"""`first` and `words`: context c has the features `first[c]:first[c + 1]`, which predict `words`."""

_NONE = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))  # features of a kind that is not used


class TriggerPairs(NamedTuple):
    """Pairs of words in descending order of information."""

    triggers: Integers
    words: Integers  # the triggered words
    counts: Integers  # the occurrences of the word with its trigger in the window
    information: Floats  # average mutual information in nats

    def take(self, selected: Integers) -> TriggerPairs:
        return TriggerPairs._make(column[selected] for column in self)

    @classmethod
    def joined(cls, parts: Sequence[TriggerPairs]) -> TriggerPairs:
        none = np.empty(0, dtype=np.int64)
        parts = [cls(none, none, none, np.empty(0)), *parts]
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class ActiveFeatures(NamedTuple):
    """The contexts whose features are active at each position of a stream."""

    last_word: npt.NDArray[np.int32]  # the context of the previous word
    last_pair: npt.NDArray[np.int32]  # the context of the previous two words
    last_but_one: npt.NDArray[np.int32]  # the context of the last word but one
    window_start: Integers  # the first position from which a trigger reaches this one
    event_count: Integers  # the number of trigger events before the position
    events: npt.NDArray[np.int32]  # the position of each occurrence of a word that triggers others
    next_event: npt.NDArray[np.int32]  # the position where the word of the event occurs again
    event_context: npt.NDArray[np.int32]  # the context of the triggered words


class HistoryGroups(NamedTuple):
    """The positions of a stream, sorted by the previous word and then by the one before."""

    order: Integers
    pair_bounds: Integers
    """`order[pair_bounds[p]:pair_bounds[p + 1]]` have the same previous two words."""
    word_bounds: Integers
    """The pairs `word_bounds[g]:word_bounds[g + 1]` have the same previous word."""
    contexts: npt.NDArray[np.int32]  # the context of each group's previous word


class Features(NamedTuple):
    """The features of a text, in the order of `MaxentWeights`."""

    pairs: Integers
    first: Integers
    words: WordIds
    counts: Integers  # positions where each feature is active and its word is next
    triggers: TriggerPairs
    vocab_size: int

    def report(self) -> dict[str, Any]:
        """The number of features of each kind, and the most informative trigger pairs with their millibits."""
        names = ("distance", "triggers", "bigrams", "trigrams")
        cuts = [self.first[kind * self.vocab_size] for kind in range(4)] + [self.first[-1]]
        triggers, words, _, information = (column[:_REPORTED].tolist() for column in self.triggers)
        millibits = [1000 * nats / np.log(2) for nats in information]
        return {
            "features": {name: int(end - begin) for name, (begin, end) in zip(names, pairwise(cuts), strict=True)},
            "triggers": [list(pair) for pair in zip(triggers, words, millibits, strict=True)],
        }


def find_features(recipe: MaxentRecipe, stream: TokenStream, vocab_size: int, threads: int | None = None) -> Features:
    """The features of the recipe that are frequent enough in the stream."""
    ids, min_count = stream.ids.astype(np.int64), recipe.min_count
    before, beyond = words_before(stream)
    has_two = beyond != PAD  # the first word of a sentence has only <s> before it
    bigrams, distant, pairs, trigrams = _NONE, _NONE, _NONE[0], _NONE
    triggers = TriggerPairs.joined([])
    if recipe.order > 1:
        bigrams = _frequent(before * vocab_size + ids, min_count)
    if recipe.distance_bigrams:
        distant = _frequent((beyond * vocab_size + ids)[has_two], min_count)
    if recipe.triggers:
        covered = bigrams[0] if recipe.exclude_bigrams else None
        triggers = choose_triggers(stream, vocab_size, recipe.triggers, recipe.window, covered=covered, threads=threads)
    if recipe.order > 2:
        histories, numbers = np.unique((beyond * vocab_size + before)[has_two], return_inverse=True)
        found, counts = _frequent(numbers * vocab_size + ids[has_two], min_count)
        kept, numbers = np.unique(found // vocab_size, return_inverse=True)
        pairs, trigrams = histories[kept], (numbers * vocab_size + found % vocab_size, counts)
    order = np.lexsort((triggers.words, triggers.triggers))
    triggered = (triggers.triggers * vocab_size + triggers.words)[order], triggers.counts[order]
    kinds = (distant, triggered, bigrams, trigrams)
    contexts = [found // vocab_size + kind * vocab_size for kind, (found, _) in enumerate(kinds)]
    return Features(
        pairs,
        np.searchsorted(np.concatenate(contexts), np.arange(3 * vocab_size + pairs.size + 1)),
        np.concatenate([found % vocab_size for found, _ in kinds]).astype(np.uint32),
        np.concatenate([counts for _, counts in kinds]),
        triggers,
        vocab_size,
    )


def _frequent(keys: Integers, min_count: int) -> tuple[Integers, Integers]:
    found, counts = np.unique(keys, return_counts=True)
    return found[counts >= min_count], counts[counts >= min_count]


class Likelihood:
    """The negative penalised log-likelihood of a stream and its gradient, as a function of all weights.

    The gradient is the expected count of each feature minus its observed count, plus weight / prior. The text is split
    into a fixed number of blocks that are added in order, so that the sums do not depend on the threads.
    """

    def __init__(
        self, features: Features, stream: TokenStream, window: int, prior: float, threads: int | None = None
    ) -> None:
        vocab_size = features.vocab_size
        self.prior, self.threads = prior, threads
        self.index = (features.first, features.words)
        self.shared = int(features.first[2 * vocab_size])  # the first features are of distances and triggers
        self.active = find_active_features(stream, self.index, features.pairs, vocab_size, window)
        self.groups = group_histories(stream, vocab_size)
        self.counts = np.bincount(stream.ids, minlength=vocab_size)
        self.observed = np.concatenate([self.counts, features.counts]).astype(np.float64)
        self.predicted = np.ones(vocab_size, dtype=np.bool_)
        self.predicted[list(NEVER_PREDICTED)] = False
        ends = self.groups.pair_bounds[self.groups.word_bounds]
        self.blocks = list(pairwise(np.searchsorted(ends, np.linspace(0, stream.ids.size, _BLOCKS + 1)).tolist()))

    def start(self) -> Floats:
        """Initial weights: unigram weights by frequency, all others 0."""
        unigrams = np.log(self.counts + 0.5)
        unigrams = np.where(self.predicted, unigrams - unigrams[self.predicted].mean(), 0.0)
        return np.concatenate([unigrams, np.zeros(self.index[1].size)])

    def penalty(self, weights: Floats) -> float:
        return float(np.sum(weights * weights)) / (2 * self.prior)

    def __call__(self, weights: Floats) -> tuple[float, Floats]:
        size = self.predicted.size
        unigrams, factors = np.where(self.predicted, np.exp(weights[:size]), 0.0), np.exp(weights[size:])
        model = self.index, factors, unigrams, float(unigrams.sum())
        gradient = weights / self.prior - self.observed
        own = gradient[size:]

        def expect(block: tuple[int, int]) -> tuple[float, Floats, Floats]:
            single, shared = np.zeros(size), np.zeros(self.shared)
            text = tuple(self.groups), tuple(self.active)
            return kernels.expectations(*block, *text, *model, single, shared, own), single, shared

        value = self.penalty(weights) - float(np.sum(self.observed * weights))
        for logs, single, shared in in_order(expect, self.blocks, self.threads):
            value += logs
            gradient[:size] += single
            own[: self.shared] += shared
        return value, gradient


def words_before(stream: TokenStream) -> tuple[Integers, Integers]:
    """The previous word at each position and the one before; a sentence begins with `<pad>` and `<s>`.

    >>> [column.tolist() for column in words_before(TokenStream.of([[5, 6], [7]]))]
    [[2, 5, 6, 2, 7], [0, 2, 5, 0, 2]]
    """
    before, beyond = np.full(stream.ids.size, PAD, dtype=np.int64), np.full(stream.ids.size, PAD, dtype=np.int64)
    before[1:] = stream.ids[:-1]
    before[stream.bounds[:-1]] = BOS
    beyond[1:] = before[:-1]
    beyond[stream.bounds[:-1]] = PAD
    return before, beyond


def find_active_features(
    stream: TokenStream, index: FeatureIndex, pairs: Integers, vocab_size: int, window: int
) -> ActiveFeatures:
    before, beyond = words_before(stream)
    both = np.zeros(before.size, dtype=np.int64)
    if pairs.size:
        keys = beyond * vocab_size + before
        found = np.minimum(np.searchsorted(pairs, keys), pairs.size - 1)
        both = np.where(pairs[found] == keys, 3 * vocab_size + found, PAD)
    triggered = vocab_size + stream.ids.astype(np.int64)
    first, _ = index
    is_event = first[triggered + 1] > first[triggered]
    return ActiveFeatures(
        (2 * vocab_size + before).astype(np.int32),
        both.astype(np.int32),
        beyond.astype(np.int32),
        window_bounds(stream, window)[0],
        np.cumsum(is_event) - is_event,
        np.flatnonzero(is_event).astype(np.int32),
        next_occurrences(stream.ids, vocab_size)[is_event].astype(np.int32),
        triggered[is_event].astype(np.int32),
    )


def group_histories(stream: TokenStream, vocab_size: int) -> HistoryGroups:
    """The positions of a stream grouped by the previous two words."""
    before, beyond = words_before(stream)
    keys = before * vocab_size + beyond
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    words, groups = np.unique(pairs // vocab_size, return_index=True)
    contexts = (2 * vocab_size + words).astype(np.int32)
    return HistoryGroups(order, np.append(starts, order.size), np.append(groups, pairs.size), contexts)


def choose_triggers(
    stream: TokenStream,
    vocab_size: int,
    count: int,
    window: int,
    *,
    per_word: int = MAX_TRIGGERS_PER_WORD,
    min_count: int = _MIN_COUNT,
    covered: Integers | None = None,
    threads: int | None = None,
) -> TriggerPairs:
    """The `count` most informative pairs, at most `per_word` for each triggered word.

    `covered` are pairs to exclude, as a * vocab_size + b, ascending; a word may trigger itself in any case. Special
    tokens and words with fewer than `min_count` occurrences are excluded.

    >>> stream = TokenStream.of([[5, 6], [7, 8]] * 10)
    >>> choose_triggers(stream, 9, count=1, window=1).words.tolist()
    [6]
    """
    selector = _TriggerSelector(stream, vocab_size, window, per_word, min_count, covered)
    blocks = selector.blocks()
    with progress("choosing triggers", total=selector.ids.size, unit="words") as advance:
        found = []
        for words, pairs in zip(blocks, in_order(selector.best, blocks, threads), strict=True):
            found.append(pairs)
            advance(float(selector.counts[words].sum()))
    pairs = TriggerPairs.joined(found)
    return pairs.take(np.argsort(-pairs.information, kind="stable")[:count])


class _TriggerSelector:
    """The positions of each word of a stream, and the number of positions with each word in the window."""

    def __init__(
        self, stream: TokenStream, vocab_size: int, window: int, per_word: int, min_count: int, covered: Integers | None
    ) -> None:
        self.ids, self.per_word = stream.ids, per_word
        self.covered = np.empty(0, dtype=np.int64) if covered is None else covered
        self.counts = np.bincount(self.ids, minlength=vocab_size)
        self.allowed = self.counts >= min_count
        self.allowed[:FIRST_WORD] = False
        self.window_start, ends = window_bounds(stream, window)
        self.order = np.argsort(self.ids, kind="stable")
        self.first = np.concatenate([[0], np.cumsum(self.counts)])
        self.reach = np.zeros(vocab_size, dtype=np.int64)
        kernels.count_reach(self.ids, next_occurrences(self.ids, vocab_size), ends, window, self.reach)

    def blocks(self) -> list[Integers]:
        """The words that may be triggered, in blocks with about equal numbers of occurrences."""
        words = np.flatnonzero(self.allowed)
        sums = np.cumsum(self.counts[words])
        cuts = np.searchsorted(sums, np.arange(_TRIGGER_BLOCK, int(sums[-1]) if sums.size else 0, _TRIGGER_BLOCK))
        return np.split(words, cuts)

    def best(self, words: Integers) -> TriggerPairs:
        size = self.allowed.size
        seen, together, met = np.full(size, -1), np.zeros(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        found = []
        for word in words:
            positions = self.order[self.first[word] : self.first[word + 1]]
            scratch = (seen, together, met)
            others = met[: kernels.count_cooccurrences(positions, self.ids, self.window_start, self.allowed, *scratch)]
            information = np.empty(others.size)
            kernels.mutual_informations(others, together, self.reach, positions.size, self.ids.size, information)
            pairs = TriggerPairs(others.copy(), np.full(others.size, word), together[others], information)
            together[others] = 0
            found.append(self._select(pairs))
        return TriggerPairs.joined(found)

    def _select(self, pairs: TriggerPairs) -> TriggerPairs:
        if self.covered.size:
            keys = pairs.triggers * self.allowed.size + pairs.words
            indices = np.minimum(np.searchsorted(self.covered, keys), self.covered.size - 1)
            pairs = pairs.take(np.flatnonzero((self.covered[indices] != keys) | (pairs.triggers == pairs.words)))
        return pairs.take(np.lexsort((pairs.triggers, -pairs.information))[: self.per_word])


def next_occurrences(ids: WordIds, vocab_size: int) -> Integers:
    """The next position of each id; the end of the stream if there is none."""
    positions = np.empty(ids.size, dtype=np.int64)
    kernels.next_occurrences(ids, np.empty(vocab_size, dtype=np.int64), positions)
    return positions


def window_bounds(stream: TokenStream, window: int) -> tuple[Integers, Integers]:
    """For every position the first one of its window, and the end of its document.

    >>> stream = TokenStream.of([[5, 6], [7]], starts_document=True)
    >>> [column.tolist() for column in window_bounds(stream, 2)]
    [[0, 0, 0, 3, 3], [3, 3, 3, 5, 5]]
    """
    begins = stream.bounds[:-1][stream.starts_document]
    begins = np.unique(np.concatenate([[0], begins])) if stream.ids.size else begins
    lengths = np.diff(np.append(begins, stream.ids.size))
    starts = np.maximum(np.arange(stream.ids.size) - window, np.repeat(begins, lengths))
    return starts, np.repeat(begins + lengths, lengths)
