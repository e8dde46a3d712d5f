"""Church and Gale (1991): Good-Turing on pairs of words, in buckets of pairs that are expected to be about as frequent.

The pair (h, w) belongs to the bucket floor(3 log10 e), e = N p(h) p(w) being how often it would occur if the words were
independent, p(h) = (c(h.) + 1/2) / (N + H/2) and p(w) = (c(w) + 1/2) / (N + V/2). Neighbouring buckets are pooled, from
the rarest pairs up, until each holds enough pairs that occur once. Within a bucket a pair that occurs r times counts as
r* times, and one that never occurs as n1 / n0 times. The counts of all pairs after h are divided by their sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts.estimate import Table
from firth.counts.good_turing import simple_good_turing
from firth.counts.parameters import sizes_between
from firth.counts.trie import NEVER_PREDICTED, Trie

_PER_DECADE = 3
_ENOUGH = 100  # pairs that occur once, in a bucket

Floats = npt.NDArray[np.float64]
Found = tuple[Table, tuple[Floats, Floats, Floats], dict[str, Any]]


def church_gale(trie: Trie, mask: npt.NDArray[np.bool_]) -> Found:
    """Probabilities of seen pairs, weights of histories, and what decides the share of unseen pairs."""
    counts = np.asarray(trie.counts).astype(np.float64)
    size = trie.vocabulary
    pairs = counts[trie.level(2)]
    children = sizes_between(trie.first)
    heads_of = np.repeat(np.arange(size), children)
    tails_of = trie.words[trie.level(2)].astype(np.int64)
    heads, tails, low = _expectations(
        counts[:size], np.bincount(heads_of, weights=pairs, minlength=size).astype(np.float64), mask
    )
    bucket_of = np.floor(heads[heads_of] + tails[tails_of]).astype(np.int64)
    width = int(np.floor(heads.max() + tails[mask].max())) + 1
    pool = _pool(np.bincount(bucket_of[pairs == 1], minlength=width), width)
    unseen = _pairs_by_bucket(heads, tails, mask, pool)  # of each head's pairs, by pooled bucket
    seen = np.zeros_like(unseen)
    np.add.at(seen, (heads_of, pool[bucket_of]), 1)
    unseen -= seen
    zero, stars = _expected_counts(pool[bucket_of], pairs, _histories(unseen, counts[:size]))
    sums = np.bincount(heads_of, weights=stars, minlength=size) + unseen @ zero
    with np.errstate(divide="ignore"):
        logp = np.concatenate([_unigrams(counts[:size], mask), np.log(stars) - np.log(sums[heads_of])])
        steps = np.log(zero)[pool]
        # The kernel adds the uniform distribution's logarithm for the words that may follow: take it off again.
        steps = steps + np.log(mask.sum())
        bow = -np.log(sums)
    parameters = {"unseen": [float(value) for value in zero], "lowest_bucket": low}
    return Table(logp, bow), (heads, tails, steps), parameters


def _expectations(words: Floats, histories: Floats, mask: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, int]:
    """Numbers of heads and tails whose sum, rounded down, is the bucket of a pair; the lowest bucket is 0."""
    seen = np.where(mask, words, 0)
    total = seen.sum()
    may_lead = np.ones(words.size, dtype=np.bool_)
    may_lead[[word for word in NEVER_PREDICTED if words[word] == 0]] = False
    heads = _PER_DECADE * np.log10(total * (histories + 0.5) / (total + may_lead.sum() / 2))
    tails = _PER_DECADE * np.log10((seen + 0.5) / (total + mask.sum() / 2))
    low = int(np.floor(heads.min() + tails[mask].min()))
    return heads - low, tails, low


def _pool(singles: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Bucket -> pooled bucket: each has enough pairs that occur once; the last takes what is left."""
    pool = np.zeros(width, dtype=np.int64)
    current, gathered = 0, 0
    for bucket in range(width):
        pool[bucket] = current
        gathered += int(singles[bucket])
        if gathered >= _ENOUGH and singles[bucket + 1 :].sum() >= _ENOUGH:
            current, gathered = current + 1, 0
    return pool


def _pairs_by_bucket(heads: Floats, tails: Floats, mask: npt.NDArray[np.bool_], pool: npt.NDArray[np.int64]) -> Floats:
    """How many pairs each head has in each pooled bucket."""
    found = np.zeros((heads.size, int(pool.max()) + 1))
    ranked = np.sort(tails[mask])
    values, places = np.unique(heads, return_inverse=True)
    edges = np.arange(pool.size + 1)
    for number, value in enumerate(values):
        cuts = np.searchsorted(np.floor(value + ranked), edges, side="left")
        cuts[-1] = ranked.size
        row = np.bincount(pool, weights=np.diff(cuts), minlength=found.shape[1])
        found[places == number] = row
    return found


def _histories(unseen: Floats, words: Floats) -> Floats:
    """Unseen pairs in each bucket, over the histories that occur."""
    return np.asarray(unseen[words > 0].sum(axis=0))


def _expected_counts(buckets: npt.NDArray[np.int64], pairs: Floats, unseen: Floats) -> tuple[Floats, Floats]:
    """What an unseen pair of each bucket counts as, and what every seen pair counts as."""
    zero = np.empty(unseen.size)
    stars = pairs.copy()
    for bucket in range(unseen.size):
        here = buckets == bucket
        n = np.bincount(pairs[here].astype(np.int64), minlength=3)
        found = simple_good_turing(n)
        if found is not None:
            expected = np.minimum(found[pairs[here].astype(np.int64)], pairs[here])
            stars[here] = np.where(expected > 0, expected, 0.5)
        else:
            discount = n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5
            stars[here] = pairs[here] - discount
        zero[bucket] = max(float(n[1]), 0.5) / max(float(unseen[bucket]), 1.0)
    return zero, stars


def _unigrams(words: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """Relative frequencies with one half added, for the empty history, which this model never asks for."""
    p = np.where(mask, words + 0.5, 0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p / p.sum()))
