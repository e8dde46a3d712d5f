"""Numba kernels that count n-grams by sorting the places of a text.

All places are kept sorted by the n words that begin there. Sorting each group of places with the same n - 1 words by
the word that follows gives the n-grams in the order of a trie, each with its places side by side: its count is the size
of its group. Nothing is hashed, so nothing can collide.

Names: place = position in the text; group = places of one node; `begins[g]` = where the group of node g begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_SMALL = 24  # groups up to this size are sorted by insertion
_MEDIUM = 2048  # groups up to this size by comparing
_DIGIT = 11  # bits that one pass of the radix sort looks at


@njit(cache=True, nogil=True)
def lay_out(ids: Any, sentences: Any, chosen: Any, first_word: Any, bos: Any, eos: Any, unk: Any, out: Any) -> Any:
    """Writes `<s> w1 ... wm </s>` for each of the chosen sentences; a special token written out in them is unknown."""
    at = 0
    for sentence in chosen:
        out[at] = bos
        at += 1
        for place in range(sentences[sentence], sentences[sentence + 1]):
            word = ids[place]
            out[at] = word if word >= first_word else unk
            at += 1
        out[at] = eos
        at += 1


@njit(cache=True, nogil=True)
def count_words(text: Any, counts: Any) -> Any:
    """Adds up how often each word occurs."""
    for word in text:
        counts[word] += 1


@njit(cache=True, nogil=True)
def sort_words(text: Any, begins: Any, order: Any) -> Any:
    """Sorts all places by their word; `begins` is where the group of each word begins, and is used up."""
    for place in range(text.size):
        word = text[place]
        order[begins[word]] = place
        begins[word] += 1


@njit(cache=True, nogil=True)
def _sort_large(pairs: Any, other: Any, size: Any, bits: Any) -> Any:
    """Radix sort of `word << 32 | place` by the word; returns whether the result is in `other`."""
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
    """Sorts the group of each of the nodes in `parents` by the word `ahead` places on, and notes that word in `keys`.

    `ends[g]` is the last word of node g: nothing follows the end of a sentence. `children[g]` becomes the number of
    different words that follow.
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
    """Writes the children of the nodes in `parents`: words, groups, counts and links.

    `ranks[p]` is the node of one level below at place p, so that of place p + 1 is the link of the new node at p;
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
    # Far reads and writes in loops of their own, so that the waits for them overlap.
    for c in range(begun, child + 1):
        new_links[c] = ranks[np.int64(order[new_begins[c]]) + 1] if ranks.size else new_words[c]
    if new_ranks.size:
        for c in range(begun, child + 1):
            for i in range(np.int64(new_begins[c]), np.int64(new_begins[c]) + np.int64(new_counts[c])):
                new_ranks[order[i]] = base + c


@njit(cache=True, nogil=True)
def count_links(links: Any, base: Any, out: Any) -> Any:
    """How many n-grams have each node as their link: the number of different words seen before it."""
    for i in range(links.size):
        out[links[i] - base] += 1
