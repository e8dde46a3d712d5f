"""Probabilities and back-off weights of a trie under a smoothing method; pruning and quantisation to one byte.

Quantisation rounds down, so that the words seen after a history never sum to more than one. The back-off weights stay
exact and take up the difference: a quantised model is normalised like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.cores import in_order
from firth.counts import _estimate_kernels as kernels
from firth.counts._estimate_kernels import CONSTANT_WEIGHT, INTERPOLATED, UNIFORM_INTERPOLATED
from firth.counts.recipe import NgramRecipe
from firth.counts.smoothing import SmoothingPlan
from firth.counts.trie import ArrayAllocator, Floats, Mask, Trie
from firth.errors import RecipeError

_BLOCK = 1 << 15  # nodes per task of a thread
_CODES = 256


class BackoffTable(NamedTuple):
    """Natural logarithms of the probabilities and back-off weights of a trie."""

    logp: npt.NDArray[Any]  # the log-probability of each node's last word after its history
    bow: Floats  # the log back-off weight of each history


def estimate(
    trie: Trie, plan: SmoothingPlan, mask: Mask, rounded: bool, threads: int | None, allocator: ArrayAllocator | None
) -> BackoffTable:
    """Probabilities and back-off weights; `mask` is true for the words that may follow, `rounded` stores float32."""
    allocator = allocator or ArrayAllocator()
    words = int(mask.sum())
    logp = allocator.empty(trie.words.size, np.float32 if rounded else np.float64)
    bow = allocator.empty(trie.contexts, np.float64)
    unigrams = _unigrams(plan, mask, rounded)
    kernels.write_logs(unigrams, 0, unigrams.size, 0, logp)

    def estimate_level(n: int) -> None:
        discounts, begin, base, end = plan.discounts[n - 1], *(int(trie.levels[n - 2 + i]) for i in range(3))
        lower, logs, weights = logp[begin:base], logp[base:end], bow[begin:base]
        links, counts = trie.links[base:end], plan.counts[n - 1]

        def estimate_block(histories: tuple[int, int]) -> None:
            kernels.estimate(
                trie.first, histories, begin, base, counts, links, lower, *discounts, plan.min_pseudo_count,
                plan.combine, 1 / words, plan.weight, words, rounded, logs, weights,
            )  # fmt: skip

        _for_histories(begin, base, estimate_block, threads)

    for n in range(2, trie.order + 1):
        estimate_level(n)
    with np.errstate(divide="ignore"):
        np.log(bow, out=bow)
    return BackoffTable(logp, bow)


def renormalise(trie: Trie, logp: npt.NDArray[Any], uniform: float = 0.0, threads: int | None = None) -> Floats:
    """Log back-off weights that make the probabilities sum to one after every history."""
    bow = np.ones(trie.contexts)

    def renormalise_level(n: int, lower: Floats) -> Floats:
        begin, base, end = (int(trie.levels[n - 2 + i]) for i in range(3))
        p = np.exp(logp[base:end].astype(np.float64))
        arrays = trie.links[base:end], lower, uniform, p, bow[begin:base]
        _for_histories(begin, base, lambda block: kernels.renormalise(trie.first, block, begin, base, *arrays), threads)
        return p

    p = np.exp(logp[: trie.vocab_size].astype(np.float64))
    for n in range(2, trie.order + 1):
        p = renormalise_level(n, p)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(bow))


def _for_histories(begin: int, end: int, work: Callable[[tuple[int, int]], None], threads: int | None) -> None:
    """Calls `work((a, b))` in threads for blocks of the histories from `begin` to `end`."""
    list(in_order(work, pairwise([*range(begin, end, _BLOCK), end]), threads))


def _unigrams(plan: SmoothingPlan, mask: Mask, rounded: bool) -> Floats:
    """The unigram probabilities; their lower order is the uniform distribution."""
    counts = np.where(mask, plan.counts[0], 0).astype(np.float64)
    discounts, words = plan.discounts[0], int(mask.sum())
    total = counts.sum()
    discount = np.zeros(counts.size)
    if discounts.by_count.size:
        discount += discounts.by_count[np.minimum(counts.astype(np.int64), discounts.by_count.size - 1)]
    if discounts.proportional.size:
        discount += discounts.proportional[0] * counts
    if discounts.by_ngram.size:
        discount += np.where(mask, discounts.by_ngram, 0)
    pseudo = float(discounts.pseudo_counts[0]) if discounts.pseudo_counts.size else 0.0
    if discount.sum() + pseudo == 0:
        pseudo = plan.min_pseudo_count
    gamma = (discount.sum() + pseudo) / (total + pseudo)
    p = (counts - discount) / (total + pseudo)
    unseen = mask & (counts == 0)
    if plan.combine in (INTERPOLATED, UNIFORM_INTERPOLATED):
        p = np.where(mask, p + gamma / words, 0)
    elif plan.combine == CONSTANT_WEIGHT:
        p = np.where(unseen, plan.weight / words, p)
    elif unseen.any():
        p[unseen] = gamma / np.count_nonzero(unseen)
    elif gamma < 1:
        p /= 1 - gamma
    if rounded and plan.combine != CONSTANT_WEIGHT:
        kernels.round_with_carry(p, np.argsort(-p, kind="stable"))
    return np.asarray(p)


def select_by_count(trie: Trie, min_counts: list[int]) -> Mask:
    """The n-grams with the minimum count of their length, which does not fall: their prefixes are selected too."""
    kept = np.ones(trie.words.size, dtype=np.bool_)
    for n in range(2, trie.order + 1):
        kept[trie.level(n)] = trie.counts[trie.level(n)] >= min_counts[n - 1]
    return kept


def select_by_entropy(trie: Trie, table: BackoffTable, threshold: float) -> Mask:
    """The n-grams whose removal raises the perplexity by at least this fraction (Stolcke 1998, equation 4).

    The probability of a history is taken from its count: Kneser-Ney's lower orders are no probabilities of histories
    (Chelba et al. 2010). An n-gram is kept while it is the prefix of a longer one.
    """
    kept = np.ones(trie.words.size, dtype=np.bool_)
    counts = np.asarray(trie.counts).astype(np.float64)
    total = counts[: trie.vocab_size].sum()
    for n in range(trie.order, 1, -1):
        begin, base, end = (int(trie.levels[n - 2 + i]) for i in range(3))
        needed = np.zeros(end - base, dtype=np.bool_)
        if n < trie.order:
            sums = np.concatenate([[0], np.cumsum(kept[end : int(trie.levels[n + 1])])])
            first = trie.first[base : end + 1].astype(np.int64) - end
            needed = sums[first[1:]] > sums[first[:-1]]
        kernels.prune_children(
            trie.first, begin, base, counts, total, trie.links, table.logp, table.bow, threshold, needed, kept
        )
    kernels.keep_suffixes(trie.links, trie.levels, kept)
    return kept


def prune(
    recipe: NgramRecipe, trie: Trie, table: BackoffTable, uniform: float, threads: int | None
) -> tuple[Trie, BackoffTable]:
    """Prunes by count, then by relative entropy; the back-off weights are renormalised after each."""
    min_counts = recipe.min_counts_by_order()
    if recipe.smoothing == "church-gale" and (max(min_counts) > 1 or recipe.prune):
        raise RecipeError("church-gale models cannot be pruned: leave min_counts and prune out.")

    def keep(kept: Mask) -> tuple[Trie, BackoffTable]:
        small, logp, bow = trie.select(kept), table.logp[kept], table.bow[kept[: table.bow.size]]
        bow = bow if recipe.smoothing == "stupid" else renormalise(small, logp, uniform, threads)
        return small, BackoffTable(logp, bow)

    if max(min_counts) > 1:
        trie, table = keep(select_by_count(trie, min_counts))
    if recipe.prune:
        trie, table = keep(select_by_entropy(trie, table, recipe.prune))
    return trie, table


def quantise(trie: Trie, logp: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], Floats]:
    """The code of each n-gram, and the codebook of each n-gram length."""
    codes = np.empty(logp.size, dtype=np.uint8)
    codebooks = np.full((trie.order, _CODES), -np.inf)
    counts = np.asarray(trie.counts)
    for n in range(1, trie.order + 1):
        level = trie.level(n)
        values = logp[level].astype(np.float64)
        codebooks[n - 1] = _make_codebook(values, counts[level].astype(np.float64) + 1)
        codes[level] = np.searchsorted(codebooks[n - 1], values, side="right") - 1
    # Unigrams have no back-off weight to take up the difference.
    codebooks[0] -= np.log(np.exp(codebooks[0][codes[trie.level(1)]]).sum())
    return codes, codebooks


def dequantise(trie: Trie, codes: npt.NDArray[np.uint8], codebooks: Floats) -> Floats:
    """The log-probability of each n-gram."""
    return np.concatenate([codebook[codes[trie.level(n)]] for n, codebook in enumerate(codebooks, 1)])


def _make_codebook(values: Floats, weights: Floats) -> Floats:
    """256 ascending values, evenly spaced in the square roots of the weights; -inf first if there is a zero."""
    finite = np.isfinite(values)
    codebook = np.full(_CODES, -np.inf)
    if not finite.any():
        return codebook
    order = np.argsort(values[finite], kind="stable")
    known, sums = values[finite][order], np.cumsum(np.sqrt(weights[finite][order]))
    cuts = np.searchsorted(sums, np.linspace(0, sums[-1], _CODES - 1, endpoint=False), side="left")
    codebook[1:] = known[np.minimum(cuts, known.size - 1)]
    codebook[1] = known[0]
    if finite.all():
        codebook[0] = known[0]
    return np.maximum.accumulate(codebook)
