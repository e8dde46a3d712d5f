"""Numba kernels behind `pieces`: naming the substrings of words, and sums over all ways to cut words into pieces.

All words lie one after the other in `codes`, a number for each character; word w is `codes[bounds[w] : bounds[w + 1]]`
and occurs `counts[w]` times. A place is an index into `codes`. The pieces that begin at place p are
`edges[offsets[p] : offsets[p + 1]]`; a piece has a length and a score, its log-probability. Every character is a piece,
so every word can be cut, and no piece at a place reaches past the end of the word.

Names: node = number of characters of the word that lie to the left of a possible cut.
"""

# mypy: allow-untyped-decorators
# (Numba's decorators carry no types)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_STIR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def name_longer(
    codes: Any, bounds: Any, counts: Any, names: Any, length: int, slots: Any, keys: Any, totals: Any, places: Any
) -> Any:
    """Names substrings that are one character longer: the name at each place or -1, and how many names there are.

    `names` are those of the substrings of `length`, -1 where one is not worth extending. A longer substring is its
    first part and one more character, so a pair of numbers tells exactly which one it is. Fills `keys`, `totals` (how
    often each occurs) and `places` (where first); names are given in the order of places.
    """
    longer = np.full(codes.size, -1, np.int32)
    mask = np.uint64(slots.size - 1)
    found = 0
    for word in range(counts.size):
        for place in range(bounds[word], bounds[word + 1] - length):
            if names[place] < 0 or names[place + 1] < 0:
                continue
            key = (np.int64(names[place]) << 21) | np.int64(codes[place + length])
            mixed = np.uint64(key) * _STIR
            slot = (mixed ^ (mixed >> _HALF)) & mask
            name = slots[slot] - 1
            while name >= 0 and keys[name] != key:
                slot = (slot + np.uint64(1)) & mask
                name = slots[slot] - 1
            if name < 0:
                name = found
                slots[slot] = name + 1
                keys[name] = key
                totals[name] = 0
                places[name] = place
                found += 1
            totals[name] += counts[word]
            longer[place] = name
    return longer, found


@njit(cache=True, nogil=True)
def keep_edges(offsets: Any, edges: Any, scores: Any) -> int:
    """Closes up `edges` over the pieces that were dropped (score minus infinity); returns how many remain."""
    written = 0
    begin = offsets[0]
    for place in range(offsets.size - 1):
        end = offsets[place + 1]
        for edge in range(begin, end):
            if scores[edges[edge]] > -np.inf:
                edges[written] = edges[edge]
                written += 1
        offsets[place + 1] = written
        begin = end
    return written


@njit(cache=True, nogil=True)
def _best_cut(
    first: int, size: int, whole: bool, offsets: Any, edges: Any, lengths: Any, scores: Any, best: Any, back: Any
) -> None:
    """Fills `best` and `back` (the last piece) for each beginning of `size` characters at the place `first`.

    Pieces that reach past the end are passed over, and unless `whole` also the one that is all of it.
    """
    best[0] = 0.0
    best[1 : size + 1] = -np.inf
    for node in range(size):
        for edge in range(offsets[first + node], offsets[first + node + 1]):
            piece = edges[edge]
            after = node + lengths[piece]
            if after > size or (lengths[piece] == size and not whole):
                break  # pieces at a place lie in the order of their lengths
            score = best[node] + scores[piece]
            if score > best[after]:
                best[after] = score
                back[after] = piece


@njit(cache=True, nogil=True)
def _most_edges(bounds: Any, offsets: Any) -> int:
    most = 0
    for word in range(bounds.size - 1):
        most = max(most, offsets[bounds[word + 1]] - offsets[bounds[word]])
    return most


@njit(cache=True, nogil=True)
def expect(bounds: Any, counts: Any, offsets: Any, edges: Any, lengths: Any, scores: Any) -> Any:
    """How often each piece is expected to occur, over all ways to cut each word, each as probable as its pieces say.

    The sums over ways to reach a node are kept relative to the best way, so they neither overflow nor vanish however
    long the word is. Walking back, a node passes its probability on in proportion to what flowed into it.
    """
    expected = np.zeros(scores.size)
    longest = np.max(bounds[1:] - bounds[:-1])
    best, ways, passed = np.empty(longest + 1), np.empty(longest + 1), np.empty(longest + 1)
    back = np.empty(longest + 1, np.int32)
    flow = np.empty(_most_edges(bounds, offsets))
    for word in range(counts.size):
        first, size = bounds[word], bounds[word + 1] - bounds[word]
        base = offsets[first]
        _best_cut(first, size, True, offsets, edges, lengths, scores, best, back)
        ways[0] = 1.0
        ways[1 : size + 1] = 0.0
        for node in range(size):
            for edge in range(offsets[first + node], offsets[first + node + 1]):
                piece = edges[edge]
                after = node + lengths[piece]
                amount = ways[node] * np.exp(best[node] + scores[piece] - best[after])
                flow[edge - base] = amount
                ways[after] += amount
        passed[size] = 1.0
        for node in range(size - 1, -1, -1):
            passed[node] = 0.0
            for edge in range(offsets[first + node], offsets[first + node + 1]):
                piece = edges[edge]
                after = node + lengths[piece]
                share = passed[after] * flow[edge - base] / ways[after]
                expected[piece] += counts[word] * share
                passed[node] += share
    return expected


@njit(cache=True, nogil=True)
def count_best(bounds: Any, counts: Any, offsets: Any, edges: Any, lengths: Any, scores: Any) -> Any:
    """How often each piece occurs when each word is cut in the best way."""
    totals = np.zeros(scores.size)
    longest = np.max(bounds[1:] - bounds[:-1])
    best, back = np.empty(longest + 1), np.empty(longest + 1, np.int32)
    for word in range(counts.size):
        node = bounds[word + 1] - bounds[word]
        _best_cut(bounds[word], node, True, offsets, edges, lengths, scores, best, back)
        while node > 0:
            totals[back[node]] += counts[word]
            node -= lengths[back[node]]
    return totals


@njit(cache=True, nogil=True)
def losses(places: Any, offsets: Any, edges: Any, lengths: Any, scores: Any, totals: Any) -> Any:
    """What the log-likelihood of the words would lose, about, without each piece; minus infinity for useless ones.

    Without the piece, its occurrences would be cut in the best other way, whose pieces become so much more frequent.
    """
    result = np.full(scores.size, -np.inf)
    longest = np.max(lengths)
    best, back = np.empty(longest + 1), np.empty(longest + 1, np.int32)
    total = np.sum(totals)
    for piece in range(scores.size):
        node = lengths[piece]
        if node == 1 or totals[piece] == 0.0 or scores[piece] == -np.inf:
            continue
        _best_cut(places[piece], node, False, offsets, edges, lengths, scores, best, back)
        if best[node] > scores[piece]:
            continue
        parts = 0
        other = 0.0
        while node > 0:
            other += np.log(totals[back[node]] + totals[piece])
            parts += 1
            node -= lengths[back[node]]
        other -= parts * np.log(total + totals[piece] * (parts - 1))
        result[piece] = totals[piece] * (np.log(totals[piece]) - np.log(total) - other)
    return result
