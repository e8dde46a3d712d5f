"""Skip-gram and continuous bag of words: a block of text is planned first, then learnt from.

The plan holds everything random: which words are left out, how wide each window is, which noise words are drawn. So
learning is the same whether rows lie in the shared tables or in a private copy of those that the plan names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int64, njit, uint32, uint64

from firth.prefetch import prefetch
from firth.vectors._step_kernels import GOLDEN, learn, mixed

_FIRST_WORD = 5
_TRIES = 20  # noise words that are drawn for one that is not there yet
_LINE = 16  # numbers in a line of cache
_SOON = 2  # how far ahead rows are asked for, in words
_LATER = 8


@njit(cache=True, nogil=True)
def choose_words(
    ids: Any,
    pieces: Any,
    begin: Any,
    end: Any,
    keep: Any,
    window: Any,
    shrink: Any,
    state: Any,
    words: Any,
    bounds: Any,
    reach: Any,
) -> Any:
    """Writes the words that are kept, where each piece with two of them begins, and how wide each window is.

    A word w is kept if a random number of 32 bits is at most keep[w]. Returns the number of pieces and the new state.
    """
    count = found = 0
    bounds[0] = 0
    first_token = pieces[begin]
    for piece in range(begin, end):
        first = count
        for place in range(pieces[piece] - first_token, pieces[piece + 1] - first_token):
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
        if count - first >= 2:
            found += 1
            bounds[found] = count
        else:
            count = first
    return found, state


@njit(cache=True, nogil=True)
def _draw(alias: Any, number: Any) -> Any:
    """The word that a random number stands for: `alias` has a threshold and another word for each (Walker 1977)."""
    word = int64(((number >> uint64(32)) * uint64(alias.shape[0])) >> uint64(32))
    return word if uint32(number) < alias[word, 0] else int64(alias[word, 1])


@njit(cache=True, nogil=True)
def draw_pool(alias: Any, pool: Any, state: Any) -> Any:
    """Fills the pool with words drawn from the noise; returns the new state."""
    for place in range(pool.size):
        state += GOLDEN
        pool[place] = _draw(alias, mixed(state))
    return state


@njit(cache=True, nogil=True)
def draw_noise(
    words: Any,
    count: Any,
    negatives: Any,
    alias: Any,
    pool: Any,
    log_noise: Any,
    state: Any,
    marks: Any,
    targets: Any,
    labels: Any,
    shifts: Any,
) -> Any:
    """The targets of each word: itself, and `negatives` others, all different, drawn from the noise or its pool.

    With shifts, noise-contrastive estimation: the logarithm of `negatives` times the noise's probability goes off each
    product.
    """
    place = int64(0)
    for index in range(count):
        begin = place
        targets[place] = words[index]
        labels[place] = 1
        place += 1
        for _ in range(negatives):
            for _ in range(_TRIES):
                state += GOLDEN
                number = mixed(state)
                if pool.size:
                    word = int64(pool[int64(((number >> uint64(32)) * uint64(pool.size)) >> uint64(32))])
                else:
                    word = _draw(alias, number)
                fresh = True
                for other in range(begin, place):
                    if targets[other] == word:
                        fresh = False
                if fresh:
                    targets[place] = word
                    labels[place] = 0
                    place += 1
                    break
        if shifts.size:
            for other in range(begin, place):
                shifts[other] = log_noise[targets[other]]
        marks[index + 1] = place
    return place


@njit(cache=True, nogil=True)
def follow_paths(
    words: Any, count: Any, starts: Any, nodes: Any, codes: Any, marks: Any, targets: Any, labels: Any
) -> Any:
    """The targets of each word: the nodes above it in the tree, and the way it goes at each."""
    place = int64(0)
    for index in range(count):
        word = words[index]
        for step in range(starts[word], starts[word + 1]):
            targets[place] = nodes[step]
            labels[place] = codes[step]
            place += 1
        marks[index + 1] = place
    return place


@njit(cache=True, nogil=True)
def ask_for(table: Any, row: Any, stride: Any, width: Any) -> Any:
    """Has a row of a table brought near."""
    for line in range(0, width, _LINE):
        prefetch(table, row * stride + line)


@njit(cache=True, nogil=True)
def window(words: Any, bounds: Any, piece: Any, index: Any, reach: Any, rows: Any) -> Any:
    """Writes the words around one of a piece; returns how many there are."""
    count = 0
    low, high = max(bounds[piece], index - reach[index]), min(bounds[piece + 1], index + reach[index] + 1)
    for other in range(low, high):
        if other != index:
            rows[count] = words[other]
            count += 1
    return count


@njit(cache=True, nogil=True)
def learn_windows(
    around: Any,
    words: Any,
    bounds: Any,
    pieces: Any,
    reach: Any,
    marks: Any,
    targets: Any,
    labels: Any,
    shifts: Any,
    inputs: Any,
    outputs: Any,
    stride: Any,
    width: Any,
    rate: Any,
    together: Any,
) -> Any:
    """Learns from the windows of some pieces; returns the sum of the losses and the number of examples.

    Skip-gram: each word around predicts the one in the middle. With `together` (continuous bag of words) their mean
    does, and the step goes to each of them in full, as in the program of 2013.
    """
    widest = 0
    for index in range(bounds[pieces]):
        widest = max(widest, marks[index + 1] - marks[index])
    scores = np.empty(2 * around * widest + 8, dtype=np.float32)
    rows = np.empty(2 * around, dtype=np.int64)
    mean = np.zeros(2 * width, dtype=np.float32)
    zero = np.zeros(1, dtype=np.int64)
    loss, examples, last = 0.0, 0, bounds[pieces]
    for piece in range(pieces):
        for index in range(bounds[piece], bounds[piece + 1]):
            if index + _SOON < last:
                for target in range(marks[index + _SOON], marks[index + _SOON + 1]):
                    ask_for(outputs, targets[target], stride, width)
            if index + _LATER < last:
                ask_for(inputs, words[index + _LATER], stride, width)
            count = window(words, bounds, piece, index, reach, rows)
            begin, end = marks[index], marks[index + 1]
            if together:
                average(inputs, rows, count, stride, width, mean)
                loss += learn(mean, zero, 1, outputs, targets, labels, shifts, begin, end, stride, width, rate, scores)
                spread(inputs, rows, count, stride, width, mean)
                examples += 1
            else:
                loss += learn(
                    inputs, rows, count, outputs, targets, labels, shifts, begin, end, stride, width, rate, scores
                )
                examples += count
    return loss, examples


@njit(cache=True, nogil=True, fastmath=True)
def average(inputs: Any, rows: Any, count: Any, stride: Any, width: Any, mean: Any) -> Any:
    """The mean of some rows, twice: to be changed, and as it was."""
    share = float32(1.0) / float32(count)
    for place in range(width):
        mean[place] = float32(0.0)
    for index in range(count):
        row = inputs[rows[index] * stride : rows[index] * stride + width]
        for place in range(width):
            mean[place] += row[place]
    for place in range(width):
        mean[place] *= share
        mean[width + place] = mean[place]


@njit(cache=True, nogil=True, fastmath=True)
def spread(inputs: Any, rows: Any, count: Any, stride: Any, width: Any, mean: Any) -> Any:
    """Adds what the mean has changed by to each of its rows."""
    for place in range(width):
        mean[width + place] = mean[place] - mean[width + place]
    for index in range(count):
        row = inputs[rows[index] * stride : rows[index] * stride + width]
        for place in range(width):
            row[place] += mean[width + place]


@njit(cache=True, nogil=True)
def list_parts(words: Any, starts: Any, parts: Any) -> Any:
    """The parts of each word in turn, and where those of each begin."""
    total = 0
    for index in range(words.size):
        total += starts[words[index] + 1] - starts[words[index]]
    begins = np.empty(words.size + 1, dtype=np.int64)
    listed = np.empty(total, dtype=np.int32)
    place = 0
    for index in range(words.size):
        begins[index] = place
        for part in range(starts[words[index]], starts[words[index] + 1]):
            listed[place] = parts[part]
            place += 1
    begins[words.size] = place
    return begins, listed


@njit(cache=True, nogil=True)
def compose(parts: Any, starts: Any, begin: Any, end: Any, table: Any, stride: Any, width: Any, made: Any) -> Any:
    """Row i of `made` is the mean of the table's rows that word i of a piece is made of; twice, one to be changed."""
    size = (end - begin) * stride
    for index in range(begin, end):
        first, last = starts[index], starts[index + 1]
        if index + 1 < end:
            for part in range(last, starts[index + 2]):
                ask_for(table, parts[part], stride, width)
        base = (index - begin) * stride
        _mean(parts, first, last, table, stride, width, made, base)
        made[size + base : size + base + width] = made[base : base + width]


