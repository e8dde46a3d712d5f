"""Numba kernels that merge the sorted n-grams of several tries, a bounded buffer of each at a time.

The nodes of a level are known by keys, `number of the prefix << 32 | last word`, in the numbering of the merged trie.

Names: row = the buffer of one trie; filled[r] = keys that row r holds; taken[r] = those of them already merged.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def read_keys(first: Any, words: Any, numbers: Any, above: Any, parent: Any, node: Any, keys: Any) -> Any:
    """Fills `keys` with those of the nodes from `node` on; `numbers[p - above]` is the new number of prefix p.

    `parent` is the prefix of `node` or stands before it. Returns the prefix of the last node, or -1 if the keys do not
    rise: then the nodes are no level of a trie.
    """
    last = above + numbers.size - 1
    for slot in range(keys.size):
        while parent < last and first[parent + 1] <= node + slot:
            parent += 1
        keys[slot] = (np.uint64(numbers[parent - above]) << HALF) | np.uint64(words[node + slot])
        if slot > 0 and keys[slot] <= keys[slot - 1]:
            return -1
    return parent


@njit(cache=True, nogil=True)
def _sift(heap: Any, size: Any, keys: Any, taken: Any, place: Any) -> Any:
    """Moves the row at `place` down the heap to where its next key belongs."""
    row = heap[place]
    key = keys[row, taken[row]]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        lower = keys[heap[child], taken[heap[child]]]
        if child + 1 < size and keys[heap[child + 1], taken[heap[child + 1]]] < lower:
            child += 1
            lower = keys[heap[child], taken[heap[child]]]
        if key <= lower:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = row


@njit(cache=True, nogil=True)
def merge_rows(
    keys: Any,
    counts: Any,
    links: Any,
    filled: Any,
    taken: Any,
    numbers: Any,
    number: Any,
    out_keys: Any,
    out_counts: Any,
    out_links: Any,
) -> Any:
    """Adds up the counts of equal keys in rising order, until a row runs dry or the output is full.

    The merged nodes are numbered from `number` on; each key taken learns its node's number in `numbers`. Every key is
    in a row at most once, so a row that runs dry holds no second part of the last sum. Returns how many were merged.
    """
    heap = np.empty(filled.size, dtype=np.int64)
    size = 0
    for row in range(filled.size):
        if taken[row] < filled[row]:
            heap[size] = row
            size += 1
    for place in range(size // 2 - 1, -1, -1):
        _sift(heap, size, keys, taken, place)
    merged = 0
    dry = size == 0
    while not dry and merged < out_keys.size:
        key = keys[heap[0], taken[heap[0]]]
        total = np.int64(0)
        while size > 0 and keys[heap[0], taken[heap[0]]] == key:
            row = heap[0]
            slot = taken[row]
            total += counts[row, slot]
            numbers[row, slot] = number + merged
            out_links[merged] = links[row, slot]
            taken[row] += 1
            if taken[row] == filled[row]:
                dry = True
                size -= 1
                heap[0] = heap[size]
            if size > 0:
                _sift(heap, size, keys, taken, 0)
        out_keys[merged] = key
        out_counts[merged] = total
        merged += 1
    return merged
