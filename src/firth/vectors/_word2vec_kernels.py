"""Numba kernels of skip-gram and CBOW: a block of text is planned first, then trained on.

The plan holds all random choices: subsampling, window sizes and negative samples. So training is the same whether rows
lie in the shared tables or in private copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int64, njit, uint64

from firth.vectors._step_kernels import (
    GOLDEN,
    draw_word,
    prefetch_row,
    sgd_step,
    softmax_step,
    splitmix64,
    subsample_segment,
)  # fmt: skip

_TRIES = 20  # to draw a negative sample that is not yet among the targets
_OUTPUTS_AHEAD, _INPUTS_AHEAD = 2, 8  # prefetch distances in words


@njit(cache=True, nogil=True)
def subsample_words(
    ids: Any, segments: Any, begin: Any, end: Any, keep: Any, window: Any, dynamic_window: Any, state: Any,
    words: Any, bounds: Any, window_sizes: Any,
) -> Any:  # fmt: skip
    """Writes the kept words, the bounds of segments with at least two of them, and the window sizes.

    Returns the number of segments and the new random state.
    """
    count = kept_segments = 0
    bounds[0] = 0
    for segment in range(begin, end):
        first = count
        low, high = segments[segment] - segments[begin], segments[segment + 1] - segments[begin]
        count, state = subsample_segment(
            ids, low, high, keep, window, dynamic_window, state, words, window_sizes, count
        )
        if count - first >= 2:
            kept_segments += 1
            bounds[kept_segments] = count
        else:
            count = first
    return kept_segments, state


@njit(cache=True, nogil=True)
def draw_negatives(
    words: Any, count: Any, negatives: Any, alias: Any, pool: Any, log_noise: Any, state: Any, target_starts: Any,
    targets: Any, labels: Any, offsets: Any,
) -> Any:  # fmt: skip
    """Writes the targets of each word: itself and `negatives` others, all distinct, from the noise or its pool.

    For noise-contrastive estimation, `offsets` receives the log of `negatives` times the noise probability of each
    target.
    """
    i = int64(0)
    for index in range(count):
        begin = i
        targets[i] = words[index]
        labels[i] = 1
        i += 1
        for _ in range(negatives):
            for _ in range(_TRIES):
                state += GOLDEN
                bits = splitmix64(state)
                if pool.size:
                    word = int64(pool[int64(((bits >> uint64(32)) * uint64(pool.size)) >> uint64(32))])
                else:
                    word = draw_word(alias, bits)
                is_new = True
                for other in range(begin, i):
                    if targets[other] == word:
                        is_new = False
                if is_new:
                    targets[i] = word
                    labels[i] = 0
                    i += 1
                    break
        if offsets.size:
            for other in range(begin, i):
                offsets[other] = log_noise[targets[other]]
        target_starts[index + 1] = i
    return i


@njit(cache=True, nogil=True)
def huffman_targets(
    words: Any, count: Any, starts: Any, nodes: Any, codes: Any, target_starts: Any, targets: Any, labels: Any
) -> Any:
    """Writes the targets of each word: the inner nodes on its Huffman path, labelled by branch."""
    i = int64(0)
    for index in range(count):
        word = words[index]
        for step in range(starts[word], starts[word + 1]):
            targets[i] = nodes[step]
            labels[i] = codes[step]
            i += 1
        target_starts[index + 1] = i
    return i


@njit(cache=True, nogil=True)
def window_rows(words: Any, bounds: Any, segment: Any, index: Any, window_sizes: Any, rows: Any) -> Any:
    """Writes the context words of a position within its segment; returns their number."""
    count = 0
    low = max(bounds[segment], index - window_sizes[index])
    high = min(bounds[segment + 1], index + window_sizes[index] + 1)
    for other in range(low, high):
        if other != index:
            rows[count] = words[other]
            count += 1
    return count


@njit(cache=True, nogil=True)
def train_windows(
    max_window: Any, words: Any, bounds: Any, segments: Any, window_sizes: Any, target_starts: Any, targets: Any,
    labels: Any, offsets: Any, predicted: Any, inputs: Any, outputs: Any, stride: Any, width: Any, lr: Any,
    is_cbow: Any,
) -> Any:  # fmt: skip
    """Trains on the windows of some segments; returns the summed loss and the number of examples.

    Skip-gram: each context word predicts the centre word. CBOW: their mean does, and the update of the mean is added to
    each of them undivided, as in word2vec.c. With full softmax `predicted` are the centre words, otherwise it is empty.
    """
    max_targets = 0
    for index in range(bounds[segments]):
        max_targets = max(max_targets, target_starts[index + 1] - target_starts[index])
    size = targets.size if predicted.size else 2 * max_window * max_targets + 8
    scores = np.empty(size, dtype=np.float32)
    rows = np.empty(2 * max_window, dtype=np.int64)
    mean, copy = np.zeros(width, dtype=np.float32), np.zeros(width, dtype=np.float32)
    zero = np.zeros(1, dtype=np.int64)
    loss, examples, last = 0.0, 0, bounds[segments]
    for segment in range(segments):
        for index in range(bounds[segment], bounds[segment + 1]):
            if index + _OUTPUTS_AHEAD < last:
                for target in range(target_starts[index + _OUTPUTS_AHEAD], target_starts[index + _OUTPUTS_AHEAD + 1]):
                    prefetch_row(outputs, targets[target], stride, width)
            if index + _INPUTS_AHEAD < last:
                prefetch_row(inputs, words[index + _INPUTS_AHEAD], stride, width)
            count = window_rows(words, bounds, segment, index, window_sizes, rows)
            begin, end = target_starts[index], target_starts[index + 1]
            if is_cbow:
                mean_row(inputs, rows[:count], stride, width, mean, copy)
                if predicted.size:
                    loss += softmax_step(mean, 0, outputs, size, predicted[index], stride, width, lr, scores, targets)
                else:
                    loss += sgd_step(
                        mean, zero, 1, outputs, targets, labels, offsets, begin, end, stride, width, lr, scores
                    )
                add_change(inputs, rows[:count], stride, width, mean, copy)
                examples += 1
            elif predicted.size:
                for row in rows[:count]:
                    loss += softmax_step(
                        inputs, row, outputs, size, predicted[index], stride, width, lr, scores, targets
                    )
                examples += count
            else:
                loss += sgd_step(
                    inputs, rows, count, outputs, targets, labels, offsets, begin, end, stride, width, lr, scores
                )
                examples += count
    return loss, examples


@njit(cache=True, nogil=True, fastmath=True)
def mean_row(table: Any, rows: Any, stride: Any, width: Any, mean: Any, copy: Any) -> Any:
    """Writes the mean of some rows twice: to be updated, and for comparison."""
    scale = float32(1.0) / float32(rows.size)
    for i in range(width):
        mean[i] = float32(0.0)
    for index in range(rows.size):
        row = table[rows[index] * stride : rows[index] * stride + width]
        for i in range(width):
            mean[i] += row[i]
    for i in range(width):
        mean[i] *= scale
        copy[i] = mean[i]


@njit(cache=True, nogil=True, fastmath=True)
def add_change(table: Any, rows: Any, stride: Any, width: Any, mean: Any, copy: Any) -> Any:
    """Adds the change of the mean since it was copied to each of its rows."""
    for i in range(width):
        copy[i] = mean[i] - copy[i]
    for index in range(rows.size):
        row = table[rows[index] * stride : rows[index] * stride + width]
        for i in range(width):
            row[i] += copy[i]


@njit(cache=True, nogil=True)
def list_subwords(words: Any, starts: Any, subwords: Any) -> Any:
    """The concatenated subwords of words, and their bounds."""
    total = 0
    for index in range(words.size):
        total += starts[words[index] + 1] - starts[words[index]]
    begins = np.empty(words.size + 1, dtype=np.int64)
    flat = np.empty(total, dtype=np.int32)
    i = 0
    for index in range(words.size):
        begins[index] = i
        for subword in range(starts[words[index]], starts[words[index] + 1]):
            flat[i] = subwords[subword]
            i += 1
    begins[words.size] = i
    return begins, flat


@njit(cache=True, nogil=True)
def _subwords_of(subwords: Any, starts: Any, index: Any, end: Any, table: Any, stride: Any, width: Any) -> Any:
    """The subwords of a word; the rows of the next one before `end` are prefetched."""
    if index + 1 < end:
        for subword in range(starts[index + 1], starts[index + 2]):
            prefetch_row(table, subwords[subword], stride, width)
    return subwords[starts[index] : starts[index + 1]]


@njit(cache=True, nogil=True)
def train_subwords(
    max_window: Any, subwords: Any, starts: Any, bounds: Any, segments: Any, window_sizes: Any, target_starts: Any,
    targets: Any, labels: Any, offsets: Any, predicted: Any, table: Any, outputs: Any, stride: Any, width: Any, lr: Any,
    is_cbow: Any,
) -> Any:  # fmt: skip
    """As `train_windows`, with words composed of subword rows for each segment.

    The change of a composed word is added to all its subword rows, undivided as in fastText.
    """
    max_length = 0
    for segment in range(segments):
        max_length = max(max_length, bounds[segment + 1] - bounds[segment])
    composed, copies = np.zeros(max_length * stride, dtype=np.float32), np.zeros(max_length * stride, dtype=np.float32)
    positions = np.arange(max_length)
    single = np.zeros(2, dtype=np.int64)
    loss, examples = 0.0, 0
    for segment in range(segments):
        begin, end = bounds[segment], bounds[segment + 1]
        for index in range(begin, end):
            rows, base = _subwords_of(subwords, starts, index, end, table, stride, width), (index - begin) * stride
            mean_row(table, rows, stride, width, composed[base : base + width], copies[base : base + width])
        single[1] = end - begin
        segment_loss, segment_examples = train_windows(
            max_window, positions, single, 1, window_sizes[begin:end], target_starts[begin : end + 1], targets, labels,
            offsets, predicted[begin:end], composed, outputs, stride, width, lr, is_cbow,
        )  # fmt: skip
        loss += segment_loss
        examples += segment_examples
        for index in range(begin, end):
            rows, base = _subwords_of(subwords, starts, index, end, table, stride, width), (index - begin) * stride
            add_change(table, rows, stride, width, composed[base : base + width], copies[base : base + width])
    return loss, examples
