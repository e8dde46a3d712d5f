"""Numba kernels that find the most frequent pair of neighbouring symbols and join it, again and again.

All words stand one after the other in `symbols`; `before` and `after` link the symbols of a word that are left, and a
symbol that was joined to the one on its left becomes GONE. Pairs are found by open addressing on `left << 32 | right`.
Each pair has a chain of the places where it arose; a place is looked at again when it is used, because its symbols may
have been joined to others since. The heap is not kept up to date either: the count of a pair is checked at the top.

Names: place = index into `symbols`; row = number of a distinct pair; node = one place in a chain; fresh = the pairs
that arose since the heap was last filled, linked through their rows.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np
from numba import njit

GONE = -1
HALF = 32
RIGHT = (1 << HALF) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 1 << 12  # places that are counted before there is need to look for more room
_END, _ABSENT = -1, -2  # what links hold besides numbers
KEY, COUNT, CHAIN, FRESHER = range(4)  # columns of a row; a chain is known by its first node
PLACE, NEXT = range(2)  # columns of a node
ROWS, NODES, FRESHEST = range(3)  # how many rows and nodes are in use, and where the fresh pairs begin


@njit(cache=True)
def _find(slots: Any, rows: Any, key: Any) -> Any:
    """The slot that holds the row of `key`, or the empty slot where it belongs."""
    mask = np.uint64(slots.size - 1)
    slot = ((np.uint64(key) * _GOLDEN) >> np.uint64(HALF)) & mask
    while slots[slot] >= 0 and rows[slots[slot], KEY] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def _make_slots(rows: Any, used: Any, room: Any) -> Any:
    """A table of the first `used` rows, at most half full when there are `room`."""
    size = 16
    while size < 2 * room:
        size *= 2
    slots = np.full(size, -1, np.int32)
    for row in range(used):
        slots[_find(slots, rows, rows[row, KEY])] = row
    return slots


@njit(cache=True)
def _grown(old: Any, used: Any, room: Any) -> Any:
    """A copy of the first `used` rows of a larger array."""
    new = np.empty((room, old.shape[1]), old.dtype)
    for row in range(used):  # slices would take Numba seconds to compile
        for column in range(old.shape[1]):
            new[row, column] = old[row, column]
    return new


@njit(cache=True)
def _make_room(slots: Any, pairs: Any, nodes: Any, used: Any, more: Any) -> Any:
    """The same arrays, or larger ones, where pairs can arise at `more` places."""
    if used[NODES] + more > len(nodes):
        nodes = _grown(nodes, used[NODES], 2 * (used[NODES] + more))
    if used[ROWS] + more > len(pairs):
        pairs = _grown(pairs, used[ROWS], 2 * (used[ROWS] + more))
        slots = _make_slots(pairs, used[ROWS], len(pairs))
    return slots, pairs, nodes


@njit(cache=True)
def _link(words: Any) -> Any:
    """The places before and after each place within its word."""
    before = np.full(words.size, _END, np.int32)
    after = np.full(words.size, _END, np.int32)
    for place in range(1, words.size):
        if words[place - 1] == words[place]:
            before[place] = place - 1
            after[place - 1] = place
    return before, after


@njit(cache=True)
def _add(slots: Any, pairs: Any, nodes: Any, used: Any, place: Any, key: Any, count: Any) -> Any:
    """Counts a pair that has arisen at `place`, and puts the place before the others in the pair's chain."""
    slot = _find(slots, pairs, key)
    row = slots[slot]
    if row < 0:
        row = slots[slot] = used[ROWS]
        used[ROWS] += 1
        pairs[row, KEY], pairs[row, COUNT], pairs[row, CHAIN], pairs[row, FRESHER] = key, 0, _END, _ABSENT
    pairs[row, COUNT] += count
    if pairs[row, FRESHER] == _ABSENT:
        pairs[row, FRESHER], used[FRESHEST] = used[FRESHEST], row
    node = used[NODES]
    used[NODES] += 1
    nodes[node, PLACE], nodes[node, NEXT] = place, pairs[row, CHAIN]
    pairs[row, CHAIN] = node


@njit(cache=True)
def _count(symbols: Any, words: Any, after: Any, counts: Any) -> Any:
    """All pairs of neighbours, as slots, rows and nodes, and how many of these are used."""
    used = np.zeros(3, np.int64)
    used[FRESHEST] = _END
    slots = np.full(16, -1, np.int32)
    pairs = np.empty((0, 4), np.int64)
    nodes = np.empty((words.size + _BLOCK, 2), np.int32)
    for place in range(words.size):
        if place % _BLOCK == 0:
            slots, pairs, nodes = _make_room(slots, pairs, nodes, used, _BLOCK)
        if after[place] >= 0:
            key = np.int64(symbols[place]) << HALF | symbols[after[place]]
            _add(slots, pairs, nodes, used, place, key, counts[words[place]])
    return slots, pairs, nodes, used


