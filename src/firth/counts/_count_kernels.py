"""Numba kernels that count n-grams by sorting the positions of a text, and merge the sorted n-grams of several tries.

All positions are sorted by the n words that begin there. Sorting each group of positions with the same n - 1 words by
the next word gives the n-grams in trie order, each with its positions contiguous: its count is the size of its group.
There is no hashing and so no collision.

Names: group = the positions of one node; `begins[g]` = the offset of the group of node g in `order`. For merging: key =
`number of the prefix << 32 | last word` of a node, in the numbering of the merged trie; row = the buffer of one trie;
filled[r] = the keys in row r; taken[r] = the keys of row r already merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_SMALL = 24  # largest group for insertion sort
_MEDIUM = 2048  # largest group for comparison sort
_DIGIT = 11  # bits per round of the radix sort


@njit(cache=True, nogil=True)
def join_sentences(
    ids: Any, sentences: Any, selected: Any, first_word: Any, bos: Any, eos: Any, unk: Any, out: Any
) -> Any:
    """Writes `<s> w1 ... wm </s>` for each selected sentence; special tokens within a sentence become unknown."""
    size = 0
    for sentence in selected:
        out[size] = bos
        size += 1
        for position in range(sentences[sentence], sentences[sentence + 1]):
            word = ids[position]
            out[size] = word if word >= first_word else unk
            size += 1
        out[size] = eos
        size += 1


@njit(cache=True, nogil=True)
def count_words(text: Any, counts: Any) -> Any:
    """Adds the number of occurrences of each word to `counts`."""
    for word in text:
        counts[word] += 1


@njit(cache=True, nogil=True)
def sort_words(text: Any, begins: Any, order: Any) -> Any:
    """Sorts all positions by their word; `begins` holds the offset of each word's group and is overwritten."""
    for position in range(text.size):
        word = text[position]
        order[begins[word]] = position
        begins[word] += 1


