"""Numba kernels of paragraph vectors: segments of text are planned first, then trained on.

A segment is a document or a part of one. All its random choices follow from one state, so that they are the same in any
block or batch. Word i has the targets from i * (1 + negatives) to (i + 1) * (1 + negatives): itself and its negatives.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numba import float32, int64, njit, uint64

from firth.vectors._step_kernels import (
    GOLDEN,
    dot_targets,
    prefetch_row,
    sigmoids,
    splitmix64,
    subsample_segment,
)  # fmt: skip
from firth.vectors._tiles import update

_MIN_PROBABILITY = float32(1e-8)
_TINY = 1e-200
_LINE = 16  # floats in a cache line
_AHEAD = 12  # prefetch distance in targets


@njit(cache=True, nogil=True)
def block_states(start: Any, states: Any) -> Any:
    """The random states of a block's segments, from the block's seed and their positions."""
    for segment in range(states.size):
        states[segment] = splitmix64(splitmix64(start) ^ (uint64(segment) + GOLDEN))


@njit(cache=True, nogil=True)
def text_states(start: Any, ids: Any, bounds: Any, states: Any) -> Any:
    """The random states of texts, from a seed and their own words."""
    for segment in range(states.size):
        state = start
        for i in range(bounds[segment], bounds[segment + 1]):
            state = splitmix64(state ^ (uint64(ids[i]) + GOLDEN))
        states[segment] = state


@njit(cache=True, nogil=True)
def subsample_words(
    ids: Any, bounds: Any, keep: Any, window: Any, dynamic_window: Any, states: Any, words: Any, begins: Any,
    window_sizes: Any,
) -> Any:  # fmt: skip
    """Writes the kept words, the bounds of each segment's, and the window sizes; returns the number of words."""
    count = 0
    begins[0] = 0
    for segment in range(states.size):
        low, high = bounds[segment] - bounds[0], bounds[segment + 1] - bounds[0]
        count, states[segment] = subsample_segment(
            ids, low, high, keep, window, dynamic_window, states[segment], words, window_sizes, count
        )
        begins[segment + 1] = count
    return count


@njit(cache=True, nogil=True)
def list_targets(words: Any, begins: Any, negatives: Any, pool: Any, states: Any, targets: Any) -> Any:
    """The targets of each word: itself, and negatives from the pool, possibly equal to it."""
    i = 0
    for segment in range(states.size):
        state = states[segment]
        for index in range(begins[segment], begins[segment + 1]):
            targets[i] = words[index]
            i += 1
            for _ in range(negatives):
                state += GOLDEN
                targets[i] = pool[int64(((splitmix64(state) >> uint64(32)) * uint64(pool.size)) >> uint64(32))]
                i += 1
        states[segment] = state


@njit(cache=True, nogil=True)
def step(
    row: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, lr: Any, frozen: Any,
    scores: Any, losses: Any,
) -> Any:  # fmt: skip
    """One step of logistic regression between a row and its targets, those from `begin` to `end`.

    The loss of the first is -log sigmoid(s), where s is its product with the row, that of the others, the negatives,
    -log sigmoid(-s). With `frozen` only the row is updated. Logarithms are slow, so losses[0] - log losses[1]
    accumulates the loss before the step.
    """
    dot_targets(row, (0,), outputs, targets, begin, end, stride, width, scores, 0)
    sigmoids(scores, end - begin)
    _losses_to_steps(scores, end - begin, lr, losses)
    if frozen:
        _update_row(row, outputs, targets, begin, end, stride, width, scores)
    else:
        _update_all(row, outputs, targets, begin, end, stride, width, scores)


@njit(cache=True, nogil=True)
def _losses_to_steps(scores: Any, count: Any, lr: Any, losses: Any) -> Any:
    """Replaces the sigmoids of products by steps."""
    probability = losses[1] * max(scores[0], _MIN_PROBABILITY)
    scores[0] = (float32(1.0) - scores[0]) * lr
    for i in range(1, count):
        probability *= max(float32(1.0) - scores[i], _MIN_PROBABILITY)
        scores[i] *= -lr
        if probability < _TINY:
            losses[0] -= log(probability)
            probability = 1.0
    losses[1] = probability


@njit(cache=True, nogil=True)
def _update_all(row: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, steps: Any) -> Any:
    """Updates the row and its targets; equal targets are never in one tile."""
    target = begin
    while target < end:
        first = targets[target]
        if target + 3 <= end:
            second, third = targets[target + 1], targets[target + 2]
            if first != second and first != third and second != third:
                three = (first * stride, second * stride, third * stride)
                update(row, (0,), outputs, three, steps, target - begin, 0, width)
                target += 3
                continue
        update(row, (0,), outputs, (first * stride,), steps, target - begin, 0, width)
        target += 1


@njit(cache=True, nogil=True, fastmath=True)
def _update_row(row: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, steps: Any) -> Any:
    for target in range(begin, end):
        output, size = _slice(outputs, targets[target] * stride, width), steps[target - begin]
        for i in range(width):
            row[i] += size * output[i]


@njit(cache=True, nogil=True)
def _slice(table: Any, base: Any, width: Any) -> Any:
    """A slice as an array of its own: the compiler then knows that no index is negative."""
    return table[base : base + width]


@njit(cache=True, nogil=True)
def _load_document(documents: Any, base: Any, width: Any, row: Any) -> Any:
    row[:width] = _slice(documents, base, width)


