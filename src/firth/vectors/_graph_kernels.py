"""Numba kernels of knowledge graph embeddings: negative triples, scores, losses, updates and ranks.

A step has two parts. Threads first compute the scores and loss derivatives of different triples, then the updates of
different units (dimensions, or complex ones) for all triples in their order: no two threads write the same number, so
that the result does not depend on their number.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from math import cos, exp, log1p, sin, sqrt
from typing import Any

import numpy as np
from numba import float32, int64, njit, uint64

from firth.vectors._step_kernels import GOLDEN, block_seed, splitmix64

TRANSE_L1, TRANSE_L2, DISTMULT, ROTATE = range(4)
MARGIN, ADVERSARIAL = range(2)
_TRIES = 10  # of drawing a negative triple that is not known to be true
_TINY = float32(1e-9)


@njit(cache=True, nogil=True)
def _key(head: Any, relation: Any, tail: Any, entities: Any, relations: Any) -> Any:
    return (uint64(head) * uint64(relations) + uint64(relation)) * uint64(entities) + uint64(tail) + uint64(1)


@njit(cache=True, nogil=True)
def add_triples(slots: Any, triples: Any, entities: Any, relations: Any) -> Any:
    """Add triples to a hash set of a power of two of slots; the number of new ones, which are marked in the result."""
    mask, fresh = uint64(slots.size - 1), np.zeros(len(triples), dtype=np.bool_)
    for row in range(len(triples)):
        key = _key(triples[row, 0], triples[row, 1], triples[row, 2], entities, relations)
        slot = splitmix64(key) & mask
        while slots[slot] != 0 and slots[slot] != key:
            slot = (slot + uint64(1)) & mask
        fresh[row] = slots[slot] == 0
        slots[slot] = key
    return fresh


@njit(cache=True, nogil=True)
def _is_known(slots: Any, head: Any, relation: Any, tail: Any, entities: Any, relations: Any) -> Any:
    key, mask = _key(head, relation, tail, entities, relations), uint64(slots.size - 1)
    slot = splitmix64(key) & mask
    while slots[slot] != 0:
        if slots[slot] == key:
            return True
        slot = (slot + uint64(1)) & mask
    return False


@njit(cache=True, nogil=True)
def draw_negatives(
    triples: Any, begin: Any, end: Any, slots: Any, entities: Any, relations: Any, head_shares: Any, seed: Any,
    epoch: Any, offset: Any, drawn: Any, is_tail: Any,
) -> None:  # fmt: skip
    """Draw entities that replace the head or the tail of each triple, so that it is not known to be true."""
    for row in range(begin, end):
        head, relation, tail = triples[row, 0], triples[row, 1], triples[row, 2]
        state = block_seed(seed, epoch, offset + row)
        for number in range(drawn.shape[1]):
            state += GOLDEN
            is_tail[row, number] = (splitmix64(state) >> uint64(11)) * (1.0 / (1 << 53)) >= head_shares[relation]
            for _ in range(_TRIES):
                state += GOLDEN
                entity = int64(((splitmix64(state) >> uint64(32)) * uint64(entities)) >> uint64(32))
                if is_tail[row, number]:
                    is_true = _is_known(slots, head, relation, entity, entities, relations)
                else:
                    is_true = _is_known(slots, entity, relation, tail, entities, relations)
                if not is_true:
                    break
            drawn[row, number] = entity


@njit(cache=True, nogil=True, fastmath=True)
def _score(kind: Any, entities: Any, relations: Any, head: Any, relation: Any, tail: Any, units: Any) -> Any:
    total = float32(0)
    if kind == TRANSE_L1:
        for unit in range(units):
            total += abs(entities[head, unit] + relations[relation, unit] - entities[tail, unit])
        return -total
    if kind == TRANSE_L2:
        for unit in range(units):
            difference = entities[head, unit] + relations[relation, unit] - entities[tail, unit]
            total += difference * difference
        return -float32(sqrt(total))
    if kind == DISTMULT:
        for unit in range(units):
            total += entities[head, unit] * relations[relation, unit] * entities[tail, unit]
        return total
    for unit in range(units):
        real, imaginary = cos(relations[relation, unit]), sin(relations[relation, unit])
        x, y = entities[head, unit], entities[head, unit + units]
        first = x * real - y * imaginary - entities[tail, unit]
        second = x * imaginary + y * real - entities[tail, unit + units]
        total += float32(sqrt(first * first + second * second))
    return -total


@njit(cache=True, nogil=True)
def score_triples(kind: Any, entities: Any, relations: Any, triples: Any, units: Any, scores: Any) -> None:
    """The score of each triple, higher for more probable ones."""
    for row in range(len(triples)):
        scores[row] = _score(kind, entities, relations, triples[row, 0], triples[row, 1], triples[row, 2], units)


@njit(cache=True, nogil=True)
def _sigmoid(value: Any) -> Any:
    return 1 / (1 + exp(-value)) if value >= 0 else exp(value) / (1 + exp(value))


@njit(cache=True, nogil=True)
def _softplus(value: Any) -> Any:
    return max(value, 0.0) + log1p(exp(-abs(value)))


@njit(cache=True, nogil=True)
def weigh_triples(
    kind: Any, loss: Any, margin: Any, temperature: Any, entities: Any, relations: Any, triples: Any, drawn: Any,
    is_tail: Any, begin: Any, end: Any, units: Any, scores: Any, slopes: Any, losses: Any,
) -> None:  # fmt: skip
    """The scores of triples (last column) and their negatives, and the derivative of the loss by each of them.

    margin: the mean of max(0, margin - f + f') over the negatives (Bordes et al. 2013). adversarial: -log s(margin + f)
    - sum of p log s(-margin - f'), where p is the softmax of temperature x f', without gradient (Sun et al. 2019).
    """
    count = drawn.shape[1]
    for row in range(begin, end):
        head, relation, tail = triples[row, 0], triples[row, 1], triples[row, 2]
        positive = _score(kind, entities, relations, head, relation, tail, units)
        highest = -np.inf
        for number in range(count):
            first, last = (head, drawn[row, number]) if is_tail[row, number] else (drawn[row, number], tail)
            scores[row, number] = _score(kind, entities, relations, first, relation, last, units)
            highest = max(highest, scores[row, number])
        scores[row, count] = positive
        found, slope, total = 0.0, 0.0, 0.0
        if loss == MARGIN:
            for number in range(count):
                over = margin - positive + scores[row, number]
                slopes[row, number] = 1.0 / count if over > 0 else 0.0
                found += max(over, 0.0) / count
                slope -= slopes[row, number]
        else:
            for number in range(count):
                slopes[row, number] = exp(temperature * (scores[row, number] - highest))
                total += slopes[row, number]
            for number in range(count):
                weight, value = slopes[row, number] / total, margin + scores[row, number]
                slopes[row, number] = weight * _sigmoid(value)
                found += weight * _softplus(value)
            found += _softplus(-margin - positive)
            slope = -_sigmoid(-margin - positive)
        slopes[row, count], losses[row] = slope, found


@njit(cache=True, nogil=True, fastmath=True)
def _adagrad(table: Any, squares: Any, row: Any, first: Any, gradient: Any, lr: Any, decay: Any) -> None:
    for index in range(gradient.size):
        column = first + index
        slope = gradient[index] + decay * table[row, column]
        squares[row, column] += slope * slope
        table[row, column] -= lr * slope / sqrt(squares[row, column] + _TINY)


@njit(cache=True, nogil=True, fastmath=True)
def _differentiate(
    kind: Any, slope: Any, score: Any, head: Any, relation: Any, tail: Any, by_head: Any, by_relation: Any, by_tail: Any
) -> None:  # fmt: skip
    """Add the derivatives of slope x score by the units of a head, a relation and a tail."""
    if kind == TRANSE_L1:
        for unit in range(head.size):
            step = -slope if head[unit] + relation[unit] - tail[unit] > 0 else slope
            by_head[unit] += step
            by_relation[unit] += step
            by_tail[unit] -= step
    elif kind == TRANSE_L2:
        factor = slope / min(score, -_TINY)  # -slope / norm
        for unit in range(head.size):
            step = factor * (head[unit] + relation[unit] - tail[unit])
            by_head[unit] += step
            by_relation[unit] += step
            by_tail[unit] -= step
    else:
        for unit in range(head.size):
            by_head[unit] += slope * relation[unit] * tail[unit]
            by_relation[unit] += slope * head[unit] * tail[unit]
            by_tail[unit] += slope * head[unit] * relation[unit]


@njit(cache=True, nogil=True, fastmath=True)
def _rotate(
    slope: Any, head: Any, phases: Any, tail: Any, by_head: Any, by_relation: Any, by_tail: Any
) -> None:  # fmt: skip
    """The same for rotations; the rows of entities are real parts, then imaginary ones; phases are (3, units)."""
    units = phases.shape[1]
    for unit in range(units):
        real, imaginary = phases[1, unit], phases[2, unit]
        x, y = head[unit], head[unit + units]
        turned, other = x * real - y * imaginary, x * imaginary + y * real
        first, second = turned - tail[unit], other - tail[unit + units]
        factor = -slope / (sqrt(first * first + second * second) + _TINY)
        first, second = factor * first, factor * second
        by_head[unit] += first * real + second * imaginary
        by_head[unit + units] += second * real - first * imaginary
        by_relation[unit] += second * turned - first * other
        by_tail[unit] -= first
        by_tail[unit + units] -= second


@njit(cache=True, nogil=True)
def _gather(table: Any, row: Any, first: Any, last: Any, half: Any, found: Any) -> None:
    """The units of a row, and with `half` those of its second half, too."""
    size = last - first
    found[:size] = table[row, first:last]
    if half:
        found[size:] = table[row, half + first : half + last]


@njit(cache=True, nogil=True)
def _change(table: Any, squares: Any, row: Any, first: Any, half: Any, gradient: Any, lr: Any, decay: Any) -> None:
    """The inverse: update the units of a row."""
    if half:
        size = gradient.size // 2
        _adagrad(table, squares, row, first, gradient[:size], lr, decay)
        _adagrad(table, squares, row, half + first, gradient[size:], lr, decay)
    else:
        _adagrad(table, squares, row, first, gradient, lr, decay)


@njit(cache=True, nogil=True)
def update_units(
    kind: Any, entities: Any, relations: Any, entity_squares: Any, relation_squares: Any, triples: Any, drawn: Any,
    is_tail: Any, first: Any, last: Any, units: Any, scores: Any, slopes: Any, lr: Any, decay: Any,
) -> None:  # fmt: skip
    """Update some units of all rows of the triples of a batch and of their negatives, in order."""
    size, count, half = last - first, drawn.shape[1], units if kind == ROTATE else 0
    width = 2 * size if half else size
    buffers = np.empty((6, width), dtype=np.float32)
    head, tail, other, by_head, by_tail, by_other = buffers
    phases, by_relation = np.empty((3, size), dtype=np.float32), np.empty(size, dtype=np.float32)
    for row in range(len(triples)):
        _gather(entities, triples[row, 0], first, last, half, head)
        _gather(entities, triples[row, 2], first, last, half, tail)
        relation = triples[row, 1]
        phases[0] = relations[relation, first:last]
        if half:
            for unit in range(size):
                phases[1, unit], phases[2, unit] = cos(phases[0, unit]), sin(phases[0, unit])
        by_head[:], by_tail[:], by_relation[:] = 0, 0, 0
        for number in range(count + 1):
            slope, score = slopes[row, number], scores[row, number]
            if slope == 0:
                continue
            if number == count:
                if half:
                    _rotate(slope, head, phases, tail, by_head, by_relation, by_tail)
                else:
                    _differentiate(kind, slope, score, head, phases[0], tail, by_head, by_relation, by_tail)
                continue
            _gather(entities, drawn[row, number], first, last, half, other)
            by_other[:] = 0
            if is_tail[row, number]:
                if half:
                    _rotate(slope, head, phases, other, by_head, by_relation, by_other)
                else:
                    _differentiate(kind, slope, score, head, phases[0], other, by_head, by_relation, by_other)
            elif half:
                _rotate(slope, other, phases, tail, by_other, by_relation, by_tail)
            else:
                _differentiate(kind, slope, score, other, phases[0], tail, by_other, by_relation, by_tail)
            _change(entities, entity_squares, drawn[row, number], first, half, by_other, lr, decay)
        if slopes[row, count] != 0:
            _change(entities, entity_squares, triples[row, 0], first, half, by_head, lr, decay)
            _change(entities, entity_squares, triples[row, 2], first, half, by_tail, lr, decay)
            _adagrad(relations, relation_squares, relation, first, by_relation, lr, decay)


@njit(cache=True, nogil=True, fastmath=True)
def normalise_rows(table: Any, rows: Any, part: Any, parts: Any) -> None:
    """Divide the given rows of which the number is `part` modulo `parts` by their norm."""
    for row in rows:
        if row % parts == part:
            total = float32(0)
            for column in range(table.shape[1]):
                total += table[row, column] * table[row, column]
            factor = float32(1) / max(float32(sqrt(total)), _TINY)
            for column in range(table.shape[1]):
                table[row, column] *= factor


@njit(cache=True, nogil=True)
def rank_triples(
    kind: Any, entities: Any, relations: Any, triples: Any, slots: Any, units: Any, begin: Any, end: Any,
    ranks: Any,
) -> None:  # fmt: skip
    """(triples, 2): the rank of the head and of the tail among all entities that make no other known triple.

    Of equal scores, the rank is the mean of the best and the worst.
    """
    for row in range(begin, end):
        head, relation, tail = triples[row, 0], triples[row, 1], triples[row, 2]
        own = _score(kind, entities, relations, head, relation, tail, units)
        for side in range(2):
            better, equal = 0, 0
            for entity in range(len(entities)):
                if entity == (tail if side else head):
                    continue
                first, last = (head, entity) if side else (entity, tail)
                score = _score(kind, entities, relations, first, relation, last, units)
                if score >= own and not _is_known(slots, first, relation, last, len(entities), len(relations)):
                    better += score > own
                    equal += score == own
            ranks[row, side] = 1 + better + 0.5 * equal
