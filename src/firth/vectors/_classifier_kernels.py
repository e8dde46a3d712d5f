"""Numba kernels of the fastText classifier: the rows of texts, and one SGD step from their mean to a label.

Rows are those of the input table; -1 is an n-gram without one.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
from numba import float32, int64, njit, uint64

from firth.vectors._step_kernels import block_seed, prefetch_row, splitmix64
from firth.vectors._subword_kernels import FNV_BASIS, fnv1a

_UNK, _END = 1, 3
_HIGH = np.uint64(0xFFFFFFFF00000000)
_FACTOR = np.uint64(116049371)
_AHEAD = 4  # rows prefetched ahead


@njit(cache=True, nogil=True)
def hash_words(data: Any, bounds: Any, hashes: Any) -> None:
    """fastText's hash of each word: FNV-1a of its sign-extended bytes, in 32 bits, sign-extended."""
    for word in range(hashes.size):
        value = FNV_BASIS
        for i in range(bounds[word], bounds[word + 1]):
            value = fnv1a(value, data[i])
        hashes[word] = value | _HIGH if value >> uint64(31) else value


@njit(cache=True, nogil=True)
def gather(ids: Any, begins: Any, ends: Any, out: Any) -> None:
    """Concatenates texts, each followed by the end-of-text token."""
    i = 0
    for text in range(begins.size):
        for token in range(begins[text], ends[text]):
            out[i] = ids[token]
            i += 1
        out[i] = _END
        i += 1


@njit(cache=True, nogil=True)
def count_rows(ids: Any, bounds: Any, starts: Any, max_order: Any, row_bounds: Any) -> None:
    """Upper bounds of the row bounds of each text, reached if no word is unknown."""
    total = 0
    for text in range(bounds.size - 1):
        row_bounds[text] = total
        for i in range(bounds[text], bounds[text + 1]):
            total += starts[ids[i] + 1] - starts[ids[i]]
            total += min(max_order - 1, bounds[text + 1] - i - 1)
    row_bounds[bounds.size - 1] = total


@njit(cache=True, nogil=True)
def list_rows(
    ids: Any, bounds: Any, starts: Any, subwords: Any, hashes: Any, max_order: Any, bucket_rows: Any, rows: Any,
    row_bounds: Any,
) -> Any:  # fmt: skip
    """Lists the rows of each text's words, then of its word n-grams of order 2 to `max_order`; returns their number.

    The rows of word w are `subwords[starts[w]:starts[w + 1]]`; the hash of an n-gram is fastText's, h * 116049371 plus
    the next word's hash, and `bucket_rows` has the row of each bucket. N-grams with an unknown word are skipped.
    """
    buckets = uint64(bucket_rows.size)
    count = 0
    for text in range(bounds.size - 1):
        row_bounds[text] = count
        for i in range(bounds[text], bounds[text + 1]):
            for subword in range(starts[ids[i]], starts[ids[i] + 1]):
                rows[count] = subwords[subword]
                count += 1
        for first in range(bounds[text], bounds[text + 1]):
            if ids[first] == _UNK:
                continue
            value = hashes[ids[first]]
            for last in range(first + 1, min(first + max_order, bounds[text + 1])):
                if ids[last] == _UNK:
                    break
                value = value * _FACTOR + hashes[ids[last]]
                rows[count] = bucket_rows[int64(value % buckets)]
                count += 1
    row_bounds[bounds.size - 1] = count
    return count


@njit(cache=True, nogil=True)
def mean_rows(table: Any, rows: Any, row_bounds: Any, means: Any) -> None:
    """The mean of each text's rows; missing ones count as zeros."""
    for text in range(row_bounds.size - 1):
        count = row_bounds[text + 1] - row_bounds[text]
        for column in range(table.shape[1]):
            means[text, column] = float32(0.0)
        for i in range(row_bounds[text], row_bounds[text + 1]):
            row = rows[i]
            if row >= 0:
                for column in range(table.shape[1]):
                    means[text, column] += table[row, column]
        if count:
            for column in range(table.shape[1]):
                means[text, column] *= float32(1.0) / float32(count)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def score_labels(means: Any, outputs: Any, scores: Any) -> None:
    """The product of each text's mean and each output row."""
    for text in range(means.shape[0]):
        for label in range(outputs.shape[0]):
            total = float32(0.0)
            for column in range(outputs.shape[1]):
                total += means[text, column] * outputs[label, column]
            scores[text, label] = total


@njit(cache=True, nogil=True)
def draw_labels(labels: Any, texts: Any, seed: Any, epoch: Any, drawn: Any) -> None:
    """One label of each text, drawn uniformly by the text's index and the epoch alone."""
    for i in range(texts.size):
        row = labels[texts[i]]
        count = 1
        while count < row.size and row[count] >= 0:
            count += 1
        index = int64(splitmix64(block_seed(seed, epoch, texts[i])) % uint64(count)) if count > 1 else int64(0)
        drawn[i] = row[index]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def dot_output(outputs: Any, base: Any, mean: Any, width: Any) -> Any:
    """The product of a mean and the output row that begins at `base`."""
    total = float32(0.0)
    for column in range(width):
        total += mean[column] * outputs[base + column]
    return total


