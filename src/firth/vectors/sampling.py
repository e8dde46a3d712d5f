"""Subsampling, negative sampling and the Huffman tree of hierarchical softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.vectors.recipe import Rule

Counts = npt.NDArray[np.int64]
_ALL = 2**32 - 1


def keep_thresholds(counts: Counts, subsample: float, rule: Rule = "paper") -> npt.NDArray[np.uint32]:
    """The probability of keeping each word, scaled to 32 bits.

    A word of relative frequency f is discarded with probability 1 - sqrt(subsample / f); 0 keeps all. word2vec.c and
    its successors ("program") keep subsample / f more.

    >>> (keep_thresholds(np.array([0, 75, 25]), 0.1875) / 2**32).round(4).tolist()
    [1.0, 0.5, 0.866]
    >>> (keep_thresholds(np.array([0, 75, 25]), 0.1875, "program") / 2**32).round(4).tolist()
    [1.0, 0.75, 1.0]
    """
    if subsample == 0:
        return np.full(counts.size, _ALL, dtype=np.uint32)
    frequencies = counts / max(int(counts.sum()), 1)
    with np.errstate(divide="ignore"):
        kept = np.sqrt(subsample / frequencies) + (subsample / frequencies if rule == "program" else 0.0)
    return np.asarray(np.minimum(kept * 2**32, _ALL).astype(np.uint32))


def kept_fraction(counts: Counts, keep: npt.NDArray[np.uint32]) -> float:
    """The expected fraction of tokens that subsampling keeps."""
    return float((counts * (keep / 2**32)).sum() / max(int(counts.sum()), 1))


def noise_distribution(counts: Counts, exponent: float) -> npt.NDArray[np.float64]:
    """The unigram distribution raised to a power and normalised; words that do not occur have probability 0.

    >>> noise_distribution(np.array([0, 16, 1]), 0.75).round(4).tolist()
    [0.0, 0.8889, 0.1111]
    """
    weights = np.where(counts > 0, counts.astype(np.float64) ** exponent, 0.0)
    return np.asarray(weights / weights.sum())


def alias_table(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Walker's alias table: draw a row and 32 random bits; below the threshold it is the row, else its alias.

    >>> alias_table(np.array([0.25, 0.75])).tolist()
    [[2147483648, 1], [4294967295, 1]]
    """
    size = probabilities.size
    scaled = probabilities * size
    table = np.empty((size, 2), dtype=np.uint32)
    table[:, 0], table[:, 1] = _ALL, np.arange(size)
    small = np.flatnonzero(scaled < 1).tolist()
    large = np.flatnonzero(scaled >= 1).tolist()
    values = scaled.tolist()
    while small and large:
        low, high = small.pop(), large[-1]
        table[low] = min(int(values[low] * 2**32), _ALL), high
        values[high] -= 1 - values[low]
        if values[high] < 1:
            small.append(large.pop())
    return table


class HuffmanCodes(NamedTuple):
    """The path to each word in a binary tree: at inner node `nodes[i]` it takes the branch `codes[i]`."""

    starts: npt.NDArray[np.int64]  # the path to word w is from `starts[w]` to `starts[w + 1]`
    nodes: npt.NDArray[np.int32]
    codes: npt.NDArray[np.uint8]


def huffman_tree(counts: Counts) -> HuffmanCodes:
    """The Huffman tree of the words that occur; node 0 is the root.

    Sorted leaves and a queue of joined nodes, both in ascending order, replace the usual heap.

    >>> tree = huffman_tree(np.array([0, 5, 2, 1]))
    >>> [tree.codes[a:b].tolist() for a, b in zip(tree.starts, tree.starts[1:])]
    [[], [1], [0, 1], [0, 0]]
    """
    order = np.argsort(-counts, kind="stable")
    return build_tree(counts, order[: np.count_nonzero(counts)][::-1].copy())


def build_tree(counts: Counts, leaves: npt.NDArray[np.int64], inner_first: bool = False) -> HuffmanCodes:
    """The Huffman tree of words in ascending order of their counts; ties join leaves or inner nodes first."""
    parents, branches = _join_nodes(counts[leaves], inner_first)
    depths = np.zeros(counts.size + 1, dtype=np.int64)
    depths[leaves + 1] = _node_depths(parents, leaves.size)
    starts = np.cumsum(depths)
    nodes, codes = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.uint8)
    _write_paths(parents, branches, leaves, starts, nodes, codes)
    return HuffmanCodes(starts, nodes, codes)


@njit(cache=True, nogil=True)
def _join_nodes(weights: Any, inner_first: Any) -> Any:
    """The parent of each leaf and inner node, and its branch; the weights of the leaves ascend.

    Leaves come first, then inner nodes in the order in which they are made; the root is the last.
    """
    total = weights.size
    parents = np.zeros(2 * total, dtype=np.int64)
    branches = np.zeros(2 * total, dtype=np.uint8)
    joined = np.zeros(total, dtype=np.int64)
    leaf = queue = 0
    for node in range(total - 1):
        for branch in range(2):
            tie = leaf < total and weights[leaf] == joined[queue] and not inner_first
            if queue >= node or tie or (leaf < total and weights[leaf] < joined[queue]):
                chosen, weight = leaf, weights[leaf]
                leaf += 1
            else:
                chosen, weight = total + queue, joined[queue]
                queue += 1
            parents[chosen] = total + node
            branches[chosen] = branch
            joined[node] += weight
    return parents, branches


@njit(cache=True, nogil=True)
def _node_depths(parents: Any, total: Any) -> Any:
    depths = np.zeros(2 * total, dtype=np.int64)
    for node in range(2 * total - 3, -1, -1):  # the root, number 2 * total - 2, has depth 0
        depths[node] = depths[parents[node]] + 1
    return depths[:total]


@njit(cache=True, nogil=True)
def _write_paths(parents: Any, branches: Any, leaves: Any, starts: Any, nodes: Any, codes: Any) -> Any:
    """Writes the path from the root, node 0, to each leaf: inner nodes and branches."""
    root = 2 * leaves.size - 2
    for leaf in range(leaves.size):
        word = leaves[leaf]
        node = leaf
        for step in range(starts[word + 1] - 1, starts[word] - 1, -1):
            nodes[step] = root - parents[node]
            codes[step] = branches[node]
            node = parents[node]
