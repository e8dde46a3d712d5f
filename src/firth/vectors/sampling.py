"""Which words are left out, which are drawn as noise, and the tree of hierarchical softmax."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.vectors._tree_kernels import join_nodes, node_depths, write_ways
from firth.vectors.recipe import Rule

Counts = npt.NDArray[np.int64]
_ALL = 2**32 - 1


def keep_thresholds(counts: Counts, subsample: float, rule: Rule = "paper") -> npt.NDArray[np.uint32]:
    """For each word, the largest random number of 32 bits with which it is kept.

    A word of relative frequency U(w) is left out with probability 1 - sqrt(subsample / U(w)); 0 keeps all. The program
    that came with the paper, and those that follow it, keep subsample / U(w) more.

    >>> (keep_thresholds(np.array([0, 75, 25]), 0.1875) / 2**32).round(4).tolist()
    [1.0, 0.5, 0.866]
    >>> (keep_thresholds(np.array([0, 75, 25]), 0.1875, "program") / 2**32).round(4).tolist()
    [1.0, 0.75, 1.0]
    """
    if subsample == 0:
        return np.full(counts.size, _ALL, dtype=np.uint32)
    shares = counts / max(int(counts.sum()), 1)
    with np.errstate(divide="ignore"):
        kept = np.sqrt(subsample / shares) + (subsample / shares if rule == "program" else 0.0)
    return np.asarray(np.minimum(kept * 2**32, _ALL).astype(np.uint32))


def noise_shares(counts: Counts, power: float) -> npt.NDArray[np.float64]:
    """The probability of each word as noise: its frequency to the power; words that do not occur have none.

    >>> noise_shares(np.array([0, 16, 1]), 0.75).round(4).tolist()
    [0.0, 0.8889, 0.1111]
    """
    weights = np.where(counts > 0, counts.astype(np.float64) ** power, 0.0)
    return np.asarray(weights / weights.sum())


def alias_table(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Walker's table: draw a row and 32 random bits; below the row's first number it is the row, else the second.

    >>> alias_table(np.array([0.25, 0.75])).tolist()
    [[2147483648, 1], [4294967295, 1]]
    """
    size = shares.size
    left = shares * size
    table = np.empty((size, 2), dtype=np.uint32)
    table[:, 0], table[:, 1] = _ALL, np.arange(size)
    small = np.flatnonzero(left < 1).tolist()
    large = np.flatnonzero(left >= 1).tolist()
    values = left.tolist()
    while small and large:
        low, high = small.pop(), large[-1]
        table[low] = min(int(values[low] * 2**32), _ALL), high
        values[high] -= 1 - values[low]
        if values[high] < 1:
            small.append(large.pop())
    return table


class Tree(NamedTuple):
    """The way to each word in a binary tree: at node `nodes[i]` it goes to the side `codes[i]`."""

    starts: npt.NDArray[np.int64]
    """The way to word w is from `starts[w]` to `starts[w + 1]`."""
    nodes: npt.NDArray[np.int32]
    codes: npt.NDArray[np.uint8]


def huffman_tree(counts: Counts) -> Tree:
    """The tree in which frequent words are near the root (Huffman 1952); words that do not occur are not in it.

    Node 0 is the root. Two heaps would do, but sorted leaves and a queue of joined nodes are always in order.

    >>> tree = huffman_tree(np.array([0, 5, 2, 1]))
    >>> [tree.codes[a:b].tolist() for a, b in zip(tree.starts, tree.starts[1:])]
    [[], [1], [0, 1], [0, 0]]
    """
    order = np.argsort(-counts, kind="stable")
    leaves = order[: np.count_nonzero(counts)][::-1].copy()
    parents, sides = join_nodes(counts[leaves])
    depths = np.zeros(counts.size + 1, dtype=np.int64)
    depths[leaves + 1] = node_depths(parents, leaves.size)
    starts = np.cumsum(depths)
    nodes, codes = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.uint8)
    write_ways(parents, sides, leaves, starts, nodes, codes)
    return Tree(starts, nodes, codes)