@njit(cache=True)
def _queue(heap: Any, pairs: Any, used: Any) -> Any:
    """Puts the fresh pairs into the heap."""
    row = used[FRESHEST]
    while row != _END:
        if pairs[row, COUNT] > 0:
            heappush(heap, (-pairs[row, COUNT], pairs[row, KEY]))
        fresher = pairs[row, FRESHER]
        pairs[row, FRESHER] = _ABSENT
        row = fresher
    used[FRESHEST] = _END


@njit(cache=True)
def _take(pair: Any, nodes: Any, places: Any) -> Any:
    """Moves the places of a pair's chain to the end of `places`, in ascending order, and returns them."""
    begin = places.size
    ascending = True
    node = pair[CHAIN]
    while node != _END:
        begin -= 1
        places[begin] = nodes[node, PLACE]
        ascending &= begin + 1 == places.size or places[begin] < places[begin + 1]
        node = nodes[node, NEXT]
    pair[CHAIN] = _END
    if not ascending:  # the pair arose at different times, because another pair gives the same symbol
        places[begin:].sort()
    return places[begin:]


@njit(cache=True)
def _join(
    symbols: Any, words: Any, before: Any, after: Any, counts: Any,
    slots: Any, pairs: Any, nodes: Any, used: Any, places: Any, key: Any, joined: Any,
) -> Any:  # fmt: skip
    """Joins a pair wherever it still stands among `places`; it and the pairs beside it are counted anew."""
    row = slots[_find(slots, pairs, key)]
    left, right = key >> HALF, key & RIGHT
    for place in places:
        other = after[place]
        if symbols[place] != left or other < 0 or symbols[other] != right:
            continue
        count = counts[words[place]]
        pairs[row, COUNT] -= count
        previous, following = before[place], after[other]
        symbols[place], symbols[other], after[place] = joined, GONE, following
        if previous >= 0:
            beside = np.int64(symbols[previous]) << HALF
            pairs[slots[_find(slots, pairs, beside | left)], COUNT] -= count
            _add(slots, pairs, nodes, used, previous, beside | joined, count)
        if following >= 0:
            before[following] = place
            beside = np.int64(symbols[following])
            pairs[slots[_find(slots, pairs, right << HALF | beside)], COUNT] -= count
            _add(slots, pairs, nodes, used, place, joined << HALF | beside, count)


@njit(cache=True)
def best_pairs(symbols: Any, words: Any, counts: Any, least: Any, answer: Any) -> Any:
    """Yields the most frequent pair, as `left << 32 | right`, until it occurs less than `least` times.

    `words` gives the word of each symbol and `counts` how often each word occurs. Before it goes on the caller puts
    what the pair becomes into `answer[0]`, or a negative number to end: memory is freed only when the end is reached.
    """
    before, after = _link(words)
    slots, pairs, nodes, used = _count(symbols, words, after, counts)
    places = np.empty(words.size, np.int32)
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]
    _queue(heap, pairs, used)
    while len(heap) > 0:
        count, key = heappop(heap)
        pair = pairs[slots[_find(slots, pairs, key)]]
        if -count != pair[COUNT]:
            if 0 < pair[COUNT] < -count:  # if it has become more frequent there is another entry for it
                heappush(heap, (-pair[COUNT], key))
            continue
        if -count < least:
            break
        yield key
        if answer[0] < 0:
            break
        chosen = _take(pair, nodes, places)
        slots, pairs, nodes = _make_room(slots, pairs, nodes, used, 2 * chosen.size)
        _join(symbols, words, before, after, counts, slots, pairs, nodes, used, chosen, key, answer[0])
        _queue(heap, pairs, used)


@njit(cache=True)
def _rank(heap: Any, symbols: Any, after: Any, slots: Any, merges: Any, place: Any) -> Any:
    """Puts a place into the heap if the pair there is among the merges."""
    if after[place] >= 0:
        row = slots[_find(slots, merges, np.int64(symbols[place]) << HALF | symbols[after[place]])]
        if row >= 0:
            heappush(heap, np.int64(row) << HALF | place)


@njit(cache=True)
def apply_merges(symbols: Any, words: Any, merges: Any) -> Any:
    """Joins pairs as an encoder does: the earliest of the merges first, and from left to right.

    A row of `merges` is a pair and what it becomes. Joined symbols that are no longer needed become GONE.
    """
    slots = _make_slots(merges, len(merges), len(merges))
    before, after = _link(words)
    heap = [np.int64(0) for _ in range(0)]
    for last in range(words.size):
        _rank(heap, symbols, after, slots, merges, last)
        if after[last] >= 0:
            continue  # the word goes on
        while len(heap) > 0:
            top = heappop(heap)
            place = top & RIGHT
            other = after[place]
            if symbols[place] == GONE or other < 0:
                continue
            row = slots[_find(slots, merges, np.int64(symbols[place]) << HALF | symbols[other])]
            if row < 0 or merges[row, 1] != merges[top >> HALF, 1]:
                continue
            symbols[place], symbols[other], after[place] = merges[row, 1], GONE, after[other]
            _rank(heap, symbols, after, slots, merges, place)
            if after[place] >= 0:
                before[after[place]] = place
            if before[place] >= 0:
                _rank(heap, symbols, after, slots, merges, before[place])