@njit(cache=True, nogil=True)
def _store_document(documents: Any, base: Any, width: Any, row: Any, weight: Any) -> Any:
    """Adds the weighted change of a document's row to its table."""
    document = _slice(documents, base, width)
    for i in range(width):
        document[i] += weight * (row[i] - document[i])


@njit(cache=True, nogil=True)
def train_dbow(
    begins: Any, negatives: Any, documents_of: Any, weights: Any, targets: Any, documents: Any, outputs: Any,
    stride: Any, width: Any, lr: Any, frozen: Any,
) -> Any:  # fmt: skip
    """The document of each segment predicts its words; returns the summed loss."""
    row = np.zeros(width, dtype=np.float32)
    scores = np.empty(negatives + 9, dtype=np.float32)
    losses = np.array([0.0, 1.0])
    for segment in range(documents_of.size):
        base = documents_of[segment] * stride
        _load_document(documents, base, width, row)
        for index in range(begins[segment], begins[segment + 1]):
            begin, end = index * (1 + negatives), (index + 1) * (1 + negatives)
            for target in range(end + _AHEAD, min(end + _AHEAD + 1 + negatives, targets.size)):
                prefetch_row(outputs, targets[target], stride, width)
            step(row, outputs, targets, begin, end, stride, width, lr, frozen, scores, losses)
        _store_document(documents, base, width, row, weights[segment])
    return losses[0] - log(losses[1])


@njit(cache=True, nogil=True)
def train_dm(
    max_window: Any, words: Any, begins: Any, window_sizes: Any, negatives: Any, documents_of: Any, weights: Any,
    targets: Any, documents: Any, inputs: Any, outputs: Any, dimension: Any, stride: Any, width: Any, lr: Any,
    concat: Any, frozen: Any,
) -> Any:  # fmt: skip
    """The document of each segment and the context words predict each word; returns the summed loss.

    Documents and words have rows of `dimension`, outputs of `width`: the padded dimension for the mean of document and
    words, or with `concat` all of them concatenated, the words in order. The update is added undivided to the document
    and each word, as in word2vec.c.
    """
    input_stride = -(-dimension // _LINE) * _LINE
    row = np.zeros(dimension, dtype=np.float32)
    rows = np.empty(2 * max_window, dtype=np.int64)
    slots = np.empty(2 * max_window, dtype=np.int64)
    hidden = np.zeros(width, dtype=np.float32)
    change = np.zeros(width, dtype=np.float32)
    scores = np.empty(negatives + 9, dtype=np.float32)
    losses = np.array([0.0, 1.0])
    for segment in range(documents_of.size):
        base = documents_of[segment] * input_stride
        _load_document(documents, base, dimension, row)
        for index in range(begins[segment], begins[segment + 1]):
            begin, end = index * (1 + negatives), (index + 1) * (1 + negatives)
            for target in range(end, min(end + 1 + negatives, targets.size)):
                prefetch_row(outputs, targets[target], stride, width)
            low = max(begins[segment], index - window_sizes[index])
            high = min(begins[segment + 1], index + window_sizes[index] + 1)
            count = 0
            for other in range(low, high):
                if other != index:
                    rows[count] = words[other] * input_stride
                    slots[count] = max_window + other - index + (other < index)
                    count += 1
            if concat:
                _concat_inputs(row, inputs, rows, slots, count, dimension, hidden)
            else:
                _mean_inputs(row, inputs, rows, count, dimension, hidden)
            change[:] = hidden
            step(hidden, outputs, targets, begin, end, stride, width, lr, frozen, scores, losses)
            change[:] = hidden - change
            for i in range(dimension):
                row[i] += change[i]
            if not frozen:
                _update_inputs(inputs, rows, slots, count, dimension, change, concat)
        _store_document(documents, base, dimension, row, weights[segment])
    return losses[0] - log(losses[1])


@njit(cache=True, nogil=True, fastmath=True)
def _mean_inputs(row: Any, inputs: Any, rows: Any, count: Any, dimension: Any, hidden: Any) -> Any:
    weight = float32(1.0) / float32(count + 1)
    for i in range(dimension):
        hidden[i] = row[i]
    for index in range(count):
        word = _slice(inputs, rows[index], dimension)
        for i in range(dimension):
            hidden[i] += word[i]
    for i in range(dimension):
        hidden[i] *= weight


@njit(cache=True, nogil=True)
def _concat_inputs(row: Any, inputs: Any, rows: Any, slots: Any, count: Any, dimension: Any, hidden: Any) -> Any:
    """A document's row and those of words concatenated, with zeros where there is no word."""
    hidden[:] = float32(0.0)
    hidden[:dimension] = row
    for index in range(count):
        slot = _slice(hidden, slots[index] * dimension, dimension)
        slot[:] = _slice(inputs, rows[index], dimension)


@njit(cache=True, nogil=True)
def _update_inputs(inputs: Any, rows: Any, slots: Any, count: Any, dimension: Any, change: Any, concat: Any) -> Any:
    """Adds the change, or the part of it in its slot, to the row of each word."""
    for index in range(count):
        word = _slice(inputs, rows[index], dimension)
        slot = _slice(change, slots[index] * dimension if concat else 0, dimension)
        for i in range(dimension):
            word[i] += slot[i]
