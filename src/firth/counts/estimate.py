"""From a trie and a smoothing method to probabilities and back-off weights."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _estimate_kernels as kernels
from firth.counts._estimate_kernels import FLAT_INTERPOLATED, INTERPOLATED, UNSCALED
from firth.counts.room import Room
from firth.counts.smoothing import Plan, Rates
from firth.counts.trie import Trie

_PART = 1 << 15  # nodes that one thread handles at a time

Floats = npt.NDArray[np.float64]


class Table(NamedTuple):
    """What a trie's n-grams are worth."""

    logp: npt.NDArray[Any]
    """The natural logarithm of the probability of each node's last word after the others."""
    bow: Floats
    """The natural logarithm of the weight with which each history hands on to the shorter one."""


def estimate(
    trie: Trie,
    plan: Plan,
    mask: npt.NDArray[np.bool_],
    rounded: bool = False,
    threads: int | None = None,
    room: Room | None = None,
) -> Table:
    """Probabilities and back-off weights; `mask` tells which words may follow.

    `rounded` keeps logarithms as float32 and fits the back-off weights to the rounded probabilities, so that they still
    sum to one.
    """
    room = room or Room()
    words = int(mask.sum())
    logp = room.empty(trie.words.size, np.float32 if rounded else np.float64)
    bow = room.empty(trie.contexts, np.float64)
    unigrams = _unigrams(plan, mask, rounded)
    kernels.logarithms(unigrams, 0, unigrams.size, 0, logp)
    for n in range(2, trie.order + 1):
        rates, begin, base, end = plan.rates[n - 1], *(int(trie.levels[n - 2 + i]) for i in range(3))
        lower, logs, weights = logp[begin:base], logp[base:end], bow[begin:base]
        links, counts = trie.links[base:end], plan.counts[n - 1]

        def work(
            a: int, b: int, rates: Rates = rates, begin: int = begin, base: int = base, links: Any = links,
            counts: Any = counts, lower: Any = lower, weights: Floats = weights, logs: Any = logs,
        ) -> None:  # fmt: skip
            kernels.estimate(
                trie.first, (a, b), begin, base, counts, links, lower, begin, rates.table, rates.slope, rates.extra,
                rates.taken, plan.spare, plan.combine, 1 / words, plan.weight, words, rounded, logs, weights,
            )  # fmt: skip

        in_parts(begin, base, work, threads)
    with np.errstate(divide="ignore"):
        np.log(bow, out=bow)
    return Table(logp, bow)


def renormalise(trie: Trie, logp: npt.NDArray[Any], flat: float = 0.0, threads: int | None = None) -> Floats:
    """Back-off weights (logarithms) that make the probabilities sum to one after every history."""
    bow = np.ones(trie.contexts)
    lower = np.exp(logp[: trie.vocabulary].astype(np.float64))
    for n in range(2, trie.order + 1):
        begin, base, end = (int(trie.levels[n - 2 + i]) for i in range(3))
        p = np.exp(logp[base:end].astype(np.float64))
        links, weights = trie.links[base:end], bow[begin:base]

        def work(
            a: int, b: int, begin: int = begin, base: int = base, links: Any = links, lower: Floats = lower,
            p: Floats = p, weights: Floats = weights,
        ) -> None:  # fmt: skip
            kernels.renormalise(trie.first, (a, b), begin, base, links, lower, begin, flat, p, weights)

        in_parts(begin, base, work, threads)
        lower = p
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(bow))


def _unigrams(plan: Plan, mask: npt.NDArray[np.bool_], rounded: bool) -> Floats:
    """The probabilities of the words after an empty history, the uniform distribution being below it."""
    counts = np.where(mask, plan.counts[0], 0).astype(np.float64)
    rates, words = plan.rates[0], int(mask.sum())
    total = counts.sum()
    taken = np.zeros(counts.size)
    if rates.table.size:
        taken += rates.table[np.minimum(counts.astype(np.int64), rates.table.size - 1)]
    if rates.slope.size:
        taken += rates.slope[0] * counts
    if rates.taken.size:
        taken += np.where(mask, rates.taken, 0)
    more = float(rates.extra[0]) if rates.extra.size else 0.0
    if taken.sum() + more == 0:
        more = plan.spare
    rest = (taken.sum() + more) / (total + more)
    p = (counts - taken) / (total + more)
    unseen = mask & (counts == 0)
    if plan.combine in (INTERPOLATED, FLAT_INTERPOLATED):
        p = np.where(mask, p + rest / words, 0)
    elif plan.combine == UNSCALED:
        p = np.where(unseen, plan.weight / words, p)
    elif unseen.any():
        p[unseen] = rest / np.count_nonzero(unseen)
    elif rest < 1:
        p /= 1 - rest
    return round_to_sum(p) if rounded and plan.combine != UNSCALED else np.asarray(p)


def round_to_sum(p: Floats) -> Floats:
    """Probabilities that float32 logarithms can hold, what one loses by rounding given to the next: the sum stays."""
    order = np.argsort(-p, kind="stable")
    kernels.round_in_turn(p, order)
    return p


def in_parts(begin: int, end: int, work: Callable[[int, int], None], threads: int | None = None) -> None:
    """Calls `work(a, b)` for ranges that make up `begin` to `end`, in threads."""
    threads = cores(threads)
    bounds = [*range(begin, end, _PART), end]
    parts = list(pairwise(bounds))
    if threads == 1 or len(parts) < 3:
        for a, b in parts:
            work(a, b)
        return
    with ThreadPoolExecutor(threads) as executor:
        for _ in executor.map(work, *zip(*parts, strict=True)):
            pass
