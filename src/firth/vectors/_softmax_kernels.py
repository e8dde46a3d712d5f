"""The exact objective of skip-gram and continuous bag of words: the word in the middle among all words."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
from numba import float32, njit

from firth.vectors._step_kernels import move, products
from firth.vectors._word2vec_kernels import average, compose, hand_down, spread, window

_FIRST_WORD = 5


@njit(cache=True, nogil=True)
def step(
    inputs: Any,
    row: Any,
    outputs: Any,
    size: Any,
    answer: Any,
    stride: Any,
    width: Any,
    rate: Any,
    scores: Any,
    targets: Any,
) -> Any:
    """One step of softmax regression from an input row to all words; returns -log p(answer) before it."""
    rows = np.full(1, row)
    products(inputs, rows, 1, outputs, targets, _FIRST_WORD, size, stride, width, scores)
    wide = size - _FIRST_WORD
    top = scores[0]
    for place in range(wide):
        top = max(top, scores[place])
    total = 0.0
    for place in range(wide):
        total += exp(scores[place] - top)
    loss = log(total) + top - scores[answer - _FIRST_WORD]
    for place in range(wide):
        scores[place] = -rate * float32(exp(scores[place] - top) / total)
    scores[answer - _FIRST_WORD] += rate
    move(inputs, rows, 1, outputs, targets, _FIRST_WORD, size, stride, width, scores)
    return loss


@njit(cache=True, nogil=True)
def learn_exactly(
    around: Any,
    words: Any,
    answers: Any,
    bounds: Any,
    pieces: Any,
    reach: Any,
    targets: Any,
    inputs: Any,
    outputs: Any,
    stride: Any,
    width: Any,
    rate: Any,
    together: Any,
) -> Any:
    """As `learn_windows`, with all words as targets; `answers` are the words themselves, `words` their input rows."""
    size = targets.size
    scores = np.empty(size, dtype=np.float32)
    rows = np.empty(2 * around, dtype=np.int64)
    mean = np.zeros(2 * width, dtype=np.float32)
    loss, examples = 0.0, 0
    for piece in range(pieces):
        for index in range(bounds[piece], bounds[piece + 1]):
            count = window(words, bounds, piece, index, reach, rows)
            if together:
                average(inputs, rows, count, stride, width, mean)
                loss += step(mean, 0, outputs, size, answers[index], stride, width, rate, scores, targets)
                spread(inputs, rows, count, stride, width, mean)
                examples += 1
            else:
                for other in range(count):
                    loss += step(
                        inputs, rows[other], outputs, size, answers[index], stride, width, rate, scores, targets
                    )
                examples += count
    return loss, examples


@njit(cache=True, nogil=True)
def learn_subwords_exactly(
    around: Any,
    parts: Any,
    starts: Any,
    answers: Any,
    bounds: Any,
    pieces: Any,
    reach: Any,
    targets: Any,
    table: Any,
    outputs: Any,
    stride: Any,
    width: Any,
    rate: Any,
    together: Any,
) -> Any:
    """As `learn_exactly`, with words made of several rows of the table: put together for a piece, then handed down."""
    longest = 0
    for piece in range(pieces):
        longest = max(longest, bounds[piece + 1] - bounds[piece])
    made = np.zeros(2 * longest * stride, dtype=np.float32)
    places = np.arange(longest)
    one = np.zeros(2, dtype=np.int64)
    loss, examples = 0.0, 0
    for piece in range(pieces):
        begin, end = bounds[piece], bounds[piece + 1]
        compose(parts, starts, begin, end, table, stride, width, made)
        one[1] = end - begin
        part_loss, part_examples = learn_exactly(
            around,
            places,
            answers[begin:end],
            one,
            1,
            reach[begin:end],
            targets,
            made,
            outputs,
            stride,
            width,
            rate,
            together,
        )
        loss += part_loss
        examples += part_examples
        hand_down(parts, starts, begin, end, table, stride, width, made)
    return loss, examples
