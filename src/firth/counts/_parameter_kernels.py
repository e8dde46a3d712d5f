"""Numba kernels for fitting parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.counts._query_kernels import ROOT, find_child


@njit(cache=True, nogil=True)
def heldout_counts(
    levels: Any, words: Any, first: Any, other_levels: Any, other_words: Any, other_first: Any, nodes: Any
) -> Any:
    """For each node of the other trie its node in the trie, or -1; both have the same vocabulary."""
    for g in range(other_levels[1]):
        nodes[g] = g
    for parent in range(other_levels[other_levels.size - 2]):
        at = nodes[parent]
        if at < 0 or at >= levels[levels.size - 2]:
            continue
        for child in range(other_first[parent], other_first[parent + 1]):
            found = find_child(words, first, np.uint32(at), other_words[child])
            if found != ROOT:
                nodes[child] = found


@njit(cache=True, nogil=True)
def jelinek_mercer_round(weight: Any, ratio: Any, below: Any, buckets: Any, weights: Any, gains: Any, sums: Any) -> Any:
    """One round of expectation maximisation: how much of each bucket's events the longer history explains."""
    for i in range(weight.size):
        bucket = buckets[i]
        if bucket < 0:
            continue
        longer = weights[bucket] * ratio[i]
        both = longer + (1.0 - weights[bucket]) * below[i]
        if both > 0.0:
            gains[bucket] += weight[i] * longer / both
            sums[bucket] += weight[i]
