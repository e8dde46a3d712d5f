"""Pruning: dropping the n-grams that matter least, and making the rest sum to one again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts import _prune_kernels as kernels
from firth.counts.estimate import Table
from firth.counts.trie import ROOT, Trie

Mask = npt.NDArray[np.bool_]


def with_least_counts(trie: Trie, least: list[int]) -> Mask:
    """Which n-grams occur at least so often, by length; since longer ones are rarer, histories of the kept are kept."""
    kept = np.ones(trie.words.size, dtype=np.bool_)
    for n in range(2, trie.order + 1):
        kept[trie.level(n)] = trie.counts[trie.level(n)] >= least[n - 1]
    return kept


def stolcke(trie: Trie, table: Table, threshold: float) -> Mask:
    """Which n-grams raise the perplexity by at least this share if they are dropped (Stolcke 1998, equation 4).

    The probability of a history is taken from its count, not from the model: Kneser-Ney's lower orders are no
    probabilities of histories (Chelba et al. 2010). An n-gram stays while a longer one goes on from it.
    """
    kept = np.ones(trie.words.size, dtype=np.bool_)
    counts = np.asarray(trie.counts).astype(np.float64)
    total = counts[: trie.vocabulary].sum()
    for n in range(trie.order, 1, -1):
        begin, base, end = (int(trie.levels[n - 2 + i]) for i in range(3))
        needed = np.zeros(end - base, dtype=np.bool_)
        if n < trie.order:
            sums = np.concatenate([[0], np.cumsum(kept[end : int(trie.levels[n + 1])])])
            first = trie.first[base : end + 1].astype(np.int64) - end
            needed = sums[first[1:]] > sums[first[:-1]]
        kernels.mark_useless(
            trie.first, begin, base, counts, total, trie.links, table.logp, table.bow, threshold, needed, kept
        )
    kernels.keep_suffixes(trie.links, trie.levels, kept)
    return kept


def keep_nodes(trie: Trie, kept: Mask, logp: npt.NDArray[Any]) -> tuple[Trie, npt.NDArray[Any]]:
    """The trie and probabilities of the kept nodes; every history of a kept n-gram must be kept too."""
    numbers = np.cumsum(kept, dtype=np.int64) - 1
    levels = np.concatenate([[0], np.cumsum([np.count_nonzero(kept[trie.level(n)]) for n in range(1, trie.order + 1)])])
    sums = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
    first = sums[trie.first.astype(np.int64)]
    first = np.append(first[:-1][kept[: trie.contexts]], sums[-1]).astype(np.uint32)
    links = trie.links[kept].copy()
    inner = links != ROOT
    links[inner] = numbers[links[inner]]
    small = Trie(levels.astype(np.int64), trie.words[kept], first, links, np.asarray(trie.counts)[kept])
    return small, logp[kept]
