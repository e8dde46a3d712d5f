"""Free parameters that are fitted to text: held-out text where there is some, else each token left out in turn.

An event is an n-gram with how often it is to be predicted (`weight`), its count and the count of its history in the
text that the model learns from, and the event of the shorter history below it. Leaving one out makes both counts
smaller by one, so a parameter for histories that occur k times is learnt from those that occur k + 1 times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts._parameter_kernels import heldout_counts, jelinek_mercer_round
from firth.counts.trie import NEVER_PREDICTED, Trie

Floats = npt.NDArray[np.float64]
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Events:
    """The n-grams of one length that are to be predicted."""

    weight: Floats
    count: Floats
    total: Floats
    """The count of the history; 0 where it was never seen."""
    below: npt.NDArray[np.int64] | None
    """The event of the shorter history; None for unigrams."""


def leave_one_out(trie: Trie) -> list[Events]:
    """The events of the text itself, each without itself."""
    events = []
    for n in range(1, trie.order + 1):
        counts = trie.counts[trie.level(n)].astype(np.float64)
        if n == 1:
            counts[list(NEVER_PREDICTED)] = 0
            totals = np.full(counts.size, counts.sum())
            below = None
        else:
            totals = history_totals(trie, n)
            below = trie.links[trie.level(n)].astype(np.int64) - int(trie.levels[n - 2])
        weight = counts
        events.append(Events(weight, np.maximum(counts - 1, 0), np.maximum(totals - 1, 0), below))
    return events


def held_out(trie: Trie, other: Trie) -> list[Events]:
    """The events of a held-out text, with their counts in the text that the model learns from."""
    nodes = np.full(other.words.size, -1, dtype=np.int64)
    heldout_counts(trie.levels, trie.words, trie.first, other.levels, other.words, other.first, nodes)
    events = []
    unigrams = trie.counts[trie.level(1)].astype(np.float64)
    unigrams[list(NEVER_PREDICTED)] = 0
    for n in range(1, trie.order + 1):
        level = other.level(n)
        weight = other.counts[level].astype(np.float64)
        found = nodes[level]
        counts = np.where(found >= 0, trie.counts[np.maximum(found, 0)], 0).astype(np.float64)
        if n == 1:
            weight[list(NEVER_PREDICTED)] = 0
            counts = unigrams
            events.append(Events(weight, counts, np.full(counts.size, counts.sum()), None))
            continue
        sizes = sizes_between(other.first[other.level(n - 1).start : other.level(n - 1).stop + 1])
        parents = nodes[other.level(n - 1)]
        totals = np.zeros(parents.size)
        known = parents >= 0
        totals[known] = _totals_of(trie, parents[known])
        below = other.links[level].astype(np.int64) - int(other.levels[n - 2])
        events.append(Events(weight, counts, np.repeat(totals, sizes), below))
    return events


def history_totals(trie: Trie, n: int) -> Floats:
    """For each n-gram of length `n` >= 2, the sum of the counts after its history."""
    histories = trie.level(n - 1)
    sizes = sizes_between(trie.first[histories.start : histories.stop + 1])
    return np.repeat(_totals_of(trie, np.arange(histories.start, histories.stop)), sizes)


def sizes_between(bounds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The differences between neighbours, of numbers that may be unsigned.

    >>> sizes_between(np.array([3, 5, 9], dtype=np.uint32)).tolist()
    [2, 4]
    """
    whole: npt.NDArray[np.int64] = bounds.astype(np.int64)
    return whole[1:] - whole[:-1]


def _totals_of(trie: Trie, nodes: npt.NDArray[np.int64]) -> Floats:
    """The sum of the counts of the children of each node."""
    sums = np.concatenate([[0], np.cumsum(trie.counts, dtype=np.int64)])
    return np.asarray(sums[trie.first[nodes + 1]] - sums[trie.first[nodes]], dtype=np.float64)


