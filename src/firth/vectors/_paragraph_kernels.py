"""Documents that predict their words: pieces of text are planned first, then learnt from.

A piece is a document or a part of one. All that is random in it follows from one number, so that it is the same in
any block or batch. Word i has the targets from i * (1 + draws) to (i + 1) * (1 + draws): itself, and its noise words.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numba import float32, int64, njit, uint32, uint64

from firth.vectors._step_kernels import GOLDEN, mixed, sigmoids
from firth.vectors._tiles import dots11, dots13, update11, update13
from firth.vectors._word2vec_kernels import ask_for

_FIRST_WORD = 5
_LEAST = float32(1e-8)
_TINY = 1e-200
_LINE = 16  # numbers in a line of cache
_SOON = 12  # how far ahead outputs are asked for, in targets


@njit(cache=True, nogil=True)
def place_states(start: Any, states: Any) -> Any:
    """The random numbers of a block's pieces begin where its start and their places say."""
    for piece in range(states.size):
        states[piece] = mixed(mixed(start) ^ (uint64(piece) + GOLDEN))


@njit(cache=True, nogil=True)
def text_states(start: Any, ids: Any, bounds: Any, states: Any) -> Any:
    """The random numbers of texts begin where a start and their own words say."""
    for piece in range(states.size):
        state = start
        for place in range(bounds[piece], bounds[piece + 1]):
            state = mixed(state ^ (uint64(ids[place]) + GOLDEN))
        states[piece] = state


@njit(cache=True, nogil=True)
def choose_words(
    ids: Any, bounds: Any, keep: Any, window: Any, shrink: Any, states: Any, words: Any, begins: Any, reach: Any
) -> Any:
    """Writes the words that are kept, where those of each piece begin, and how wide each window is.

    A word w is kept if a random number of 32 bits is at most keep[w]. Returns how many are.
    """
    count = 0
    begins[0] = 0
    for piece in range(states.size):
        state = states[piece]
        for place in range(bounds[piece] - bounds[0], bounds[piece + 1] - bounds[0]):
            word = ids[place]
            if word < _FIRST_WORD:
                continue
            state += GOLDEN
            number = mixed(state)
            if uint32(number >> uint64(32)) > keep[word]:
                continue
            words[count] = word
            drawn = ((number & uint64(0xFFFFFFFF)) * uint64(window)) >> uint64(32)
            reach[count] = 1 + int64(drawn) if shrink else window
            count += 1
        begins[piece + 1] = count
        states[piece] = state
    return count


@njit(cache=True, nogil=True)
def list_targets(words: Any, begins: Any, draws: Any, pool: Any, states: Any, targets: Any) -> Any:
    """The targets of each word: itself, and so many noise words from the pool, itself perhaps among them."""
    place = 0
    for piece in range(states.size):
        state = states[piece]
        for index in range(begins[piece], begins[piece + 1]):
            targets[place] = words[index]
            place += 1
            for _ in range(draws):
                state += GOLDEN
                targets[place] = pool[int64(((mixed(state) >> uint64(32)) * uint64(pool.size)) >> uint64(32))]
                place += 1
        states[piece] = state


@njit(cache=True, nogil=True)
def step(
    row: Any,
    outputs: Any,
    targets: Any,
    begin: Any,
    end: Any,
    stride: Any,
    width: Any,
    rate: Any,
    frozen: Any,
    scores: Any,
    losses: Any,
) -> Any:
    """One step of logistic regression between a row and its targets, those from `begin` to `end`.

    The loss of the first is -log sigmoid(s), where s is its product with the row, that of the others, which are noise,
    -log sigmoid(-s). With `frozen` only the row moves. Logarithms are slow, so losses[0] - log losses[1] grows by the
    loss before the step.
    """
    target = begin
    while target + 3 <= end:
        three = (targets[target] * stride, targets[target + 1] * stride, targets[target + 2] * stride)
        dots13(row, (0,), outputs, three, scores, target - begin, 0, width)
        target += 3
    while target < end:
        dots11(row, (0,), outputs, (targets[target] * stride,), scores, target - begin, 0, width)
        target += 1
    sigmoids(scores, end - begin)
    _answer(scores, end - begin, rate, losses)
    if frozen:
        _pull(row, outputs, targets, begin, end, stride, width, scores)
    else:
        _move(row, outputs, targets, begin, end, stride, width, scores)


@njit(cache=True, nogil=True)
def _answer(scores: Any, count: Any, rate: Any, losses: Any) -> Any:
    """Replaces the sigmoids of products by steps."""
    chance = losses[1] * max(scores[0], _LEAST)
    scores[0] = (float32(1.0) - scores[0]) * rate
    for place in range(1, count):
        chance *= max(float32(1.0) - scores[place], _LEAST)
        scores[place] *= -rate
        if chance < _TINY:
            losses[0] -= log(chance)
            chance = 1.0
    losses[1] = chance


@njit(cache=True, nogil=True)
def _move(row: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, steps: Any) -> Any:
    """Moves the row and its targets towards each other; equal targets are never in one tile."""
    target = begin
    while target < end:
        here = targets[target]
        if target + 3 <= end:
            second, third = targets[target + 1], targets[target + 2]
            if here != second and here != third and second != third:
                three = (here * stride, second * stride, third * stride)
                update13(row, (0,), outputs, three, steps, target - begin, 0, width)
                target += 3
                continue
        update11(row, (0,), outputs, (here * stride,), steps, target - begin, 0, width)
        target += 1