@njit(cache=True, nogil=True)
def update_output(outputs: Any, base: Any, mean: Any, width: Any, step: Any) -> None:
    """Updates an output row, and accumulates the gradient of the mean behind it."""
    for column in range(width):
        mean[width + column] += step * outputs[base + column]
        outputs[base + column] += step * mean[column]


@njit(cache=True, nogil=True)
def softmax_step(
    mean: Any, outputs: Any, targets: Any, label: Any, stride: Any, width: Any, lr: Any, scores: Any
) -> Any:
    """One step of softmax regression from a mean to all targets; returns -log p(label) before it."""
    for i in range(targets.size):
        scores[i] = dot_output(outputs, targets[i] * stride, mean, width)
    top = scores[0]
    for i in range(targets.size):
        top = max(top, scores[i])
    total = 0.0
    for i in range(targets.size):
        total += exp(scores[i] - top)
    loss = log(total) + top - scores[label]
    for i in range(targets.size):
        error = float32(i == label) - float32(exp(scores[i] - top) / total)
        update_output(outputs, targets[i] * stride, mean, width, lr * error)
    return loss


@njit(cache=True, nogil=True)
def logistic_step(
    mean: Any, outputs: Any, targets: Any, is_positive: Any, begin: Any, end: Any, stride: Any, width: Any, lr: Any
) -> Any:
    """One step of logistic regression from a mean to some targets; returns their summed loss before."""
    loss = 0.0
    for i in range(begin, end):
        score = float(dot_output(outputs, targets[i] * stride, mean, width))
        signed = -score if is_positive[i] else score
        loss += max(signed, 0.0) + log(1.0 + exp(-abs(signed)))  # log(1 + exp(signed))
        error = 1.0 / (1.0 + exp(-signed)) if signed > -700 else 0.0
        update_output(outputs, targets[i] * stride, mean, width, lr * float32(error if is_positive[i] else -error))
    return loss


@njit(cache=True, nogil=True)
def train_texts(
    rows: Any, row_bounds: Any, labels: Any, target_starts: Any, targets: Any, is_positive: Any, softmax: Any,
    inputs: Any, outputs: Any, stride: Any, width: Any, lr: Any,
) -> Any:  # fmt: skip
    """Trains on texts one after the other; returns their summed loss before each step, and their number.

    With softmax, `targets` are all labels and `labels` indices into them; otherwise the targets of text t are those
    from `target_starts[t]` to `target_starts[t + 1]`, labelled by `is_positive`.
    """
    mean = np.zeros(2 * width, dtype=np.float32)  # followed by its gradient
    scores = np.empty(max(targets.size, 1), dtype=np.float32)
    loss, examples = 0.0, 0
    for text in range(row_bounds.size - 1):
        begin, end = row_bounds[text], row_bounds[text + 1]
        if begin == end:
            continue
        mean_of_rows(inputs, rows, begin, end, stride, width, mean)
        if softmax:
            loss += softmax_step(mean, outputs, targets, labels[text], stride, width, lr, scores)
        else:
            loss += logistic_step(
                mean, outputs, targets, is_positive, target_starts[text], target_starts[text + 1], stride, width, lr
            )
        update_inputs(inputs, rows, begin, end, stride, width, mean)
        examples += 1
    return loss, examples


@njit(cache=True, nogil=True, fastmath=True)
def mean_of_rows(inputs: Any, rows: Any, begin: Any, end: Any, stride: Any, width: Any, mean: Any) -> None:
    """The mean of some rows, followed by zeros; upcoming rows are prefetched."""
    for column in range(2 * width):
        mean[column] = float32(0.0)
    for i in range(begin, end):
        if i + _AHEAD < rows.size:
            prefetch_row(inputs, rows[i + _AHEAD], stride, width)
        base = rows[i] * stride
        for column in range(width):
            mean[column] += inputs[base + column]
    scale = float32(1.0) / float32(end - begin)
    for column in range(width):
        mean[column] *= scale


@njit(cache=True, nogil=True, fastmath=True)
def update_inputs(inputs: Any, rows: Any, begin: Any, end: Any, stride: Any, width: Any, mean: Any) -> None:
    """Adds the gradient of the mean, divided by their number, to each row."""
    scale = float32(1.0) / float32(end - begin)
    for column in range(width):
        mean[width + column] *= scale
    for i in range(begin, end):
        base = rows[i] * stride
        for column in range(width):
            inputs[base + column] += mean[width + column]
