"""Numba kernels for pruning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def mark_useless(
    first: Any, begin: Any, base: Any, counts: Any, total: Any, links: Any, logp: Any, bow: Any, threshold: Any,
    needed: Any, kept: Any,
) -> Any:  # fmt: skip
    """Unmarks the children of the nodes from `begin` to `base` whose loss changes the perplexity too little.

    D(p||p') = -p(h) {p(w|h) [log p(w|h') + log a' - log p(w|h)] + (1 - sum of seen p) [log a' - log a]}, where a' is
    the back-off weight of h without w.
    """
    for g in range(begin, base):
        seen, below = 0.0, 0.0
        for child in range(first[g], first[g + 1]):
            seen += math.exp(logp[child])
            below += math.exp(logp[links[child]])
        history = counts[g] / total
        over = 1.0 - seen
        under = 1.0 - below
        for child in range(first[g], first[g + 1]):
            if needed[child - base]:
                continue
            p, lower = math.exp(logp[child]), math.exp(logp[links[child]])
            if lower <= 0.0 or under + lower <= 0.0 or over + p <= 0.0:
                continue
            weight = math.log(over + p) - math.log(under + lower)
            change = p * (math.log(lower) + weight - math.log(p))
            if over > 0.0:
                change += over * (weight - bow[g])
            if math.exp(-history * change) - 1.0 < threshold:
                kept[child] = False


@njit(cache=True, nogil=True)
def keep_suffixes(links: Any, levels: Any, kept: Any) -> Any:
    """Marks again what a kept n-gram links to, so that links never lead to a dropped node; longest n-grams first."""
    for node in range(levels[levels.size - 1] - 1, levels[1] - 1, -1):
        if kept[node]:
            kept[np.int64(links[node])] = True
