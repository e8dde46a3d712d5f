"""Binary trees of tokens: construction and paths.

A tree of V tokens is two arrays over its nodes: numbers below V are tokens (leaves), number V + i is inner node i, the
root is inner node 0 and every inner node has a larger number than its parent. `parent` has the inner node above each
(-1 for the root and for tokens that are not in the tree), `left` whether it is a left child.
"""

from __future__ import annotations

from math import exp, log1p
from typing import Any

import numpy as np
from numba import njit

_SUMS = {"reassoc", "contract", "nsz"}  # sums in any order; NaN and infinity are kept
_ROUNDS = 10  # of 2-means
_MIN_SIDE = 0.125  # fraction of the tokens of a node that go to either side


@njit(cache=True, nogil=True)
def huffman(weights: Any, tokens: Any, parent: Any, left: Any) -> Any:
    """Huffman's tree over `tokens` of ascending weights: the two lightest nodes are merged until one is left."""
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
    """The depth of each node; -1 first if the parents are not those of a tree."""
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
def node_masses(parent: Any, left: Any, frequency: Any) -> Any:
    """The total frequency of the tokens under the left and the right of each inner node."""
    size = frequency.size
    masses = np.zeros((parent.size - size, 2))
    for number in range(parent.size):
        node = number if number < size else parent.size - 1 - (number - size)  # tokens, then inner nodes from below
        if parent[node] >= 0:
            mass = frequency[node] if node < size else masses[node - size].sum()
            masses[parent[node], 0 if left[node] else 1] += mass
    return masses


@njit(cache=True, nogil=True)
def split_tokens(vectors: Any, order: Any, size: Any, parent: Any, left: Any, seed: Any) -> None:
    """A tree over the tokens in `order` by recursive 2-means of their `vectors`; equal vectors are halved.

    Each side has at least an eighth of the tokens, so that the depth is logarithmic.
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
    """Sort a range of `items` by side and return where the right side begins."""
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
    least = max(1, int(np.ceil(_MIN_SIDE * count)))
    return first + min(max((lean <= 0).sum(), least), count - least)


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _lean(vectors: Any, items: Any, first: Any, ones: Any, others: Any, lean: Any) -> None:
    """How much nearer (by squared distance) each vector is to the second mean than to the first."""
    for index in range(lean.size):
        vector = vectors[items[first + index]]
        total = 0.0
        for number in range(vector.size):
            between = others[number] - ones[number]
            total += between * (vector[number] - 0.5 * (others[number] + ones[number]))
        lean[index] = total


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _move_means(vectors: Any, items: Any, first: Any, lean: Any, ones: Any, others: Any) -> Any:
    """Move both means to those of the vectors nearest to them; true if they moved."""
    before = np.concatenate((ones, others))
    ones[:], others[:] = 0.0, 0.0
    right = 0
    for index in range(lean.size):
        vector = vectors[items[first + index]]
        mean = others if lean[index] > 0 else ones
        right += lean[index] > 0
        for number in range(vector.size):
            mean[number] += vector[number]
    ones /= lean.size - right
    others /= right
    return not np.array_equal(before, np.concatenate((ones, others)))


@njit(cache=True, nogil=True, fastmath=_SUMS)
def walk(
    states: Any, targets: Any, parent: Any, left: Any, weight: Any, bias: Any, starts: Any, d_scores: Any, losses: Any
) -> None:
    """-log of the probability of the path to each target, and its gradient by the score of each node on it.

    The probability of going left at node i is 1 / (1 + exp(-score)), score = state . q_i + b_i.
    """
    size = parent.size - weight.shape[0]
    for index in range(targets.size):
        node, step, total = targets[index], starts[index], 0.0
        while parent[node] >= 0:
            above = parent[node]
            score = bias[above]
            for number in range(weight.shape[1]):
                score += states[index, number] * weight[above, number]
            away = exp(-abs(score))
            to_left = 1 / (1 + away) if score >= 0 else away / (1 + away)
            total += log1p(away) + (max(-score, 0) if left[node] else max(score, 0))
            d_scores[step] = to_left - left[node]
            step += 1
            node = size + above
        losses[index] = total


@njit(cache=True, nogil=True, fastmath=_SUMS)
def walk_back(
    states: Any,
    targets: Any,
    parent: Any,
    weight: Any,
    starts: Any,
    d_scores: Any,
    gradient: Any,
    d_states: Any,
    d_weight: Any,
    d_bias: Any,
) -> None:
    """Add the gradients of the sum of `gradient` times the losses of `walk`."""
    size = parent.size - weight.shape[0]
    for index in range(targets.size):
        node, step = targets[index], starts[index]
        while parent[node] >= 0:
            inner = parent[node]
            d_score = gradient[index] * d_scores[step]
            for number in range(weight.shape[1]):
                d_states[index, number] += d_score * weight[inner, number]
                d_weight[inner, number] += d_score * states[index, number]
            d_bias[inner] += d_score
            step += 1
            node = size + inner
