"""Binary trees of tokens: how they are made, and the ways through them.

A tree of V tokens is two arrays over its nodes: numbers below V are tokens (leaves), number V + i is inner node i, the
root is inner node 0 and every inner node has a larger number than the one above it. `parent` has the inner node above
each (-1: none, for the root and for tokens that are not in the tree), `left` whether it hangs on the left.
"""

from __future__ import annotations

from math import exp, log1p
from typing import Any

import numpy as np
from numba import njit

_SUMS = {"reassoc", "contract", "nsz"}  # sums in any order, but what is no number stays none
_ROUNDS = 10  # of 2-means
_LEAST = 0.125  # share of the tokens of a node that go to either side


@njit(cache=True, nogil=True)
def join_rarest(weights: Any, tokens: Any, parent: Any, left: Any) -> Any:
    """Huffman's tree over `tokens`, whose weights rise: the two lightest nodes are joined until one is left."""
    size, total = parent.size - tokens.size + 1, tokens.size
    joined = np.zeros(total)
    leaf = queue = 0
    for made in range(total - 1):
        node = total - 2 - made
        for side in range(2):
            if queue >= made or (leaf < total and weights[leaf] <= joined[queue]):
                chosen, weight = tokens[leaf], weights[leaf]
                leaf += 1
            else:
                chosen, weight = size + total - 2 - queue, joined[queue]
                queue += 1
            parent[chosen] = node
            left[chosen] = side == 0
            joined[made] += weight


@njit(cache=True, nogil=True)
def node_depths(parent: Any, size: Any) -> Any:
    """How many inner nodes are above each node; -1 if the parents are not those of a tree."""
    depths = np.zeros(parent.size, dtype=np.int64)
    inner = parent.size - size
    for number in range(parent.size):
        node = (number + size) % parent.size  # inner nodes first
        above = parent[node]
        if above >= inner or (node > size and not 0 <= above < node - size) or (node == size and above >= 0):
            depths[0] = -1
            return depths
        depths[node] = depths[size + above] + 1 if above >= 0 else 0
    return depths


@njit(cache=True, nogil=True)
def node_masses(parent: Any, left: Any, shares: Any) -> Any:
    """The shares of all tokens under the left and under the right of each inner node."""
    size = shares.size
    masses = np.zeros((parent.size - size, 2))
    for number in range(parent.size):
        node = number if number < size else parent.size - 1 - (number - size)  # tokens, then inner nodes from below
        if parent[node] >= 0:
            mass = shares[node] if node < size else masses[node - size].sum()
            masses[parent[node], 0 if left[node] else 1] += mass
    return masses


@njit(cache=True, nogil=True)
def split_tokens(vectors: Any, order: Any, size: Any, parent: Any, left: Any, seed: Any) -> None:
    """A tree over the tokens in `order`: each node's are split by 2-means of their vectors, alike ones halved.

    `order` is changed; `vectors` are in the order that it had. A side gets at least an eighth of the tokens, so no way
    is much longer than the logarithm of their number.
    """
    np.random.seed(seed)
    items = np.arange(order.size)
    firsts, lasts = np.zeros(order.size, dtype=np.int64), np.zeros(order.size, dtype=np.int64)
    lasts[0] = order.size
    made = 1
    for node in range(order.size - 1):
        first, last = firsts[node], lasts[node]
        middle = _split(vectors, items, first, last)
        for side in range(2):
            begin, end = (first, middle) if side == 0 else (middle, last)
            child = order[items[begin]] if end - begin == 1 else size + made
            parent[child], left[child] = node, side == 0
            if end - begin > 1:
                firsts[made], lasts[made] = begin, end
                made += 1


@njit(cache=True, nogil=True)
def _split(vectors: Any, items: Any, first: Any, last: Any) -> Any:
    """Sorts a part of `items` by the side on which they lie, and returns where the right begins."""
    count = last - first
    if count == 2:
        return first + 1
    ones = vectors[items[np.random.randint(first, last)]].astype(np.float64)
    others = vectors[items[np.random.randint(first, last)]].astype(np.float64)
    lean = np.zeros(count)
    for _ in range(_ROUNDS):
        _lean(vectors, items, first, ones, others, lean)
        right = (lean > 0).sum()
        if right == 0 or right == count:
            break
        if not _move_means(vectors, items, first, lean, ones, others):
            break
    ranks = np.argsort(lean, kind="mergesort")
    items[first:last] = items[first:last][ranks]
    if lean[ranks[0]] == lean[ranks[-1]]:
        return first + count // 2
    least = max(1, int(np.ceil(_LEAST * count)))
    return first + min(max((lean <= 0).sum(), least), count - least)


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _lean(vectors: Any, items: Any, first: Any, ones: Any, others: Any, lean: Any) -> None:
    """How much nearer (by squared distance) each vector is to the second mean than to the first."""
    for place in range(lean.size):
        vector = vectors[items[first + place]]
        total = 0.0
        for number in range(vector.size):
            between = others[number] - ones[number]
            total += between * (vector[number] - 0.5 * (others[number] + ones[number]))
        lean[place] = total


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _move_means(vectors: Any, items: Any, first: Any, lean: Any, ones: Any, others: Any) -> Any:
    """Both means become those of the vectors that are nearer to them; whether they moved."""
    before = np.concatenate((ones, others))
    ones[:], others[:] = 0.0, 0.0
    right = 0
    for place in range(lean.size):
        vector = vectors[items[first + place]]
        mean = others if lean[place] > 0 else ones
        right += lean[place] > 0
        for number in range(vector.size):
            mean[number] += vector[number]
    ones /= lean.size - right
    others /= right
    return not np.array_equal(before, np.concatenate((ones, others)))


@njit(cache=True, nogil=True, fastmath=_SUMS)
def walk(
    states: Any,
    targets: Any,
    parent: Any,
    left: Any,
    weight: Any,
    bias: Any,
    starts: Any,
    slopes: Any,
    losses: Any,
) -> None:
    """-log of the probability of the way to each target, and the slope of it at the score of each node on it.

    The probability of going left at node i is 1 / (1 + exp(-score)), score = state . q_i + b_i.
    """
    size = parent.size - weight.shape[0]
    for place in range(targets.size):
        node, step, total = targets[place], starts[place], 0.0
        while parent[node] >= 0:
            above = parent[node]
            score = bias[above]
            for number in range(weight.shape[1]):
                score += states[place, number] * weight[above, number]
            away = exp(-abs(score))
            to_left = 1 / (1 + away) if score >= 0 else away / (1 + away)
            total += log1p(away) + (max(-score, 0) if left[node] else max(score, 0))
            slopes[step] = to_left - left[node]
            step += 1
            node = size + above
        losses[place] = total


@njit(cache=True, nogil=True, fastmath=_SUMS)
def walk_back(
    states: Any,
    targets: Any,
    parent: Any,
    weight: Any,
    starts: Any,
    slopes: Any,
    above: Any,
    to_states: Any,
    to_weight: Any,
    to_bias: Any,
) -> None:
    """Adds the gradients of the sum of `above` times the losses of `walk`."""
    size = parent.size - weight.shape[0]
    for place in range(targets.size):
        node, step = targets[place], starts[place]
        while parent[node] >= 0:
            inner = parent[node]
            slope = above[place] * slopes[step]
            for number in range(weight.shape[1]):
                to_states[place, number] += slope * weight[inner, number]
                to_weight[inner, number] += slope * states[place, number]
            to_bias[inner] += slope
            step += 1
            node = size + inner
