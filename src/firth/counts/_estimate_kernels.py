"""Numba kernels over a trie: probabilities and back-off weights, suffix links, pruning, alignment with another trie.

`estimate` follows the equations of `smoothing`. Interpolated models add gamma(h) times the lower-order probability to
every alpha; back-off models distribute it over the words not seen after h.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.counts._query_kernels import ROOT, find_child

INTERPOLATED, BACK_OFF, UNIFORM_INTERPOLATED, UNIFORM_BACK_OFF, CONSTANT_WEIGHT = range(5)
"""How gamma(h) is distributed: by the lower order to all words or to unseen words only, uniformly over all words or
over unseen words only, or replaced by a constant weight (stupid back-off)."""


@njit(cache=True, nogil=True)
def write_logs(p: Any, begin: Any, end: Any, offset: Any, out: Any) -> Any:
    """Writes the natural logarithms of `p[begin:end]` to `out[offset + begin:offset + end]`; -inf for 0."""
    for i in range(begin, end):
        out[offset + i] = math.log(p[i]) if p[i] > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def totals(first: Any, begin: Any, end: Any, base: Any, counts: Any, out: Any, distinct: Any) -> Any:
    """The sum of the counts, which begin with node `base`, after each history, and the number of distinct words."""
    for g in range(begin, end):
        total = 0.0
        for child in range(first[g] - base, first[g + 1] - base):
            total += counts[child]
        out[g - begin] = total
        distinct[g - begin] = first[g + 1] - first[g]


@njit(cache=True, nogil=True)
def _gather(lower: Any, origin: Any, links: Any, begin: Any, end: Any) -> Any:
    """The lower-order probabilities, read in a separate loop so that cache misses overlap."""
    under = np.empty(end - begin)
    for i in range(begin, end):
        under[i - begin] = lower[np.int64(links[i]) - origin]
    for i in range(end - begin):
        under[i] = math.exp(under[i])
    return under


@njit(cache=True, nogil=True)
def estimate(
    first: Any, parents: Any, origin: Any, base: Any, counts: Any, links: Any, lower: Any, by_count: Any,
    proportional: Any, pseudo_counts: Any, by_ngram: Any, min_pseudo_count: Any, combine: Any, uniform: Any,
    weight: Any, words: Any, rounded: Any, logp: Any, bow: Any,
) -> Any:  # fmt: skip
    """Fills `logp` for the children of the nodes in `parents`, and `bow` for the nodes themselves.

    `lower` holds the lower-order log-probabilities. The discount is `by_count[min(c, last)] + proportional[h] * c +
    by_ngram[node]`, each if given; `words` is V and `uniform` 1/V. With `rounded`, logarithms are float32 and `bow`
    is computed from the rounded probabilities, so that they still sum to one. `origin` is the first node of the
    histories' level. Where nothing is discounted, `min_pseudo_count` is added to the count of the history.
    """
    offset = np.int64(first[parents[0]]) - base
    under = _gather(lower, origin, links, offset, np.int64(first[parents[1]]) - base)
    p = np.empty(under.size)
    for g in range(parents[0], parents[1]):
        begin, end = np.int64(first[g]) - base - offset, np.int64(first[g + 1]) - base - offset
        h = g - origin
        if begin == end:
            bow[h] = 1.0
            continue
        total, discounted, below = 0.0, 0.0, 0.0
        for child in range(begin, end):
            count = counts[offset + child]
            total += count
            discount = 0.0
            if by_count.size:
                discount = by_count[min(np.int64(count), by_count.size - 1)]
            if proportional.size:
                discount += proportional[h] * count
            if by_ngram.size:
                discount += by_ngram[offset + child]
            discounted += discount
            p[child] = count - discount
            below += under[child]
        pseudo = pseudo_counts[h] if pseudo_counts.size else 0.0
        if discounted + pseudo == 0.0:
            pseudo = min_pseudo_count
        gamma = (discounted + pseudo) / (total + pseudo)
        scale = 1.0 / (total + pseudo)
        if combine in (UNIFORM_INTERPOLATED, UNIFORM_BACK_OFF):
            below = uniform * (end - begin)
        backoff = gamma
        if combine == CONSTANT_WEIGHT:
            backoff = weight
        elif combine in (BACK_OFF, UNIFORM_BACK_OFF):
            if end - begin >= words or 1.0 - below < 1e-13:  # every word was seen: nothing to back off to
                scale /= 1.0 - gamma
                backoff = 0.0
            else:
                backoff = gamma / (1.0 - below)
        if combine == INTERPOLATED:
            for child in range(begin, end):
                p[child] = p[child] * scale + gamma * under[child]
        elif combine == UNIFORM_INTERPOLATED:
            for child in range(begin, end):
                p[child] = p[child] * scale + gamma * uniform
        else:
            for child in range(begin, end):
                p[child] = p[child] * scale
        if rounded and combine != CONSTANT_WEIGHT:
            backoff = _round(p, logp, begin, end, offset, below, backoff)
        else:
            write_logs(p, begin, end, offset, logp)
        bow[h] = backoff


@njit(cache=True, nogil=True)
def _round(p: Any, logp: Any, begin: Any, end: Any, offset: Any, below: Any, backoff: Any) -> Any:
    """Rounds logarithms to float32; returns the back-off weight that makes the rounded probabilities sum to one."""
    seen = 0.0
    for child in range(begin, end):
        logp[offset + child] = np.float32(math.log(p[child])) if p[child] > 0.0 else -np.inf
        seen += math.exp(np.float64(logp[offset + child]))
    if backoff > 0.0 and seen < 1.0 and below < 1.0:
        return (1.0 - seen) / (1.0 - below)
    return backoff


@njit(cache=True, nogil=True)
def renormalise(
    first: Any, parents: Any, origin: Any, base: Any, links: Any, lower: Any, uniform: Any, p: Any, bow: Any
) -> Any:
    """Back-off weights that make `p` sum to one after every history; `uniform` above 0 is the lower order if given."""
    for g in range(parents[0], parents[1]):
        begin, end = np.int64(first[g]) - base, np.int64(first[g + 1]) - base
        seen, below = 0.0, 0.0
        for child in range(begin, end):
            seen += p[child]
            below += uniform if uniform > 0.0 else lower[np.int64(links[child]) - origin]
        if begin == end:
            bow[g - origin] = 1.0
        elif seen >= 1.0 or 1.0 - below < 1e-13:
            bow[g - origin] = 0.0
        else:
            bow[g - origin] = (1.0 - seen) / (1.0 - below)


@njit(cache=True, nogil=True)
def round_with_carry(p: Any, order: Any) -> Any:
    """Rounds each probability to a float32 logarithm, in the given order; the error is carried to the next."""
    error = 0.0
    for word in order:
        if p[word] > 0.0:
            target = p[word] + error
            p[word] = math.exp(np.float64(np.float32(math.log(target)))) if target > 0.0 else p[word]
            error = target - p[word]


@njit(cache=True, nogil=True)
def jelinek_mercer_step(weight: Any, ratio: Any, below: Any, buckets: Any, weights: Any, gains: Any, sums: Any) -> Any:
    """The E step of Jelinek-Mercer weights: the expected events of each bucket explained by the longer history."""
    for i in range(weight.size):
        bucket = buckets[i]
        if bucket < 0:
            continue
        longer = weights[bucket] * ratio[i]
        both = longer + (1.0 - weights[bucket]) * below[i]
        if both > 0.0:
            gains[bucket] += weight[i] * longer / both
            sums[bucket] += weight[i]


@njit(cache=True, nogil=True)
def _lower_bound(words: Any, low: Any, high: Any, word: Any) -> Any:
    """The first index of the ascending `words[low:high]` that is not below `word`."""
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def link_children(words: Any, first: Any, links: Any, begin: Any, end: Any) -> Any:
    """Fills `links` for the children of the nodes from `begin` to `end`, whose own links are known.

    The suffix of `h w` is `h' w`, or `h'' w` if that is no node, and so on down to `w`. The children of `h` and `h'`
    are both sorted, so each search continues where the last one ended.
    """
    for node in range(begin, end):
        shorter = links[node]
        low, high = np.int64(0), np.int64(0)
        if shorter != ROOT:
            low, high = np.int64(first[shorter]), np.int64(first[np.int64(shorter) + 1])
        for child in range(np.int64(first[node]), np.int64(first[node + 1])):
            word = words[child]
            low = _lower_bound(words, low, high, word)
            if low < high and words[low] == word:
                links[child] = np.uint32(low)
                continue
            state = shorter
            found = np.uint32(word)
            while state != ROOT:
                state = links[state]
                if state == ROOT:
                    break
                last = np.int64(first[np.int64(state) + 1])
                other = _lower_bound(words, np.int64(first[state]), last, word)
                if other < last and words[other] == word:
                    found = np.uint32(other)
                    break
            links[child] = found


@njit(cache=True, nogil=True)
def prune_children(
    first: Any, begin: Any, base: Any, counts: Any, total: Any, links: Any, logp: Any, bow: Any, threshold: Any,
    needed: Any, kept: Any,
) -> Any:  # fmt: skip
    """Clears `kept` for the children of the nodes `begin` to `base` whose removal changes the perplexity too little.

    D(p||p') = -p(h) {p(w|h) [log p(w|h') + log a' - log p(w|h)] + (1 - sum of seen p) [log a' - log a]}, where a' is
    the back-off weight of h without w (Stolcke 1998).
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
    """Keeps the suffix of every kept n-gram, longest n-grams first, so that no link leads to a removed node."""
    for node in range(levels[levels.size - 1] - 1, levels[1] - 1, -1):
        if kept[node]:
            kept[np.int64(links[node])] = True


@njit(cache=True, nogil=True)
def align_tries(
    levels: Any, words: Any, first: Any, other_levels: Any, other_words: Any, other_first: Any, nodes: Any
) -> Any:
    """Fills `nodes` with the node of each n-gram of the other trie in this one, or -1; both have the same words."""
    for g in range(other_levels[1]):
        nodes[g] = g
    for parent in range(other_levels[other_levels.size - 2]):
        node = nodes[parent]
        if node < 0 or node >= levels[levels.size - 2]:
            continue
        for child in range(other_first[parent], other_first[parent + 1]):
            found = find_child(words, first, np.uint32(node), other_words[child])
            if found != ROOT:
                nodes[child] = found
