"""Numba kernels of the bag of tricks: the rows of texts, and one step from their mean to a label.

Names: a text's tokens are `ids`; `begins` and `ends` say where texts lie; rows are those of the input table, and -1 is
an n-gram that has none.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
from numba import float32, int64, njit, uint64

from firth.prefetch import prefetch
from firth.vectors._step_kernels import mixed, random_start

_UNK, _END = 1, 3
_BASIS, _PRIME, _LOW = np.uint64(2166136261), np.uint64(16777619), np.uint64(0xFFFFFFFF)
_SIGN, _HIGH = np.uint64(0xFFFFFF00), np.uint64(0xFFFFFFFF00000000)
_FACTOR = np.uint64(116049371)
_LINE, _SOON = 16, 4  # numbers in a line of cache; rows that are asked for ahead


@njit(cache=True, nogil=True)
def hash_words(data: Any, bounds: Any, hashes: Any) -> None:
    """FNV-1a of each word's signed bytes, a signed number of 32 bits: fastText extends both with their signs."""
    for word in range(hashes.size):
        value = _BASIS
        for place in range(bounds[word], bounds[word + 1]):
            byte = uint64(data[place])
            value = ((value ^ (byte | _SIGN if byte > uint64(127) else byte)) * _PRIME) & _LOW
        hashes[word] = value | _HIGH if value >> uint64(31) else value


@njit(cache=True, nogil=True)
def gather(ids: Any, begins: Any, ends: Any, out: Any) -> None:
    """Puts texts one after the other, each with its end, which is a word too."""
    place = 0
    for text in range(begins.size):
        for token in range(begins[text], ends[text]):
            out[place] = ids[token]
            place += 1
        out[place] = _END
        place += 1


@njit(cache=True, nogil=True)
def mark_ngrams(ids: Any, bounds: Any, hashes: Any, longest: Any, used: Any) -> None:
    """Sets `used` for the bucket of each n-gram of two to `longest` words."""
    buckets = uint64(used.size)
    for text in range(bounds.size - 1):
        for first in range(bounds[text], bounds[text + 1]):
            if ids[first] == _UNK:
                continue
            value = hashes[ids[first]]
            for last in range(first + 1, min(first + longest, bounds[text + 1])):
                if ids[last] == _UNK:
                    break
                value = value * _FACTOR + hashes[ids[last]]
                used[int64(value % buckets)] = True


@njit(cache=True, nogil=True)
def count_rows(ids: Any, bounds: Any, starts: Any, longest: Any, places: Any) -> None:
    """Where the rows of each text begin, if none of its words is unknown, and the end: more than that it never has."""
    total = 0
    for text in range(bounds.size - 1):
        places[text] = total
        for place in range(bounds[text], bounds[text + 1]):
            total += starts[ids[place] + 1] - starts[ids[place]]
            total += min(longest - 1, bounds[text + 1] - place - 1)
    places[bounds.size - 1] = total


@njit(cache=True, nogil=True)
def list_rows(
    ids: Any, bounds: Any, starts: Any, parts: Any, hashes: Any, longest: Any, slots: Any, rows: Any, places: Any
) -> Any:
    """Lists the rows of each text's words, then of its n-grams of two to `longest` words; returns how many.

    The rows of word w are `parts[starts[w]:starts[w + 1]]`; an n-gram's bucket is that of fastText, h * 116049371 plus
    the next word's hash, and `slots` has the row of each bucket. N-grams with a word that has no letters to be told by
    are left out.
    """
    buckets = uint64(slots.size)
    at = 0
    for text in range(bounds.size - 1):
        places[text] = at
        for place in range(bounds[text], bounds[text + 1]):
            for part in range(starts[ids[place]], starts[ids[place] + 1]):
                rows[at] = parts[part]
                at += 1
        for first in range(bounds[text], bounds[text + 1]):
            if ids[first] == _UNK:
                continue
            value = hashes[ids[first]]
            for last in range(first + 1, min(first + longest, bounds[text + 1])):
                if ids[last] == _UNK:
                    break
                value = value * _FACTOR + hashes[ids[last]]
                rows[at] = slots[int64(value % buckets)]
                at += 1
    places[bounds.size - 1] = at
    return at


@njit(cache=True, nogil=True)
def mean_rows(table: Any, rows: Any, places: Any, means: Any) -> None:
    """The mean of each text's rows; those that it has not count as zeros."""
    for text in range(places.size - 1):
        count = places[text + 1] - places[text]
        for column in range(table.shape[1]):
            means[text, column] = float32(0.0)
        for place in range(places[text], places[text + 1]):
            row = rows[place]
            if row >= 0:
                for column in range(table.shape[1]):
                    means[text, column] += table[row, column]
        if count:
            for column in range(table.shape[1]):
                means[text, column] *= float32(1.0) / float32(count)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def score_labels(means: Any, outputs: Any, scores: Any) -> None:
    """The product of each text's mean and each row of the outputs."""
    for text in range(means.shape[0]):
        for label in range(outputs.shape[0]):
            total = float32(0.0)
            for column in range(outputs.shape[1]):
                total += means[text, column] * outputs[label, column]
            scores[text, label] = total