@njit(cache=True, nogil=True)
def _sort_large(pairs: Any, other: Any, size: Any, bits: Any) -> Any:
    """Radix sort of `word << 32 | position` by the word; returns whether the result is in `other`."""
    buckets = np.zeros(1 << _DIGIT, dtype=np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    swapped = False
    shift = 32
    while shift < 32 + bits:
        source, target = (other, pairs) if swapped else (pairs, other)
        buckets[:] = 0
        for i in range(size):
            buckets[(source[i] >> np.uint64(shift)) & mask] += 1
        total = 0
        for digit in range(buckets.size):
            count = buckets[digit]
            buckets[digit] = total
            total += count
        for i in range(size):
            digit = (source[i] >> np.uint64(shift)) & mask
            target[buckets[digit]] = source[i]
            buckets[digit] += 1
        swapped = not swapped
        shift += _DIGIT
    return swapped


@njit(cache=True, nogil=True)
def sort_groups(
    text: Any, ahead: Any, parents: Any, begins: Any, counts: Any, ends: Any, bits: Any, eos: Any, order: Any,
    keys: Any, children: Any,
) -> Any:  # fmt: skip
    """Sorts the group of each node in `parents` by the word `ahead` positions later, and writes that word to `keys`.

    `ends[g]` is the last word of node g; `children[g]` becomes the number of distinct words that follow.
    """
    most = 1
    for g in range(parents[0], parents[1]):
        if ends[g] != eos and counts[g] > most:
            most = counts[g]
    if parents[0] < parents[1]:
        last = parents[1] - 1
        for i in range(np.int64(begins[parents[0]]), np.int64(begins[last]) + np.int64(counts[last])):
            keys[i] = text[min(np.int64(order[i]) + ahead, text.size - 1)]
    pairs = np.empty(most, dtype=np.uint64)
    other = np.empty(most if most > _MEDIUM else 0, dtype=np.uint64)
    for g in range(parents[0], parents[1]):
        if ends[g] == eos:
            children[g] = 0
            continue
        begin, size = np.int64(begins[g]), np.int64(counts[g])
        if size == 1:
            children[g] = 1
            continue
        for i in range(begin, begin + size):
            pairs[i - begin] = np.uint64(keys[i]) << np.uint64(32) | np.uint64(order[i])
        result = pairs
        if size <= _SMALL:
            for i in range(1, size):
                pair = pairs[i]
                j = i - 1
                while j >= 0 and pairs[j] > pair:
                    pairs[j + 1] = pairs[j]
                    j -= 1
                pairs[j + 1] = pair
        elif size <= _MEDIUM:
            pairs[:size].sort()
        elif _sort_large(pairs, other, size, bits):
            result = other
        distinct = 0
        before = np.uint32(0xFFFFFFFF)
        for i in range(size):
            key = np.uint32(result[i] >> np.uint64(32))
            order[begin + i] = np.uint32(result[i] & np.uint64(0xFFFFFFFF))
            keys[begin + i] = key
            if key != before:
                distinct += 1
                before = key
        children[g] = distinct


@njit(cache=True, nogil=True)
def fill_level(
    parents: Any, begins: Any, counts: Any, ends: Any, eos: Any, order: Any, keys: Any, first: Any, ranks: Any,
    new_words: Any, new_begins: Any, new_counts: Any, new_links: Any, new_ranks: Any, base: Any,
) -> Any:  # fmt: skip
    """Writes the children of the nodes in `parents`: words, groups, counts and suffix links.

    `ranks[p]` is the node of the level below at position p, so `ranks[p + 1]` is the suffix link of the new node at p;
    without ranks (level 2) it is the word itself. `new_ranks[p]` becomes the number of the new node at p.
    """
    child = np.int64(first[parents[0]]) - 1 if parents[0] < parents[1] else -1
    begun = child + 1
    for g in range(parents[0], parents[1]):
        if ends[g] == eos:
            continue
        begin = np.int64(begins[g])
        for i in range(begin, begin + np.int64(counts[g])):
            if i == begin or keys[i] != keys[i - 1]:
                child += 1
                new_words[child] = keys[i]
                new_begins[child] = i
                new_counts[child] = 0
            new_counts[child] += 1
    # Random reads and writes in separate loops, so that cache misses overlap.
    for c in range(begun, child + 1):
        new_links[c] = ranks[np.int64(order[new_begins[c]]) + 1] if ranks.size else new_words[c]
    if new_ranks.size:
        for c in range(begun, child + 1):
            for i in range(np.int64(new_begins[c]), np.int64(new_begins[c]) + np.int64(new_counts[c])):
                new_ranks[order[i]] = base + c


@njit(cache=True, nogil=True)
def count_links(links: Any, base: Any, out: Any) -> Any:
    """Adds to `out` the number of n-grams that link to each node: the distinct words that precede it."""
    for i in range(links.size):
        out[links[i] - base] += 1


HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def read_keys(first: Any, words: Any, numbers: Any, above: Any, parent: Any, node: Any, keys: Any) -> Any:
    """Fills `keys` with those of the nodes from `node` on; `numbers[p - above]` is the merged number of prefix p.

    `parent` is the prefix of `node` or a node before it. Returns the prefix of the last node, or -1 if the keys are not
    ascending: then the nodes are no level of a trie.
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
def _sift(heap: Any, size: Any, keys: Any, taken: Any, index: Any) -> Any:
    """Restores the heap order below index `index`, whose row has a new next key."""
    row = heap[index]
    key = keys[row, taken[row]]
    while 2 * index + 1 < size:
        child = 2 * index + 1
        lower = keys[heap[child], taken[heap[child]]]
        if child + 1 < size and keys[heap[child + 1], taken[heap[child + 1]]] < lower:
            child += 1
            lower = keys[heap[child], taken[heap[child]]]
        if key <= lower:
            break
        heap[index] = heap[child]
        index = child
    heap[index] = row


@njit(cache=True, nogil=True)
def merge_rows(
    number: Any, keys: Any, counts: Any, links: Any, numbers: Any, filled: Any, taken: Any, out_keys: Any,
    out_counts: Any, out_links: Any,
) -> Any:  # fmt: skip
    """Sums the counts of equal keys in ascending order, until a row is empty or the output is full.

    The merged nodes are numbered from `number` on; `numbers` gets the merged number of each key. Every key is in a row
    at most once, so a row that becomes empty has no second part of the last sum. Returns the number of merged keys.
    """
    heap = np.empty(filled.size, dtype=np.int64)
    size = 0
    for row in range(filled.size):
        if taken[row] < filled[row]:
            heap[size] = row
            size += 1
    for index in range(size // 2 - 1, -1, -1):
        _sift(heap, size, keys, taken, index)
    merged = 0
    is_row_empty = size == 0
    while not is_row_empty and merged < out_keys.size:
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
                is_row_empty = True
                size -= 1
                heap[0] = heap[size]
            if size > 0:
                _sift(heap, size, keys, taken, 0)
        out_keys[merged] = key
        out_counts[merged] = total
        merged += 1
    return merged