@njit(cache=True, nogil=True, fastmath=True)
def _mean(parts: Any, first: Any, last: Any, table: Any, stride: Any, width: Any, made: Any, base: Any) -> Any:
    share = float32(1.0) / float32(last - first)
    for place in range(width):
        made[base + place] = float32(0.0)
    for part in range(first, last):
        row = table[parts[part] * stride : parts[part] * stride + width]
        for place in range(width):
            made[base + place] += row[place]
    for place in range(width):
        made[base + place] *= share


@njit(cache=True, nogil=True, fastmath=True)
def hand_down(parts: Any, starts: Any, begin: Any, end: Any, table: Any, stride: Any, width: Any, made: Any) -> Any:
    """What each word of a piece has changed by goes to every row that it is made of, in full as in fastText."""
    size = (end - begin) * stride
    for index in range(begin, end):
        if index + 1 < end:
            for part in range(starts[index + 1], starts[index + 2]):
                ask_for(table, parts[part], stride, width)
        base = (index - begin) * stride
        for place in range(width):
            made[size + base + place] = made[base + place] - made[size + base + place]
        for part in range(starts[index], starts[index + 1]):
            row = table[parts[part] * stride : parts[part] * stride + width]
            for place in range(width):
                row[place] += made[size + base + place]


@njit(cache=True, nogil=True)
def learn_subwords(
    around: Any,
    parts: Any,
    starts: Any,
    bounds: Any,
    pieces: Any,
    reach: Any,
    marks: Any,
    targets: Any,
    labels: Any,
    shifts: Any,
    table: Any,
    outputs: Any,
    stride: Any,
    width: Any,
    rate: Any,
    together: Any,
) -> Any:
    """As `learn_windows`, with words made of several rows of the table: put together for a piece, then handed down."""
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
        part_loss, part_examples = learn_windows(
            around,
            places,
            one,
            1,
            reach[begin:end],
            marks[begin : end + 1],
            targets,
            labels,
            shifts,
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