@njit(cache=True, nogil=True)
def choose_labels(labels: Any, texts: Any, seed: Any, epoch: Any, chosen: Any) -> None:
    """One label of each text, drawn evenly from those it has, by the text's number and the epoch alone."""
    for place in range(texts.size):
        row = labels[texts[place]]
        count = 1
        while count < row.size and row[count] >= 0:
            count += 1
        number = int64(mixed(random_start(seed, epoch, texts[place])) % uint64(count)) if count > 1 else int64(0)
        chosen[place] = row[number]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def product(outputs: Any, base: Any, mean: Any, width: Any) -> Any:
    """The product of a mean and the output row that begins at `base`."""
    total = float32(0.0)
    for column in range(width):
        total += mean[column] * outputs[base + column]
    return total


@njit(cache=True, nogil=True)
def push(outputs: Any, base: Any, mean: Any, width: Any, step: Any) -> None:
    """Moves an output row towards the mean by a step, and notes behind the mean where the row draws it."""
    for column in range(width):
        mean[width + column] += step * outputs[base + column]
        outputs[base + column] += step * mean[column]


@njit(cache=True, nogil=True)
def softmax_step(
    mean: Any, outputs: Any, targets: Any, answer: Any, stride: Any, width: Any, rate: Any, scores: Any
) -> Any:
    """One step of softmax regression from a mean to all targets; returns -log p(answer) before it."""
    for place in range(targets.size):
        scores[place] = product(outputs, targets[place] * stride, mean, width)
    top = scores[0]
    for place in range(targets.size):
        top = max(top, scores[place])
    total = 0.0
    for place in range(targets.size):
        total += exp(scores[place] - top)
    loss = log(total) + top - scores[answer]
    for place in range(targets.size):
        wrong = float32(place == answer) - float32(exp(scores[place] - top) / total)
        push(outputs, targets[place] * stride, mean, width, rate * wrong)
    return loss


@njit(cache=True, nogil=True)
def logistic_step(
    mean: Any, outputs: Any, targets: Any, flags: Any, begin: Any, end: Any, stride: Any, width: Any, rate: Any
) -> Any:
    """One step of logistic regression from a mean to each of some targets; returns the sum of their losses before."""
    loss = 0.0
    for place in range(begin, end):
        score = float(product(outputs, targets[place] * stride, mean, width))
        signed = -score if flags[place] else score
        loss += max(signed, 0.0) + log(1.0 + exp(-abs(signed)))  # log(1 + exp(signed))
        wrong = 1.0 / (1.0 + exp(-signed)) if signed > -700 else 0.0
        push(outputs, targets[place] * stride, mean, width, rate * float32(wrong if flags[place] else -wrong))
    return loss


@njit(cache=True, nogil=True)
def learn_texts(
    rows: Any,
    places: Any,
    answers: Any,
    marks: Any,
    targets: Any,
    flags: Any,
    softmax: Any,
    inputs: Any,
    outputs: Any,
    stride: Any,
    width: Any,
    rate: Any,
) -> Any:
    """Learns from texts one after the other; returns the sum of their losses before each step, and how many there are.

    With softmax, all `targets` are compared and `answers` are places among them; otherwise those of text t, from
    `marks[t]` to `marks[t + 1]`, should each be answered by its flag.
    """
    mean = np.zeros(2 * width, dtype=np.float32)  # and behind it, what it is to be moved by
    scores = np.empty(max(targets.size, 1), dtype=np.float32)
    loss, examples = 0.0, 0
    for text in range(places.size - 1):
        begin, end = places[text], places[text + 1]
        if begin == end:
            continue
        average(inputs, rows, begin, end, stride, width, mean)
        if softmax:
            loss += softmax_step(mean, outputs, targets, answers[text], stride, width, rate, scores)
        else:
            loss += logistic_step(mean, outputs, targets, flags, marks[text], marks[text + 1], stride, width, rate)
        spread(inputs, rows, begin, end, stride, width, mean)
        examples += 1
    return loss, examples


@njit(cache=True, nogil=True, fastmath=True)
def average(inputs: Any, rows: Any, begin: Any, end: Any, stride: Any, width: Any, mean: Any) -> None:
    """The mean of some rows, and zeros behind it; rows of the next text are brought near."""
    for column in range(2 * width):
        mean[column] = float32(0.0)
    for place in range(begin, end):
        if place + _SOON < rows.size:
            for line in range(0, width, _LINE):
                prefetch(inputs, rows[place + _SOON] * stride + line)
        base = rows[place] * stride
        for column in range(width):
            mean[column] += inputs[base + column]
    share = float32(1.0) / float32(end - begin)
    for column in range(width):
        mean[column] *= share


@njit(cache=True, nogil=True, fastmath=True)
def spread(inputs: Any, rows: Any, begin: Any, end: Any, stride: Any, width: Any, mean: Any) -> None:
    """Moves each row by its share of what the mean is to be moved by: the gradient of a mean."""
    share = float32(1.0) / float32(end - begin)
    for column in range(width):
        mean[width + column] *= share
    for place in range(begin, end):
        base = rows[place] * stride
        for column in range(width):
            inputs[base + column] += mean[width + column]
