"""Huffman's tree over hundreds of thousands of words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def join_nodes(weights: Any) -> Any:
    """The inner node above each leaf and each inner node, and the side of it; the weights of the leaves rise.

    Leaves come first, then inner nodes in the order in which they are made; the root is the last.
    """
    total = weights.size
    parents = np.zeros(2 * total, dtype=np.int64)
    sides = np.zeros(2 * total, dtype=np.uint8)
    joined = np.zeros(total, dtype=np.int64)
    leaf = queue = 0
    for node in range(total - 1):
        for side in range(2):
            if queue >= node or (leaf < total and weights[leaf] <= joined[queue]):
                chosen, weight = leaf, weights[leaf]
                leaf += 1
            else:
                chosen, weight = total + queue, joined[queue]
                queue += 1
            parents[chosen] = total + node
            sides[chosen] = side
            joined[node] += weight
    return parents, sides


@njit(cache=True, nogil=True)
def node_depths(parents: Any, total: Any) -> Any:
    """How many inner nodes are above each leaf."""
    depths = np.zeros(2 * total, dtype=np.int64)
    for node in range(2 * total - 3, -1, -1):  # the root, number 2 * total - 2, has none above it
        depths[node] = depths[parents[node]] + 1
    return depths[:total]


@njit(cache=True, nogil=True)
def write_ways(parents: Any, sides: Any, leaves: Any, starts: Any, nodes: Any, codes: Any) -> Any:
    """Writes the way from the root to each leaf: inner nodes, the root being number 0, and sides."""
    root = 2 * leaves.size - 2
    for place in range(leaves.size):
        word = leaves[place]
        node = place
        for step in range(starts[word + 1] - 1, starts[word] - 1, -1):
            nodes[step] = root - parents[node]
            codes[step] = sides[node]
            node = parents[node]
