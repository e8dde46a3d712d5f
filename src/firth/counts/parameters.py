"""Smoothing parameters fitted to held-out text, or to the training text with each token left out in turn.

An event is an n-gram to be predicted `weight` times, with its count and the count of its history in the training text.
Leaving one out lowers both counts by one, so the parameter of histories that occur k times is estimated on those that
occur k + 1 times.

Good-Turing estimates are expected counts in new text from counts of counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts._estimate_kernels import align_tries, jelinek_mercer_step
from firth.counts.trie import NEVER_PREDICTED, Floats, Integers, Mask, Trie

_GOLDEN = (5**0.5 - 1) / 2
_SIGNIFICANCE = 1.65  # standard deviations by which the two estimates must differ for Turing's to be used
_BUCKETS_PER_DECADE = 3
_MIN_SINGLETONS = 100  # pairs that occur once, per bucket


@dataclass(frozen=True)
class Events:
    """The n-grams of one length to be predicted."""

    weight: Floats
    count: Floats
    total: Floats  # the count of the history; 0 where it was never seen
    below: Integers | None  # the event of the shorter history; None for unigrams

    @property
    def frequency(self) -> Floats:
        """The relative frequency after the history; 0 where it was never seen."""
        return np.divide(self.count, self.total, out=np.zeros_like(self.count), where=self.total > 0)


def leave_one_out(trie: Trie) -> list[Events]:
    """The events of the training text, each excluded from its own counts."""
    events = []
    for n in range(1, trie.order + 1):
        counts = trie.counts[trie.level(n)].astype(np.float64)
        if n == 1:
            counts[list(NEVER_PREDICTED)] = 0
            totals, below = np.full(counts.size, counts.sum()), None
        else:
            histories = trie.level(n - 1)
            sizes = differences(trie.first[histories.start : histories.stop + 1])
            totals = np.repeat(_child_totals(trie, np.arange(histories.start, histories.stop)), sizes)
            below = trie.links[trie.level(n)].astype(np.int64) - int(trie.levels[n - 2])
        events.append(Events(counts, np.maximum(counts - 1, 0), np.maximum(totals - 1, 0), below))
    return events


def held_out(trie: Trie, other: Trie) -> list[Events]:
    """The events of the held-out text `other`, with their counts in the training text."""
    nodes = np.full(other.words.size, -1, dtype=np.int64)
    align_tries(trie.levels, trie.words, trie.first, other.levels, other.words, other.first, nodes)
    unigrams = trie.counts[trie.level(1)].astype(np.float64)
    unigrams[list(NEVER_PREDICTED)] = 0
    weight = other.counts[other.level(1)].astype(np.float64)
    weight[list(NEVER_PREDICTED)] = 0
    events = [Events(weight, unigrams, np.full(unigrams.size, unigrams.sum()), None)]
    for n in range(2, trie.order + 1):
        level, histories = other.level(n), other.level(n - 1)
        found, parents = nodes[level], nodes[histories]
        counts = np.where(found >= 0, trie.counts[np.maximum(found, 0)], 0).astype(np.float64)
        totals = np.zeros(parents.size)
        totals[parents >= 0] = _child_totals(trie, parents[parents >= 0])
        sizes = differences(other.first[histories.start : histories.stop + 1])
        below = other.links[level].astype(np.int64) - int(other.levels[n - 2])
        events.append(Events(other.counts[level].astype(np.float64), counts, np.repeat(totals, sizes), below))
    return events


def differences(bounds: npt.NDArray[Any]) -> Integers:
    """The differences between consecutive numbers, which may be unsigned.

    >>> differences(np.array([3, 5, 9], dtype=np.uint32)).tolist()
    [2, 4]
    """
    whole: Integers = bounds.astype(np.int64)
    return whole[1:] - whole[:-1]


def _child_totals(trie: Trie, nodes: Integers) -> Floats:
    """The sum of the counts of the children of each node."""
    sums = np.concatenate([[0], np.cumsum(trie.counts, dtype=np.int64)])
    return np.asarray(sums[trie.first[nodes + 1]] - sums[trie.first[nodes]], dtype=np.float64)


def fit_additive(events: Events, words: int) -> float:
    """The delta in (0, 1] with the highest likelihood under (c + delta) / (c(h.) + delta V)."""
    pairs, inverse = np.unique(np.stack([events.count, events.total]), axis=1, return_inverse=True)
    weights = np.bincount(inverse.ravel(), weights=events.weight)
    counts, totals = pairs

    def likelihood(delta: float) -> float:
        return float(weights @ (np.log(counts + delta) - np.log(totals + delta * words)))

    return maximise(likelihood, 1e-8, 1.0)


def fit_prior(events: Events, below: Floats) -> float:
    """The strength mu of a Dirichlet prior around the lower-order distribution `below`."""
    used = events.weight > 0
    weight, count, total, below = (array[used] for array in (events.weight, events.count, events.total, below))

    def likelihood(mu: float) -> float:
        return float(weight @ (np.log(count + mu * below) - np.log(total + mu)))

    return maximise(likelihood, 1e-3, 1e6)


def buckets_of(totals: Floats) -> Integers:
    """The bucket of a history by its count: 1, 2-3, 4-7, 8-15, ...; -1 where it was never seen.

    >>> buckets_of(np.array([0.0, 1.0, 3.0, 4.0])).tolist()
    [-1, 0, 1, 2]
    """
    return np.frexp(totals)[1].astype(np.int64) - 1


def weight_of(weights: Floats, totals: Floats) -> Floats:
    """The weight of each history, from the weights of buckets."""
    return np.asarray(weights[np.clip(buckets_of(totals), 0, weights.size - 1)])


def fit_weights(events: Events, below: Floats) -> Floats:
    """The weight of the longer history in each bucket, by expectation maximisation (Jelinek and Mercer 1980)."""
    used = events.weight > 0
    buckets = buckets_of(events.total)[used]
    frequency, weight, below = events.frequency[used], events.weight[used], below[used]
    size = max(int(buckets.max(initial=0)) + 1, 1)
    weights = np.full(size, 0.5)
    for _ in range(200):
        gains, sums = np.zeros(size), np.zeros(size)
        jelinek_mercer_step(weight, frequency, below, buckets, weights, gains, sums)
        updated = np.divide(gains, sums, out=weights.copy(), where=sums > 0)
        has_converged = float(np.abs(updated - weights).max()) < 1e-7
        weights = updated
        if has_converged:
            break
    known = np.flatnonzero(sums > 0)
    if known.size == 0:
        return np.full_like(weights, 0.5)
    # Buckets without an event take the weight of the nearest one below, else above.
    nearest = known[np.maximum(np.searchsorted(known, np.arange(weights.size), side="right") - 1, 0)]
    return np.asarray(weights[nearest])


def maximise(function: Callable[[float], float], low: float, high: float) -> float:
    """The maximum of a unimodal function between `low` and `high`, by golden-section search on a log scale.

    >>> round(maximise(lambda x: -(x - 3) ** 2, 0.1, 100), 4)
    3.0
    """
    a, b = float(np.log(low)), float(np.log(high))
    c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_c, at_d = function(float(np.exp(c))), function(float(np.exp(d)))
    for _ in range(60):
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


def interpolate(events: Events, weight: Floats, below: Floats) -> Floats:
    """The probability of each event: `weight` times its relative frequency, and the rest of the lower order."""
    return np.asarray(np.where(events.total > 0, weight * events.frequency + (1 - weight) * below, below))


def simple_good_turing(n: Integers) -> Floats | None:
    """r* for every r up to the largest count, where `n[r]` is the number of n-grams that occur r times.

    Turing's (r + 1) n[r+1] / n[r] while the counts of counts are dense, then a log-log regression line through them
    (Gale and Sampson 1995). None where the line does not fall fast enough.

    >>> n = np.zeros(8, dtype=np.int64)
    >>> n[1:8] = 120, 40, 24, 13, 15, 5, 11
    >>> simple_good_turing(n)[1:3].round(3).tolist()
    [0.75, 1.69]
    """
    r = np.flatnonzero(n)
    r = r[r > 0]
    if r.size < 2 or r[0] != 1:
        return None
    slope = _fit_slope(r, n[r])
    if slope > -1 - 1e-9:
        return None
    every = np.arange(n.size, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        line = (every + 1) * np.exp(slope * (np.log(every + 1) - np.log(every)))
    line[0] = 0
    expected = line.copy()
    for count in range(1, n.size - 1):
        here, after = int(n[count]), int(n[count + 1])
        if here == 0 or after == 0:
            break
        turing = (count + 1) * after / here
        deviation = np.sqrt((count + 1) ** 2 * after / here**2 * (1 + after / here))
        if abs(turing - line[count]) <= _SIGNIFICANCE * deviation:
            break
        expected[count] = turing
    return np.asarray(expected)


def _fit_slope(r: Integers, n: Integers) -> float:
    """The slope of log Z over log r, where Z averages the counts of counts over the gaps beside them."""
    before = np.concatenate([[0], r[:-1]])
    after = np.concatenate([r[1:], [2 * r[-1] - before[-1]]])
    slope, _ = np.polyfit(np.log(r), np.log(2 * n / (after - before)), 1)
    return float(slope)


def church_gale(trie: Trie, mask: Mask) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats, Floats], dict[str, Any]]:
    """Church and Gale's (1991) bigrams: (logp, bow), (history_scores, word_scores, bucket_logp), and the parameters.

    The pair (h, w) belongs to the bucket floor(3 log10 e), where e = N p(h) p(w) is its count under independence,
    p(h) = (c(h.) + 1/2) / (N + H/2) and p(w) = (c(w) + 1/2) / (N + V/2). Neighbouring buckets are pooled, from the
    rarest pairs up, until each holds enough pairs that occur once. Within a bucket a pair that occurs r times counts as
    r* times, an unseen one n1 / n0 times. The counts of all pairs after h are divided by their sum.
    """
    counts = np.asarray(trie.counts).astype(np.float64)
    size = trie.vocab_size
    pairs = counts[trie.level(2)]
    histories = np.repeat(np.arange(size), differences(trie.first))
    words = trie.words[trie.level(2)].astype(np.int64)
    totals = np.bincount(histories, weights=pairs, minlength=size).astype(np.float64)
    history_scores, word_scores, lowest = _bucket_scores(counts[:size], totals, mask)
    buckets = np.floor(history_scores[histories] + word_scores[words]).astype(np.int64)
    width = int(np.floor(history_scores.max() + word_scores[mask].max())) + 1
    pool = _pool_buckets(np.bincount(buckets[pairs == 1], minlength=width), width)
    unseen = _pairs_by_bucket(history_scores, word_scores, mask, pool)
    seen = np.zeros_like(unseen)
    np.add.at(seen, (histories, pool[buckets]), 1)
    unseen -= seen
    zero, expected = _expected_counts(pool[buckets], pairs, np.asarray(unseen[counts[:size] > 0].sum(axis=0)))
    sums = np.bincount(histories, weights=expected, minlength=size) + unseen @ zero
    unigrams = np.where(mask, counts[:size] + 0.5, 0)  # for the empty history, which this model never needs
    with np.errstate(divide="ignore"):
        logp = np.concatenate([np.log(unigrams / unigrams.sum()), np.log(expected) - np.log(sums[histories])])
        # The kernel adds the logarithm of the uniform distribution for the words that may follow: subtract it here.
        bucket_logp = np.log(zero)[pool] + np.log(mask.sum())
        bow = -np.log(sums)
    parameters = {"unseen": [float(value) for value in zero], "lowest_bucket": lowest}
    return (logp, bow), (history_scores, word_scores, bucket_logp), parameters


def _bucket_scores(words: Floats, histories: Floats, mask: Mask) -> tuple[Floats, Floats, int]:
    """Scores of histories and words whose sum, rounded down, is the bucket of a pair; the lowest bucket becomes 0."""
    seen = np.where(mask, words, 0)
    total = seen.sum()
    is_history = np.ones(words.size, dtype=np.bool_)
    is_history[[word for word in NEVER_PREDICTED if words[word] == 0]] = False
    history_scores = _BUCKETS_PER_DECADE * np.log10(total * (histories + 0.5) / (total + is_history.sum() / 2))
    word_scores = _BUCKETS_PER_DECADE * np.log10((seen + 0.5) / (total + mask.sum() / 2))
    lowest = int(np.floor(history_scores.min() + word_scores[mask].min()))
    return history_scores - lowest, word_scores, lowest


def _pool_buckets(singletons: Integers, width: int) -> Integers:
    """Bucket -> pooled bucket; each has enough pairs that occur once, and the last takes the remainder."""
    pool = np.zeros(width, dtype=np.int64)
    current, gathered = 0, 0
    for bucket in range(width):
        pool[bucket] = current
        gathered += int(singletons[bucket])
        if gathered >= _MIN_SINGLETONS and singletons[bucket + 1 :].sum() >= _MIN_SINGLETONS:
            current, gathered = current + 1, 0
    return pool


def _pairs_by_bucket(history_scores: Floats, word_scores: Floats, mask: Mask, pool: Integers) -> Floats:
    """(history, pooled bucket): the number of pairs."""
    found = np.zeros((history_scores.size, int(pool.max()) + 1))
    ranked = np.sort(word_scores[mask])
    values, inverse = np.unique(history_scores, return_inverse=True)
    edges = np.arange(pool.size + 1)
    for number, value in enumerate(values):
        cuts = np.searchsorted(np.floor(value + ranked), edges, side="left")
        cuts[-1] = ranked.size
        found[inverse == number] = np.bincount(pool, weights=np.diff(cuts), minlength=found.shape[1])
    return found


def _expected_counts(buckets: Integers, pairs: Floats, unseen: Floats) -> tuple[Floats, Floats]:
    """The expected count of an unseen pair of each bucket, and that of every seen pair."""
    zero = np.empty(unseen.size)
    expected = pairs.copy()
    for bucket in range(unseen.size):
        here = buckets == bucket
        n = np.bincount(pairs[here].astype(np.int64), minlength=3)
        found = simple_good_turing(n)
        if found is not None:
            smoothed = np.minimum(found[pairs[here].astype(np.int64)], pairs[here])
            expected[here] = np.where(smoothed > 0, smoothed, 0.5)
        else:
            expected[here] = pairs[here] - (n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5)
        zero[bucket] = max(float(n[1]), 0.5) / max(float(unseen[bucket]), 1.0)
    return zero, expected
