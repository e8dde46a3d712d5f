"""Numba kernels of one SGD step: logistic or softmax regression between input rows and target rows."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
from numba import float32, int64, njit, uint32, uint64

from firth.prefetch import prefetch
from firth.vectors._tiles import dots, update

GOLDEN = uint64(0x9E3779B97F4A7C15)
_MIN_PROBABILITY = float32(1e-8)
_TINY = 1e-200
_FIRST_WORD = 5
_LINE = 16  # floats in a cache line


@njit(cache=True, nogil=True, inline="always")
def splitmix64(bits: Any) -> Any:
    """A random number from a counter."""
    bits = (bits ^ (bits >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> uint64(27))) * uint64(0x94D049BB133111EB)
    return bits ^ (bits >> uint64(31))


@njit(cache=True, nogil=True)
def block_seed(seed: Any, epoch: Any, block: Any) -> Any:
    """The random state at the start of a block, from its position alone."""
    state = splitmix64(uint64(seed) + GOLDEN)
    state = splitmix64(state ^ (uint64(epoch) + GOLDEN))
    return splitmix64(state ^ (uint64(block) * GOLDEN))


@njit(cache=True, nogil=True)
def prefetch_row(table: Any, row: Any, stride: Any, width: Any) -> Any:
    for line in range(0, width, _LINE):
        prefetch(table, row * stride + line)


@njit(cache=True, nogil=True)
def draw_word(alias: Any, bits: Any) -> Any:
    """A word drawn from Walker's alias table by 64 random bits."""
    word = int64(((bits >> uint64(32)) * uint64(alias.shape[0])) >> uint64(32))
    return word if uint32(bits) < alias[word, 0] else int64(alias[word, 1])


@njit(cache=True, nogil=True)
def fill_noise_pool(alias: Any, pool: Any, state: Any) -> Any:
    """Fills the pool with words drawn from the noise distribution; returns the new random state."""
    for i in range(pool.size):
        state += GOLDEN
        pool[i] = draw_word(alias, splitmix64(state))
    return state


@njit(cache=True, nogil=True)
def subsample_segment(
    ids: Any, begin: Any, end: Any, keep: Any, window: Any, dynamic_window: Any, state: Any, words: Any,
    window_sizes: Any, count: Any,
) -> Any:  # fmt: skip
    """Appends the kept words of `ids[begin:end]` and their window sizes; returns the new count and random state.

    Word w is kept if 32 random bits are at most keep[w].
    """
    for i in range(begin, end):
        word = ids[i]
        if word < _FIRST_WORD:
            continue
        state += GOLDEN
        bits = splitmix64(state)
        if uint32(bits >> uint64(32)) > keep[word]:
            continue
        words[count] = word
        drawn = ((bits & uint64(0xFFFFFFFF)) * uint64(window)) >> uint64(32)
        window_sizes[count] = 1 + int64(drawn) if dynamic_window else window
        count += 1
    return count, state


@njit(cache=True, nogil=True, inline="always")
def dot_targets(
    inputs: Any, tile: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, scores: Any,
    first: Any,
) -> Any:  # fmt: skip
    """As `dot_products`, for the one or two input rows at the offsets `tile`; their scores begin at `first`."""
    target = begin
    while target + 3 <= end:
        three = (targets[target] * stride, targets[target + 1] * stride, targets[target + 2] * stride)
        dots(inputs, tile, outputs, three, scores, first + target - begin, end - begin, width)
        target += 3
    while target < end:
        dots(inputs, tile, outputs, (targets[target] * stride,), scores, first + target - begin, end - begin, width)
        target += 1


@njit(cache=True, nogil=True)
def dot_products(
    inputs: Any, rows: Any, count: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any,
    scores: Any,
) -> Any:  # fmt: skip
    """scores[i, j] = input row i times target row j, row-major."""
    for i in range(0, count - 1, 2):
        pair = (rows[i] * stride, rows[i + 1] * stride)
        dot_targets(inputs, pair, outputs, targets, begin, end, stride, width, scores, i * (end - begin))
    if count % 2:
        one, first = (rows[count - 1] * stride,), (count - 1) * (end - begin)
        dot_targets(inputs, one, outputs, targets, begin, end, stride, width, scores, first)


@njit(cache=True, nogil=True, inline="always")
def _update_targets(
    inputs: Any, tile: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any, steps: Any,
    first: Any,
) -> Any:  # fmt: skip
    """As `update_rows`, for the one or two input rows at the offsets `tile`; their steps begin at `first`."""
    target = begin
    while target + 3 <= end:
        three = (targets[target] * stride, targets[target + 1] * stride, targets[target + 2] * stride)
        update(inputs, tile, outputs, three, steps, first + target - begin, end - begin, width)
        target += 3
    while target < end:
        update(inputs, tile, outputs, (targets[target] * stride,), steps, first + target - begin, end - begin, width)
        target += 1


