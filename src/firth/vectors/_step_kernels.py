"""One step of learning to tell words from others: some input rows, some target rows, and what each should answer."""

from __future__ import annotations

from math import log
from typing import Any

from numba import float32, njit, uint64

from firth.vectors._tiles import dots11, dots13, dots21, dots23, update11, update13, update21, update23

GOLDEN = uint64(0x9E3779B97F4A7C15)
_LEAST = float32(1e-8)
_TINY = 1e-200


@njit(cache=True, nogil=True, inline="always")
def mixed(number: Any) -> Any:
    """A random number from a counter (splitmix64)."""
    number = (number ^ (number >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> uint64(27))) * uint64(0x94D049BB133111EB)
    return number ^ (number >> uint64(31))


@njit(cache=True, nogil=True)
def random_start(seed: Any, epoch: Any, block: Any) -> Any:
    """Where the random numbers of a block begin: a function of its place alone."""
    state = mixed(uint64(seed) + GOLDEN)
    state = mixed(state ^ (uint64(epoch) + GOLDEN))
    return mixed(state ^ (uint64(block) * GOLDEN))


@njit(cache=True, nogil=True)
def products(
    inputs: Any,
    rows: Any,
    count: Any,
    outputs: Any,
    targets: Any,
    begin: Any,
    end: Any,
    stride: Any,
    width: Any,
    scores: Any,
) -> Any:
    """scores[i, j] = input row i times target row j, row after row."""
    wide = end - begin
    i = 0
    while i + 2 <= count:
        pair = (rows[i] * stride, rows[i + 1] * stride)
        j = begin
        while j + 3 <= end:
            three = (targets[j] * stride, targets[j + 1] * stride, targets[j + 2] * stride)
            dots23(inputs, pair, outputs, three, scores, i * wide + j - begin, wide, width)
            j += 3
        while j < end:
            dots21(inputs, pair, outputs, (targets[j] * stride,), scores, i * wide + j - begin, wide, width)
            j += 1
        i += 2
    while i < count:
        one = (rows[i] * stride,)
        j = begin
        while j + 3 <= end:
            three = (targets[j] * stride, targets[j + 1] * stride, targets[j + 2] * stride)
            dots13(inputs, one, outputs, three, scores, i * wide + j - begin, wide, width)
            j += 3
        while j < end:
            dots11(inputs, one, outputs, (targets[j] * stride,), scores, i * wide + j - begin, wide, width)
            j += 1
        i += 1


@njit(cache=True, nogil=True)
def move(
    inputs: Any,
    rows: Any,
    count: Any,
    outputs: Any,
    targets: Any,
    begin: Any,
    end: Any,
    stride: Any,
    width: Any,
    steps: Any,
) -> Any:
    """Moves input row i and target row j towards each other by steps[i, j], tile by tile.

    Targets differ from each other; input rows may repeat, and two that do are never in one tile.
    """
    wide = end - begin
    i = 0
    while i < count:
        if i + 2 <= count and rows[i] != rows[i + 1]:
            pair = (rows[i] * stride, rows[i + 1] * stride)
            j = begin
            while j + 3 <= end:
                three = (targets[j] * stride, targets[j + 1] * stride, targets[j + 2] * stride)
                update23(inputs, pair, outputs, three, steps, i * wide + j - begin, wide, width)
                j += 3
            while j < end:
                update21(inputs, pair, outputs, (targets[j] * stride,), steps, i * wide + j - begin, wide, width)
                j += 1
            i += 2
        else:
            one = (rows[i] * stride,)
            j = begin
            while j + 3 <= end:
                three = (targets[j] * stride, targets[j + 1] * stride, targets[j + 2] * stride)
                update13(inputs, one, outputs, three, steps, i * wide + j - begin, wide, width)
                j += 3
            while j < end:
                update11(inputs, one, outputs, (targets[j] * stride,), steps, i * wide + j - begin, wide, width)
                j += 1
            i += 1


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")  # what is no number is found by the loop
def sigmoids(values: Any, count: Any) -> Any:
    """1 / (1 + exp(-x)) for each of the first values, by a rational approximation of tanh that is right to 1e-7."""
    for place in range(count):
        x = min(max(values[place] * float32(0.5), float32(-9.0)), float32(9.0))
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
        values[place] = float32(0.5) + float32(0.5) * x * top / bottom


@njit(cache=True, nogil=True)
def learn(
    inputs: Any,
    rows: Any,
    count: Any,
    outputs: Any,
    targets: Any,
    labels: Any,
    shifts: Any,
    begin: Any,
    end: Any,
    stride: Any,
    width: Any,
    rate: Any,
    scores: Any,
) -> Any:
    """One step of logistic regression between all input rows and all targets; returns the loss before it.

    The loss of row i and target j is -log sigmoid(s) if labels[j], else -log sigmoid(-s), where s is their product less
    shifts[j]; targets are those from `begin` to `end`.
    """
    wide = end - begin
    products(inputs, rows, count, outputs, targets, begin, end, stride, width, scores)
    if shifts.size:
        for i in range(count):
            for j in range(wide):
                scores[i * wide + j] -= shifts[begin + j]
    sigmoids(scores, count * wide)
    loss = 0.0
    chance = 1.0  # logarithms are slow: many probabilities are multiplied first
    for i in range(count):
        for j in range(wide):
            place = i * wide + j
            answer = scores[place]
            if labels[begin + j]:
                chance *= max(answer, _LEAST)
                scores[place] = (float32(1.0) - answer) * rate
            else:
                chance *= max(float32(1.0) - answer, _LEAST)
                scores[place] = -answer * rate
            if chance < _TINY:
                loss -= log(chance)
                chance = 1.0
    move(inputs, rows, count, outputs, targets, begin, end, stride, width, scores)
    return loss - log(chance)
