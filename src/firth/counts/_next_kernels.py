"""Numba kernels that say what comes next: the likeliest words, or words drawn by their probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.counts._query_kernels import ROOT, find_child, value


@njit(cache=True, nogil=True, inline="always")
def _offer(best: Any, scores: Any, held: Any, word: Any, score: Any) -> Any:
    """Keeps the word among the best, sorted, if it belongs there; of equal ones the smaller id comes first."""
    if held == best.size and (score < scores[held - 1] or (score == scores[held - 1] and word > best[held - 1])):
        return held
    place = held if held < best.size else held - 1
    while place > 0 and (scores[place - 1] < score or (scores[place - 1] == score and best[place - 1] > word)):
        scores[place], best[place] = scores[place - 1], best[place - 1]
        place -= 1
    scores[place], best[place] = score, word
    return min(held + 1, best.size)


@njit(cache=True, nogil=True)
def top_backing_off(
    state: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, books: Any, frequent: Any,
    seen: Any, stamp: Any, best: Any, scores: Any,
) -> Any:  # fmt: skip
    """The likeliest words after `state` into `best`, longest history first; returns how many there are.

    `frequent` holds all words, likeliest unigram first, so that few of them need to be looked at. `seen[w] == stamp`
    marks the words that a longer history has spoken for.
    """
    held = 0
    total = 0.0
    while state != ROOT:
        at = np.int64(state)
        for child in range(first[at], first[at + 1]):
            word = words[child]
            if seen[word] != stamp:
                seen[word] = stamp
                held = _offer(best, scores, held, word, total + value(logp, books, levels, child))
        total += bow[at]
        state = links[at]
    for word in frequent:
        score = total + value(logp, books, levels, word)
        if score == -np.inf or (held == best.size and score < scores[held - 1]):
            break
        if seen[word] != stamp:
            held = _offer(best, scores, held, word, score)
    return held


@njit(cache=True, nogil=True, inline="always")
def _uniform(chance: Any) -> Any:
    """The next number in [0, 1) of the generator whose state is `chance[0]` (splitmix64, Steele et al. 2014)."""
    chance[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = chance[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def _draw_child(state: Any, levels: Any, first: Any, logp: Any, bow: Any, books: Any, aim: Any) -> Any:
    """The child of `state` at which the probabilities add up to more than `aim`; ROOT if they never do."""
    total, last = 0.0, ROOT
    for child in range(first[np.int64(state)], first[np.int64(state) + 1]):
        share = math.exp(value(logp, books, levels, child))
        total += share
        if share > 0.0:
            last = np.uint32(child)
        if aim < total:
            return last
    # Where nothing is left for other words, a sum just below one is rounding.
    return last if bow[state] == -np.inf or total > 1.0 - 1e-12 else ROOT


@njit(cache=True, nogil=True)
def draw_sentence(
    state: Any, eos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, books: Any, sums: Any,
    chance: Any, out: Any,
) -> Any:  # fmt: skip
    """Draws words into `out` until the end of the sentence; returns how many.

    After the longest history a word seen there is drawn with its probability; if it is to be another one, it is drawn
    after the shorter history, again and again while it is one that was seen after the longer. `sums` adds up unigrams.
    """
    chain = np.empty(levels.size, dtype=np.uint32)
    for drawn in range(out.size):
        depth = 0
        while True:
            aim = _uniform(chance)
            if state == ROOT:
                node = np.uint32(min(np.searchsorted(sums, aim * sums[-1], side="right"), sums.size - 1))
                word = node
            else:
                node = _draw_child(state, levels, first, logp, bow, books, aim)
                if node == ROOT:
                    chain[depth] = state
                    depth += 1
                    state = links[state]
                    continue
                word = words[node]
            again = False
            for place in range(depth - 1, -1, -1):
                if find_child(words, first, chain[place], word) != ROOT:
                    if place + 1 < depth:
                        state = chain[place + 1]
                    depth = place + 1
                    again = True
                    break
            if not again:
                break
        if word == eos:
            return drawn
        out[drawn] = word
        state = node
        while state != ROOT and np.int64(state) >= bow.size:
            state = links[state]
    return out.size
