"""Skip-gram and continuous bag of words in plain Python and NumPy, number by number: twins of the kernels."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.vectors.text import FIRST_WORD

Matrix = npt.NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_BITS = 2**64 - 1
_HALF = 2**32 - 1


def slow_mixed(number: int) -> int:
    """The output of splitmix64 for a counter."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _BITS
    return number ^ (number >> 31)


def slow_start(seed: int, epoch: int, block: int) -> int:
    """Where the random numbers of a block begin."""
    state = slow_mixed((seed + _GOLDEN) & _BITS)
    state = slow_mixed(state ^ ((epoch + _GOLDEN) & _BITS))
    return slow_mixed(state ^ ((block * _GOLDEN) & _BITS))


def slow_numbers(state: int) -> Iterator[int]:
    """Random numbers of 64 bits."""
    while True:
        state = (state + _GOLDEN) & _BITS
        yield slow_mixed(state)


def slow_choose(
    sentences: Sequence[Sequence[int]], keep: Any, window: int, shrink: bool, numbers: Iterator[int]
) -> list[list[tuple[int, int]]]:
    """The words of each sentence that are kept, with the reach of their windows; sentences of one are left out."""
    chosen = []
    for sentence in sentences:
        kept = []
        for word in sentence:
            if word < FIRST_WORD:
                continue
            number = next(numbers)
            if number >> 32 <= int(keep[word]):
                kept.append((word, 1 + ((number & _HALF) * window >> 32) if shrink else window))
        if len(kept) > 1:
            chosen.append(kept)
    return chosen


def slow_draw(alias: Any, number: int) -> int:
    """The word that a random number stands for."""
    word = (number >> 32) * len(alias) >> 32
    return word if (number & _HALF) < int(alias[word, 0]) else int(alias[word, 1])


def slow_noise(words: Sequence[int], negatives: int, alias: Any, pool: Any, numbers: Iterator[int]) -> list[list[int]]:
    """Each word with its noise words, all different; those that are not found in twenty tries are missing."""
    found = []
    for word in words:
        targets = [word]
        for _ in range(negatives):
            for number in itertools.islice(numbers, 20):
                noise = int(pool[(number >> 32) * len(pool) >> 32]) if len(pool) else slow_draw(alias, number)
                if noise not in targets:
                    targets.append(noise)
                    break
        found.append(targets)
    return found


def huffman_lengths(counts: Sequence[int]) -> list[int]:
    """The lengths of Huffman codes by the textbook's heap."""
    lengths = [0] * len(counts)
    heap = [(count, number, [number]) for number, count in enumerate(counts)]
    heapq.heapify(heap)
    for number in range(len(counts), 2 * len(counts) - 1):
        (one, _, left), (two, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        for leaf in left + right:
            lengths[leaf] += 1
        heapq.heappush(heap, (one + two, number, left + right))
    return lengths


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-np.asarray(x, dtype=np.float64)))


def slow_move(inputs: Matrix, rows: Any, outputs: Matrix, targets: Any, steps: Matrix) -> None:
    """Moves rows towards each other in tiles of two input rows and three target rows, or one where that is too many."""
    i = 0
    while i < len(rows):
        tall = 2 if i + 2 <= len(rows) and rows[i] != rows[i + 1] else 1
        j = 0
        while j < len(targets):
            wide = 3 if j + 3 <= len(targets) else 1
            a, b, weights = rows[i : i + tall], targets[j : j + wide], steps[i : i + tall, j : j + wide]
            old_inputs, old_outputs = inputs[a], outputs[b]
            inputs[a] = old_inputs + weights @ old_outputs
            outputs[b] = old_outputs + weights.T @ old_inputs
            j += wide
        i += tall


def slow_learn(
    inputs: Matrix, rows: Any, outputs: Matrix, targets: Any, labels: Any, shifts: Any, rate: float
) -> float:
    """One step of logistic regression between all input rows and all targets; the loss before it."""
    scores = inputs[rows] @ outputs[targets].T - shifts
    answers, wanted = sigmoid(scores), np.asarray(labels, dtype=np.float64)
    loss = -np.log(np.where(wanted > 0, answers, 1 - answers)).sum()
    slow_move(inputs, rows, outputs, targets, rate * (wanted - answers))
    return float(loss)


