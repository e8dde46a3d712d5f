"""Trigger pairs: words that make another word likelier, or less likely, some way further on (Rosenfeld, 1994).

A pair a -> b is judged by the average mutual information between "a is among the last words" and "b is the next word",
over all four cells of their table:

    I(a; b) = sum over x in {a, not a}, y in {b, not b} of p(x, y) log (p(x, y) / (p(x) p(y)))
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _maxent_kernels as kernels
from firth.progress import progress
from firth.tokens.language import FIRST_WORD, Stream

PER_WORD = 3
"""At most so many triggers for one word, as in Rosenfeld's dictionary: more of them say the same again."""
_LEAST = 5  # rarer words neither trigger nor are triggered
_PARCEL = 1 << 16  # places that a thread looks at between two reports

Numbers = npt.NDArray[np.int64]


class TriggerPairs(NamedTuple):
    """Pairs of words, the most informative first."""

    triggers: Numbers
    words: Numbers
    """What each trigger is for."""
    counts: Numbers
    """How often the word comes while its trigger is within the window."""
    information: npt.NDArray[np.float64]
    """Average mutual information in nats."""

    def take(self, chosen: npt.NDArray[np.int64]) -> TriggerPairs:
        """Some of the pairs."""
        return TriggerPairs(self.triggers[chosen], self.words[chosen], self.counts[chosen], self.information[chosen])

    @classmethod
    def joined(cls, parts: Sequence[TriggerPairs]) -> TriggerPairs:
        """The pairs of all parts, one after the other."""
        none = np.empty(0, dtype=np.int64)
        parts = [cls(none, none, none, np.empty(0)), *parts]
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def choose_triggers(
    stream: Stream,
    vocabulary: int,
    count: int,
    window: int,
    *,
    per_word: int = PER_WORD,
    least: int = _LEAST,
    covered: Numbers | None = None,
    threads: int | None = None,
) -> TriggerPairs:
    """The `count` most informative pairs, at most `per_word` for each word that is triggered.

    `covered` are pairs to leave out, as a * vocabulary + b in rising order; a word may trigger itself in any case.
    Words that occur less than `least` times, and special tokens, have no part in it.

    >>> stream = Stream.of([[5, 6], [7, 8]] * 10)
    >>> choose_triggers(stream, 9, count=1, window=1).words.tolist()
    [6]
    """
    finder = _Finder(stream, vocabulary, window, per_word, least, covered)
    parcels = finder.parcels()
    with (
        progress("choosing triggers", total=finder.ids.size, unit="words") as advance,
        ThreadPoolExecutor(cores(threads)) as executor,
    ):
        found = []
        for words, pairs in zip(parcels, executor.map(finder.best, parcels), strict=True):
            found.append(pairs)
            advance(float(finder.counts[words].sum()))
    pairs = TriggerPairs.joined(found)
    return pairs.take(np.argsort(-pairs.information, kind="stable")[:count])


class _Finder:
    """The words of a stream, where each occurs, and from how many places each is within the window."""

    def __init__(
        self, stream: Stream, vocabulary: int, window: int, per_word: int, least: int, covered: Numbers | None
    ) -> None:
        self.ids, self.per_word = stream.ids, per_word
        self.covered = np.empty(0, dtype=np.int64) if covered is None else covered
        self.counts = np.bincount(self.ids, minlength=vocabulary)
        self.allowed = self.counts >= least
        self.allowed[:FIRST_WORD] = False
        self.lows, ends = window_of(stream, window)
        self.order = np.argsort(self.ids, kind="stable")
        self.first = np.concatenate([[0], np.cumsum(self.counts)])
        self.reach = np.zeros(vocabulary, dtype=np.int64)
        kernels.count_reach(self.ids, following(self.ids, vocabulary), ends, window, self.reach)

    def parcels(self) -> list[Numbers]:
        """The words that may be triggered, cut into runs with about equal numbers of occurrences."""
        words = np.flatnonzero(self.allowed)
        done = np.cumsum(self.counts[words])
        cuts = np.searchsorted(done, np.arange(_PARCEL, int(done[-1]) if done.size else 0, _PARCEL))
        return np.split(words, cuts)

    def best(self, words: Sequence[int]) -> TriggerPairs:
        """The best triggers of each of these words."""
        size = self.allowed.size
        seen, together, met = np.full(size, -1), np.zeros(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        found = []
        for word in words:
            places = self.order[self.first[word] : self.first[word + 1]]
            others = met[: kernels.count_near(places, self.ids, self.lows, self.allowed, seen, together, met)]
            information = np.empty(others.size)
            kernels.inform(others, together, self.reach, places.size, self.ids.size, information)
            pairs = TriggerPairs(others.copy(), np.full(others.size, word), together[others], information)
            together[others] = 0
            found.append(self._keep(pairs))
        return TriggerPairs.joined(found)

    def _keep(self, pairs: TriggerPairs) -> TriggerPairs:
        if self.covered.size:
            keys = pairs.triggers * self.allowed.size + pairs.words
            places = np.minimum(np.searchsorted(self.covered, keys), self.covered.size - 1)
            pairs = pairs.take(np.flatnonzero((self.covered[places] != keys) | (pairs.triggers == pairs.words)))
        return pairs.take(np.lexsort((pairs.triggers, -pairs.information))[: self.per_word])


def following(ids: npt.NDArray[np.uint32], vocabulary: int) -> Numbers:
    """The place where each id comes again; the end of the stream if it does not."""
    places = np.empty(ids.size, dtype=np.int64)
    kernels.follow(ids, np.empty(vocabulary, dtype=np.int64), places)
    return places


def window_of(stream: Stream, window: int) -> tuple[Numbers, Numbers]:
    """For every place the first one of its window, and the end of its text.

    >>> stream = Stream.of([[5, 6], [7]], fresh=True)
    >>> [column.tolist() for column in window_of(stream, 2)]
    [[0, 0, 0, 3, 3], [3, 3, 3, 5, 5]]
    """
    begins = stream.bounds[:-1][stream.fresh]
    begins = np.unique(np.concatenate([[0], begins])) if stream.ids.size else begins
    lengths = np.diff(np.append(begins, stream.ids.size))
    lows = np.maximum(np.arange(stream.ids.size) - window, np.repeat(begins, lengths))
    return lows, np.repeat(begins + lengths, lengths)