def fit_additive(events: Events, words: int) -> float:
    """The delta in (0, 1] that makes the events likeliest under (c + delta) / (c(h.) + delta V)."""
    pairs, places = np.unique(np.stack([events.count, events.total]), axis=1, return_inverse=True)
    weights = np.bincount(places.ravel(), weights=events.weight)
    counts, totals = pairs

    def likelihood(delta: float) -> float:
        return float(weights @ (np.log(counts + delta) - np.log(totals + delta * words)))

    return maximise(likelihood, 1e-8, 1.0)


def fit_prior(events: Events, below: Floats) -> float:
    """The strength mu of a Dirichlet prior around the shorter history's distribution `below`."""
    used = events.weight > 0
    weight, count, total, below = (array[used] for array in (events.weight, events.count, events.total, below))

    def likelihood(mu: float) -> float:
        return float(weight @ (np.log(count + mu * below) - np.log(total + mu)))

    return maximise(likelihood, 1e-3, 1e6)


def buckets_of(totals: Floats) -> npt.NDArray[np.int64]:
    """The bucket of a history by its count: 1, 2-3, 4-7, 8-15, ...; -1 where it was never seen.

    >>> buckets_of(np.array([0.0, 1.0, 3.0, 4.0])).tolist()
    [-1, 0, 1, 2]
    """
    return np.frexp(totals)[1].astype(np.int64) - 1


def fit_weights(events: Events, below: Floats) -> Floats:
    """The weight of the longer history in each bucket, by expectation maximisation (Jelinek and Mercer 1980)."""
    used = events.weight > 0
    buckets = buckets_of(events.total)[used]
    ratio = np.divide(events.count, events.total, out=np.zeros_like(events.count), where=events.total > 0)[used]
    weight, below = events.weight[used], below[used]
    size = max(int(buckets.max(initial=0)) + 1, 1)
    weights = np.full(size, 0.5)
    for _ in range(200):
        gains, sums = np.zeros(size), np.zeros(size)
        jelinek_mercer_round(weight, ratio, below, buckets, weights, gains, sums)
        better = np.divide(gains, sums, out=weights.copy(), where=sums > 0)
        done = float(np.abs(better - weights).max()) < 1e-7
        weights = better
        if done:
            break
    return _fill_gaps(weights, sums)


def _fill_gaps(weights: Floats, sums: Floats) -> Floats:
    """Buckets without an event take the weight of the nearest one below, else above."""
    known = np.flatnonzero(sums > 0)
    if known.size == 0:
        return np.full_like(weights, 0.5)
    nearest = known[np.maximum(np.searchsorted(known, np.arange(weights.size), side="right") - 1, 0)]
    return np.asarray(weights[nearest])


def maximise(function: Callable[[float], float], low: float, high: float, rounds: int = 60) -> float:
    """Where a function with one peak between `low` and `high` is largest, by golden section on a log scale.

    >>> round(maximise(lambda x: -(x - 3) ** 2, 0.1, 100), 4)
    3.0
    """
    a, b = float(np.log(low)), float(np.log(high))
    c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_c, at_d = function(float(np.exp(c))), function(float(np.exp(d)))
    for _ in range(rounds):
        if at_c > at_d:
            b, d, at_d = d, c, at_c
            c = b - _GOLDEN * (b - a)
            at_c = function(float(np.exp(c)))
        else:
            a, c, at_c = c, d, at_d
            d = a + _GOLDEN * (b - a)
            at_d = function(float(np.exp(d)))
        if b - a < 1e-6:
            break
    return float(np.exp((a + b) / 2))


def interpolate(events: Events, share: Any, below: Floats) -> Floats:
    """The probability of each event: `share` of the relative frequency, the rest of what is below."""
    ratio = np.divide(events.count, events.total, out=np.zeros_like(events.count), where=events.total > 0)
    return np.asarray(np.where(events.total > 0, share * ratio + (1 - share) * below, below))
