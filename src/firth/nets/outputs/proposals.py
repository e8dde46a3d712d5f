"""Proposals: what the samples of an output layer are drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS

_TOGETHER = 128  # places that share the samples of a bigram proposal
_MIXED = 0.5  # share of the unigram in a bigram proposal
_TOKENS = 5_000_000  # of a text that are looked at for followers
_LEAST = 2  # times a pair must have been seen


class Samples(NamedTuple):
    """Tokens that were drawn, each once and in order, for the places that share them."""

    places: Tensor | slice
    """Those places."""
    tokens: Tensor
    times: Tensor
    """How often each was drawn."""
    shares: Tensor
    """(all tokens): what they were drawn from."""


class Followers(NamedTuple):
    """Which tokens followed each, and what share of all that followed it each was."""

    bounds: npt.NDArray[np.int64]
    """Where the followers of each token begin, and the end."""
    tokens: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]


def count_followers(store: TokenStore, size: int) -> Followers:
    """The followers in the first millions of tokens of a text; an end of sentence stands before and after each."""
    ends = np.asarray(store.sentences[1:], dtype=np.int64)
    ends = ends[: max(1, int(np.searchsorted(ends, _TOKENS)))]
    ids = np.asarray(store.ids[: ends[-1] if ends.size else 0], dtype=np.int64)
    return followers(np.concatenate([[EOS], np.insert(ids, ends, EOS)]), size)


def followers(ids: npt.NDArray[np.int64], size: int) -> Followers:
    """The pairs of neighbours that occur at least twice.

    >>> found = followers(np.array([3, 5, 6, 3, 5, 6, 3, 5, 7]), 8)
    >>> found.bounds.tolist(), found.tokens.tolist(), found.shares.tolist()
    ([0, 0, 0, 0, 1, 1, 2, 3, 3], [5, 6, 3], [1.0, 1.0, 1.0])
    """
    pairs, counts = np.unique(ids[:-1] * size + ids[1:], return_counts=True)
    pairs, counts = pairs[counts >= _LEAST], counts[counts >= _LEAST]
    firsts = pairs // size
    totals = np.bincount(firsts, weights=counts, minlength=size)
    return Followers(np.searchsorted(firsts, np.arange(size + 1)), pairs % size, counts / totals[firsts])


class Proposal:
    """Draws tokens by their frequency, or by what mostly follows the tokens before the places they are for.

    Samples are shared, so that all scores are one product: by all places of a batch, or for bigrams by 128 places with
    the same or neighbouring tokens before them. These are drawn from the mean of the bigrams of their places, mixed in
    equal parts with the unigram. Samples are stratified: the n-th of k lies in the n-th k-th of the distribution, which
    leaves means as they are and makes everything that is estimated from them steadier.
    """

    def __init__(self, shares: npt.NDArray[np.float64], samples: int) -> None:
        self.shares = shares
        self.samples = samples
        self.followers: Followers | None = None

    def draw(self, places: int, previous: Tensor | None, rng: np.random.Generator) -> Iterator[Samples]:
        """Samples for all places, whose tokens before them are `previous`; if these are not known by frequency."""
        if self.followers is None or previous is None:
            yield self._samples(slice(0, places), self.shares, rng)
            return
        for some in torch.split(previous.argsort(stable=True), _TOGETHER):
            yield self._samples(some, self._mixture(self.followers, previous[some].numpy()), rng)

    def _mixture(self, known: Followers, previous: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The mean over some places of the probabilities of what follows the tokens before them."""
        befores, counts = np.unique(previous, return_counts=True)
        lengths = known.bounds[befores + 1] - known.bounds[befores]
        at = np.repeat(known.bounds[befores] - lengths.cumsum() + lengths, lengths) + np.arange(lengths.sum())
        weights = known.shares[at] * np.repeat(counts / previous.size, lengths)
        mixed = np.bincount(known.tokens[at], weights=weights, minlength=self.shares.size).astype(np.float64)
        mixed *= (self.shares > 0) * (1 - _MIXED)
        mixed += (1 - mixed.sum()) * self.shares
        return mixed

    def _samples(self, places: Tensor | slice, shares: npt.NDArray[np.float64], rng: np.random.Generator) -> Samples:
        drawn, times = stratified(shares, self.samples, rng)
        return Samples(places, torch.from_numpy(drawn), torch.from_numpy(times), torch.from_numpy(shares))


def stratified(
    shares: npt.NDArray[np.float64], samples: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The tokens that were drawn, in order, and how often each was; n times in the mean if its share is n of k.

    >>> stratified(np.array([0.5, 0.0, 0.25, 0.25]), 4, np.random.default_rng(0))
    (array([0, 2, 3]), array([2, 1, 1]))
    """
    heights = shares.cumsum()
    points = (np.arange(samples) + rng.random(samples)) * (heights[-1] / samples)
    last = int(np.flatnonzero(shares)[-1])
    drawn, times = np.unique(np.minimum(np.searchsorted(heights, points, side="right"), last), return_counts=True)
    return drawn, times.astype(np.int64)
