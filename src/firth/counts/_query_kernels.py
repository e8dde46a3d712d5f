"""Numba kernels that look n-grams up: the longest history that was seen decides, shorter ones stand in.

Names: state = the node of the longest known history; depth = its length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.prefetch import prefetch

ROOT = np.uint32(0xFFFFFFFF)
LANES = 16
"""Sentences that are scored side by side."""
_NEXT, _OPEN, _FIND, _TAKE, _DONE = range(5)
BACK_OFF, FLAT, STEPS = range(3)
"""What is done with a word never seen after the history: ask the shorter history; give all such words the same share;
or a share that depends on how frequent history and word are (Church and Gale)."""


@njit(cache=True, nogil=True, inline="always")
def _find_between(words: Any, low: Any, high: Any, word: Any) -> Any:
    """Where the word stands among sorted children, or -1.

    Frequent words have small ids and so stand first among many children: the steps from there get longer and longer.
    """
    end = high
    step = 8
    high = low + step
    while high < end and words[high] < word:
        low = high + 1
        step *= 4
        high = low + step
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and words[low] == word else -1


@njit(cache=True, nogil=True, inline="always")
def find_child(words: Any, first: Any, state: Any, word: Any) -> Any:
    """The child of `state` whose last word is `word`, or ROOT."""
    child = _find_between(words, np.int64(first[state]), np.int64(first[np.int64(state) + 1]), word)
    return np.uint32(child) if child >= 0 else ROOT


@njit(cache=True, nogil=True, inline="always")
def value(logp: Any, books: Any, levels: Any, node: Any) -> Any:
    """The log-probability of a node: as it stands, or looked up in the book of its level."""
    if books.size == 0:
        return np.float64(logp[node])
    level = 0
    while np.int64(node) >= levels[level + 1]:
        level += 1
    return books[level, np.int64(logp[node])]


@njit(cache=True, nogil=True)
def unseen(bow: Any, mode: Any, flat: Any, heads: Any, tails: Any, steps: Any, state: Any, word: Any) -> Any:
    """The log-probability of a word never seen after `state`, where nothing is backed off to."""
    if mode == FLAT:
        return bow[state] + flat[word]
    bucket = np.int64(math.floor(heads[state] + tails[word]))
    return bow[state] + steps[min(max(bucket, 0), steps.size - 1)] + flat[word]


@njit(cache=True, nogil=True)
def score_backing_off(
    ids: Any, bounds: Any, begin: Any, end: Any, bos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any,
    bow: Any, books: Any, out: Any,
) -> Any:  # fmt: skip
    """Writes the log-probability of every id of the sentences from `begin` to `end`."""
    contexts = bow.size
    for sentence in range(begin, end):
        state = np.uint32(bos) if contexts else ROOT
        for place in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[place]
            total = 0.0
            node = ROOT
            while state != ROOT:
                node = find_child(words, first, state, word)
                if node != ROOT:
                    break
                total += bow[state]
                state = links[state]
            if node == ROOT:
                node = np.uint32(word)
            out[place] = total + value(logp, books, levels, node)
            state = node
            while state != ROOT and np.int64(state) >= contexts:
                state = links[state]


@njit(cache=True, nogil=True)
def score_many(
    ids: Any, bounds: Any, begin: Any, end: Any, bos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any,
    bow: Any, books: Any, out: Any,
) -> Any:  # fmt: skip
    """The same as `score_backing_off` for many sentences, `LANES` of them at a time.

    Every look at a large array may take as long as a hundred steps. So each lane only asks for what it needs next and
    lets the others go on; when its turn comes again, the answer is there.
    """
    contexts = np.int64(bow.size)
    state, node = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    place, last = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=np.int64)
    low, high = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    stage, total = np.full(LANES, _NEXT), np.zeros(LANES)
    waiting, busy = begin, LANES
    while busy:
        for lane in range(LANES):
            if stage[lane] == _FIND:
                child = _find_between(words, low[lane], high[lane], ids[place[lane]])
                if child >= 0:
                    node[lane] = child
                    _ask(child, contexts, links, logp, first)
                    stage[lane] = _TAKE
                    continue
                total[lane] += bow[state[lane]]
                after = links[state[lane]]
                if after == ROOT:
                    node[lane] = ids[place[lane]]
                    _ask(node[lane], contexts, links, logp, first)
                    stage[lane] = _TAKE
                    continue
                state[lane] = after
                prefetch(first, state[lane])
                stage[lane] = _OPEN
            elif stage[lane] == _OPEN:
                at = state[lane]
                low[lane], high[lane] = first[at], first[at + 1]
                prefetch(words, low[lane])
                prefetch(bow, at)
                prefetch(links, at)
                stage[lane] = _FIND
            elif stage[lane] == _TAKE:
                out[place[lane]] = total[lane] + value(logp, books, levels, node[lane])
                total[lane] = 0.0
                place[lane] += 1
                at = node[lane]
                while at >= contexts:
                    at = np.int64(links[at])
                state[lane] = at
                prefetch(first, at)
                stage[lane] = _OPEN if place[lane] < last[lane] else _NEXT
            elif stage[lane] == _NEXT:
                if waiting == end:
                    stage[lane] = _DONE
                    busy -= 1
                    continue
                place[lane], last[lane] = bounds[waiting], bounds[waiting + 1]
                waiting += 1
                state[lane] = bos
                stage[lane] = _OPEN


@njit(cache=True, nogil=True, inline="always")
def _ask(node: Any, contexts: Any, links: Any, logp: Any, first: Any) -> Any:
    """Asks for what is needed of a node that was found."""
    prefetch(logp, node)
    if node >= contexts:
        prefetch(links, node)


@njit(cache=True, nogil=True)
def score_flat(
    ids: Any, bounds: Any, begin: Any, end: Any, bos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any,
    bow: Any, books: Any, mode: Any, flat: Any, heads: Any, tails: Any, steps: Any, out: Any,
) -> Any:  # fmt: skip
    """The same for models that never ask a shorter history: a history never seen says nothing about the next word."""
    contexts = bow.size
    longest = levels.size - 2
    for sentence in range(begin, end):
        state, depth = (np.uint32(bos), 1) if contexts else (ROOT, 0)
        for place in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[place]
            known = depth == min(longest, place - bounds[sentence] + 1)
            at, found = state, ROOT
            while at != ROOT:
                found = find_child(words, first, at, word)
                if found != ROOT:
                    break
                at = links[at]
                depth -= 1
            node = np.uint32(word) if found == ROOT else found
            if not known:
                out[place] = flat[word]
            elif at == state:
                out[place] = value(logp, books, levels, node)
            else:
                out[place] = unseen(bow, mode, flat, heads, tails, steps, state, word)
            state, depth = node, depth + 1
            while state != ROOT and np.int64(state) >= contexts:
                state = links[state]
                depth -= 1


@njit(cache=True, nogil=True)
def state_after(history: Any, contexts: Any, words: Any, first: Any, links: Any) -> Any:
    """The node of the longest end of the history that is known, `<s>` included, and its length."""
    state, depth = ROOT, 0
    for word in history:
        node = ROOT
        while state != ROOT:
            node = find_child(words, first, state, word)
            if node != ROOT:
                break
            state = links[state]
            depth -= 1
        state, depth = (np.uint32(word) if node == ROOT else node), depth + 1
        while state != ROOT and np.int64(state) >= contexts:
            state = links[state]
            depth -= 1
    return state, depth


@njit(cache=True, nogil=True)
def next_backing_off(
    state: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, books: Any, out: Any
) -> Any:
    """Writes the log-probability of every word after `state`: unigrams first, overwritten by ever longer n-grams."""
    chain = np.empty(levels.size, dtype=np.uint32)
    weights = np.zeros(levels.size + 1)
    length = 0
    while state != ROOT:
        chain[length] = state
        weights[length + 1] = weights[length] + bow[state]
        state = links[state]
        length += 1
    for word in range(out.size):
        out[word] = weights[length] + value(logp, books, levels, word)
    for place in range(length - 1, -1, -1):
        at = np.int64(chain[place])
        for child in range(first[at], first[at + 1]):
            out[words[child]] = weights[place] + value(logp, books, levels, child)


@njit(cache=True, nogil=True)
def next_flat(
    state: Any, known: Any, levels: Any, words: Any, first: Any, logp: Any, bow: Any, books: Any, mode: Any, flat: Any,
    heads: Any, tails: Any, steps: Any, out: Any,
) -> Any:  # fmt: skip
    """The same for models that never ask a shorter history."""
    for word in range(out.size):
        if not known:
            out[word] = flat[word]
        elif state == ROOT:
            out[word] = value(logp, books, levels, word)
        else:
            out[word] = unseen(bow, mode, flat, heads, tails, steps, state, word)
    if known and state != ROOT:
        for child in range(first[np.int64(state)], first[np.int64(state) + 1]):
            out[words[child]] = value(logp, books, levels, child)