@njit(cache=True, nogil=True, fastmath=True)
def _pull(row: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, steps: Any) -> Any:
    """Moves the row towards its targets."""
    for target in range(begin, end):
        output, size = _row(outputs, targets[target] * stride, width), steps[target - begin]
        for place in range(width):
            row[place] += size * output[place]


@njit(cache=True, nogil=True)
def _row(table: Any, base: Any, width: Any) -> Any:
    """Some numbers of a table as an array of their own: the compiler then knows that no index is negative."""
    return table[base : base + width]


@njit(cache=True, nogil=True)
def _take(documents: Any, base: Any, width: Any, row: Any) -> Any:
    row[:width] = _row(documents, base, width)


@njit(cache=True, nogil=True)
def _give(documents: Any, base: Any, width: Any, row: Any, share: Any) -> Any:
    """Brings the share of what a document's row has learnt back to its table."""
    document = _row(documents, base, width)
    for place in range(width):
        document[place] += share * (row[place] - document[place])


@njit(cache=True, nogil=True)
def learn_bags(
    begins: Any,
    draws: Any,
    owners: Any,
    shares: Any,
    targets: Any,
    documents: Any,
    outputs: Any,
    stride: Any,
    width: Any,
    rate: Any,
    frozen: Any,
) -> Any:
    """The document of each piece predicts its words; returns the sum of the losses."""
    row = np.zeros(width, dtype=np.float32)
    scores = np.empty(draws + 9, dtype=np.float32)
    losses = np.array([0.0, 1.0])
    for piece in range(owners.size):
        base = owners[piece] * stride
        _take(documents, base, width, row)
        for index in range(begins[piece], begins[piece + 1]):
            begin, end = index * (1 + draws), (index + 1) * (1 + draws)
            for target in range(end + _SOON, min(end + _SOON + 1 + draws, targets.size)):
                ask_for(outputs, targets[target], stride, width)
            step(row, outputs, targets, begin, end, stride, width, rate, frozen, scores, losses)
        _give(documents, base, width, row, shares[piece])
    return losses[0] - log(losses[1])


@njit(cache=True, nogil=True)
def learn_windows(
    around: Any,
    words: Any,
    begins: Any,
    reach: Any,
    draws: Any,
    owners: Any,
    shares: Any,
    targets: Any,
    documents: Any,
    inputs: Any,
    outputs: Any,
    dimension: Any,
    stride: Any,
    width: Any,
    rate: Any,
    concat: Any,
    frozen: Any,
) -> Any:
    """The document of each piece and the words around predict each word; returns the sum of the losses.

    Documents and words have rows of `dimension` numbers, outputs those of `width`: as many, filled up, for the mean of
    document and words, or with `concat` all of them side by side, the words in order. The step goes to the document and
    each of the words in full, as in the program of 2013.
    """
    narrow = -(-dimension // _LINE) * _LINE
    row = np.zeros(dimension, dtype=np.float32)
    rows = np.empty(2 * around, dtype=np.int64)
    slots = np.empty(2 * around, dtype=np.int64)
    made = np.zeros(width, dtype=np.float32)
    before = np.zeros(width, dtype=np.float32)
    scores = np.empty(draws + 9, dtype=np.float32)
    losses = np.array([0.0, 1.0])
    for piece in range(owners.size):
        base = owners[piece] * narrow
        _take(documents, base, dimension, row)
        for index in range(begins[piece], begins[piece + 1]):
            begin, end = index * (1 + draws), (index + 1) * (1 + draws)
            for target in range(end, min(end + 1 + draws, targets.size)):
                ask_for(outputs, targets[target], stride, width)
            low = max(begins[piece], index - reach[index])
            high = min(begins[piece + 1], index + reach[index] + 1)
            count = 0
            for other in range(low, high):
                if other != index:
                    rows[count] = words[other] * narrow
                    slots[count] = around + other - index + (other < index)
                    count += 1
            if concat:
                _lay(row, inputs, rows, slots, count, dimension, made)
            else:
                _average(row, inputs, rows, count, dimension, made)
            before[:] = made
            step(made, outputs, targets, begin, end, stride, width, rate, frozen, scores, losses)
            before[:] = made - before
            for place in range(dimension):
                row[place] += before[place]
            if not frozen:
                _spread(inputs, rows, slots, count, dimension, before, concat)
        _give(documents, base, dimension, row, shares[piece])
    return losses[0] - log(losses[1])


@njit(cache=True, nogil=True, fastmath=True)
def _average(row: Any, inputs: Any, rows: Any, count: Any, dimension: Any, made: Any) -> Any:
    """The mean of a document's row and those of words."""
    share = float32(1.0) / float32(count + 1)
    for place in range(dimension):
        made[place] = row[place]
    for index in range(count):
        word = _row(inputs, rows[index], dimension)
        for place in range(dimension):
            made[place] += word[place]
    for place in range(dimension):
        made[place] *= share


@njit(cache=True, nogil=True)
def _lay(row: Any, inputs: Any, rows: Any, slots: Any, count: Any, dimension: Any, made: Any) -> Any:
    """A document's row and those of words side by side, with zeros where there is no word."""
    made[:] = float32(0.0)
    made[:dimension] = row
    for index in range(count):
        slot = _row(made, slots[index] * dimension, dimension)
        slot[:] = _row(inputs, rows[index], dimension)


@njit(cache=True, nogil=True)
def _spread(inputs: Any, rows: Any, slots: Any, count: Any, dimension: Any, change: Any, concat: Any) -> Any:
    """Adds to the row of each word what has changed, or what has changed in its slot."""
    for index in range(count):
        word = _row(inputs, rows[index], dimension)
        slot = _row(change, slots[index] * dimension if concat else 0, dimension)
        for place in range(dimension):
            word[place] += slot[place]