@njit(cache=True, nogil=True)
def update_rows(
    inputs: Any, rows: Any, count: Any, outputs: Any, targets: Any, begin: Any, end: Any, stride: Any, width: Any,
    steps: Any,
) -> Any:  # fmt: skip
    """Adds steps[i, j] times target row j to input row i, and vice versa, tile by tile.

    Targets are distinct; input rows may repeat, and equal ones are never in one tile.
    """
    i = 0
    while i < count:
        first = i * (end - begin)
        if i + 2 <= count and rows[i] != rows[i + 1]:
            pair = (rows[i] * stride, rows[i + 1] * stride)
            _update_targets(inputs, pair, outputs, targets, begin, end, stride, width, steps, first)
            i += 2
        else:
            one = (rows[i] * stride,)
            _update_targets(inputs, one, outputs, targets, begin, end, stride, width, steps, first)
            i += 1


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")  # the training loop checks for NaN
def sigmoids(values: Any, count: Any) -> Any:
    """1 / (1 + exp(-x)) of the first values, in place, by a rational approximation of tanh accurate to 1e-7."""
    for i in range(count):
        x = min(max(values[i] * float32(0.5), float32(-9.0)), float32(9.0))
        square = x * x
        top = float32(-2.76076847742355e-16)
        top = top * square + float32(2.00018790482477e-13)
        top = top * square + float32(-8.60467152213735e-11)
        top = top * square + float32(5.12229709037114e-08)
        top = top * square + float32(1.48572235717979e-05)
        top = top * square + float32(6.37261928875436e-04)
        top = top * square + float32(4.89352455891786e-03)
        bottom = float32(1.19825839466702e-06)
        bottom = bottom * square + float32(1.18534705686654e-04)
        bottom = bottom * square + float32(2.26843463243900e-03)
        bottom = bottom * square + float32(4.89352518554385e-03)
        values[i] = float32(0.5) + float32(0.5) * x * top / bottom


@njit(cache=True, nogil=True)
def sgd_step(
    inputs: Any, rows: Any, count: Any, outputs: Any, targets: Any, labels: Any, offsets: Any, begin: Any, end: Any,
    stride: Any, width: Any, lr: Any, scores: Any,
) -> Any:  # fmt: skip
    """One step of logistic regression between all input rows and all targets; returns the loss before it.

    The loss of row i and target j is -log sigmoid(s) if labels[j], else -log sigmoid(-s), where s is their product
    minus offsets[j]; targets are those from `begin` to `end`.
    """
    num_targets = end - begin
    dot_products(inputs, rows, count, outputs, targets, begin, end, stride, width, scores)
    if offsets.size:
        for i in range(count):
            for j in range(num_targets):
                scores[i * num_targets + j] -= offsets[begin + j]
    sigmoids(scores, count * num_targets)
    loss = 0.0
    probability = 1.0  # logarithms are slow: probabilities are multiplied first
    for i in range(count):
        for j in range(num_targets):
            cell = i * num_targets + j
            predicted = scores[cell]
            if labels[begin + j]:
                probability *= max(predicted, _MIN_PROBABILITY)
                scores[cell] = (float32(1.0) - predicted) * lr
            else:
                probability *= max(float32(1.0) - predicted, _MIN_PROBABILITY)
                scores[cell] = -predicted * lr
            if probability < _TINY:
                loss -= log(probability)
                probability = 1.0
    update_rows(inputs, rows, count, outputs, targets, begin, end, stride, width, scores)
    return loss - log(probability)


@njit(cache=True, nogil=True)
def softmax_step(
    inputs: Any, row: Any, outputs: Any, size: Any, label: Any, stride: Any, width: Any, lr: Any, scores: Any,
    targets: Any,
) -> Any:  # fmt: skip
    """One step of softmax regression from an input row to all words; returns -log p(label) before it."""
    rows = np.full(1, row)
    dot_products(inputs, rows, 1, outputs, targets, _FIRST_WORD, size, stride, width, scores)
    num_words = size - _FIRST_WORD
    top = scores[0]
    for i in range(num_words):
        top = max(top, scores[i])
    total = 0.0
    for i in range(num_words):
        total += exp(scores[i] - top)
    loss = log(total) + top - scores[label - _FIRST_WORD]
    for i in range(num_words):
        scores[i] = -lr * float32(exp(scores[i] - top) / total)
    scores[label - _FIRST_WORD] += lr
    update_rows(inputs, rows, 1, outputs, targets, _FIRST_WORD, size, stride, width, scores)
    return loss