def slow_softmax(inputs: Matrix, row: int, outputs: Matrix, targets: Any, answer: int, rate: float) -> float:
    """One step of softmax regression from a row to all words; -log p(answer) before it."""
    scores = outputs[targets] @ inputs[row]
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    wanted = (np.asarray(targets) == answer).astype(np.float64)
    slow_move(inputs, np.array([row]), outputs, targets, rate * (wanted - chances)[None])
    return float(-np.log(chances @ wanted))


class Window(NamedTuple):
    """A word in the middle and those around it, as places in a block."""

    middle: int
    around: list[int]


def windows_of(content: Any) -> list[list[Window]]:
    """The windows of each piece of a planned block."""
    found = []
    for begin, end in itertools.pairwise(content.bounds[: content.pieces + 1].tolist()):
        found.append([_window(place, int(content.reach[place]), begin, end) for place in range(begin, end)])
    return found


def _window(place: int, reach: int, begin: int, end: int) -> Window:
    return Window(place, [p for p in range(max(begin, place - reach), min(end, place + reach + 1)) if p != place])


def parts_of(content: Any, place: int) -> npt.NDArray[np.int64]:
    """The rows of the input table that the word at a place of a block is the mean of."""
    if not content.starts.size:
        return np.array([content.words[place]], dtype=np.int64)
    return np.asarray(content.parts[content.starts[place] : content.starts[place + 1]], dtype=np.int64)


def slow_block(recipe: Any, content: Any, inputs: Matrix, outputs: Matrix, rate: float) -> tuple[float, int]:
    """Learns from a planned block; the sum of the losses and the number of examples.

    Without subwords a word is its row, and all windows see what the ones before have changed. With subwords the words
    of a piece are put together first, and what they have changed goes to their rows after the last window.
    """
    loss, examples = 0.0, 0
    for windows in windows_of(content):
        places = [window.middle for window in windows]
        if recipe.subwords:
            vectors = np.stack([inputs[parts_of(content, place)].mean(axis=0) for place in places])
            row_of = {place: row for row, place in enumerate(places)}
            before = vectors.copy()
        else:
            vectors, row_of = inputs, {place: int(content.words[place]) for place in places}
        for window in windows:
            rows = np.array([row_of[place] for place in window.around])
            loss += _slow_window(recipe, content, window.middle, vectors, rows, outputs, rate)
            examples += 1 if recipe.architecture == "cbow" else len(rows)
        if recipe.subwords:
            for place in places:
                np.add.at(inputs, parts_of(content, place), vectors[row_of[place]] - before[row_of[place]])
    return loss, examples


def _slow_window(
    recipe: Any, content: Any, middle: int, vectors: Matrix, rows: Any, outputs: Matrix, rate: float
) -> float:
    if recipe.architecture == "cbow":
        mean = vectors[rows].mean(axis=0, keepdims=True)
        before = mean.copy()
        loss = _slow_step(recipe, content, middle, mean, np.zeros(1, dtype=np.int64), outputs, rate)
        np.add.at(vectors, rows, mean[0] - before[0])
        return loss
    return _slow_step(recipe, content, middle, vectors, rows, outputs, rate)


def _slow_step(
    recipe: Any, content: Any, middle: int, vectors: Matrix, rows: Any, outputs: Matrix, rate: float
) -> float:
    if recipe.loss == "softmax":
        everything = np.arange(FIRST_WORD, len(outputs))
        answer = int(content.labels[middle])
        return sum(slow_softmax(vectors, row, outputs, everything, answer, rate) for row in rows)
    mine = slice(content.marks[middle], content.marks[middle + 1])
    shifts = content.shifts[mine].astype(np.float64) if content.shifts.size else 0.0
    return slow_learn(vectors, rows, outputs, content.targets[mine], content.labels[mine], shifts, rate)
