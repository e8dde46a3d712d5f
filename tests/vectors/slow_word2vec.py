"""Skip-gram and continuous bag of words in plain Python and NumPy: references of the kernels."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.tokens.tokenizer import FIRST_WORD

Matrix = npt.NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_BITS = 2**64 - 1
_HALF = 2**32 - 1


def slow_splitmix64(number: int) -> int:
    """The output of splitmix64 for a counter."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _BITS
    return number ^ (number >> 31)


def slow_block_seed(seed: int, epoch: int, block: int) -> int:
    """The random state at the start of a block."""
    state = slow_splitmix64((seed + _GOLDEN) & _BITS)
    state = slow_splitmix64(state ^ ((epoch + _GOLDEN) & _BITS))
    return slow_splitmix64(state ^ ((block * _GOLDEN) & _BITS))


def slow_numbers(state: int) -> Iterator[int]:
    """Random numbers of 64 bits."""
    while True:
        state = (state + _GOLDEN) & _BITS
        yield slow_splitmix64(state)


def slow_subsample(
    sentences: Sequence[Sequence[int]], keep: Any, window: int, dynamic_window: bool, numbers: Iterator[int]
) -> list[list[tuple[int, int]]]:
    """The kept words of each sentence with their window sizes; sentences of one word are dropped."""
    chosen = []
    for sentence in sentences:
        kept = []
        for word in sentence:
            if word < FIRST_WORD:
                continue
            number = next(numbers)
            if number >> 32 <= int(keep[word]):
                kept.append((word, 1 + ((number & _HALF) * window >> 32) if dynamic_window else window))
        if len(kept) > 1:
            chosen.append(kept)
    return chosen


def slow_draw(alias: Any, number: int) -> int:
    """The word drawn by a random number."""
    word = (number >> 32) * len(alias) >> 32
    return word if (number & _HALF) < int(alias[word, 0]) else int(alias[word, 1])


def slow_negatives(
    words: Sequence[int], negatives: int, alias: Any, pool: Any, numbers: Iterator[int]
) -> list[list[int]]:
    """Each word with its distinct negatives; fewer if twenty draws find no new one."""
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


def slow_update(inputs: Matrix, rows: Any, outputs: Matrix, targets: Any, steps: Matrix) -> None:
    """Updates rows in tiles of two input rows and three target rows, or one where there are fewer."""
    i = 0
    while i < len(rows):
        num_rows = 2 if i + 2 <= len(rows) and rows[i] != rows[i + 1] else 1
        j = 0
        while j < len(targets):
            num_targets = 3 if j + 3 <= len(targets) else 1
            a, b, weights = (
                rows[i : i + num_rows],
                targets[j : j + num_targets],
                steps[i : i + num_rows, j : j + num_targets],
            )
            old_inputs, old_outputs = inputs[a], outputs[b]
            inputs[a] = old_inputs + weights @ old_outputs
            outputs[b] = old_outputs + weights.T @ old_inputs
            j += num_targets
        i += num_rows


def slow_sgd_step(
    inputs: Matrix, rows: Any, outputs: Matrix, targets: Any, labels: Any, offsets: Any, lr: float
) -> float:
    """One step of logistic regression between all input rows and all targets; the loss before it."""
    scores = inputs[rows] @ outputs[targets].T - offsets
    predicted, labels_float = sigmoid(scores), np.asarray(labels, dtype=np.float64)
    loss = -np.log(np.where(labels_float > 0, predicted, 1 - predicted)).sum()
    slow_update(inputs, rows, outputs, targets, lr * (labels_float - predicted))
    return float(loss)


def slow_softmax(inputs: Matrix, row: int, outputs: Matrix, targets: Any, label: int, lr: float) -> float:
    """One step of softmax regression from a row to all words; -log p(answer) before it."""
    scores = outputs[targets] @ inputs[row]
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    labels_float = (np.asarray(targets) == label).astype(np.float64)
    slow_update(inputs, np.array([row]), outputs, targets, lr * (labels_float - probabilities)[None])
    return float(-np.log(probabilities @ labels_float))


class Window(NamedTuple):
    """A centre word and its context words, as positions in a block."""

    middle: int
    around: list[int]


def windows_of(content: Any) -> list[list[Window]]:
    """The windows of each segment of a planned block."""
    found = []
    for begin, end in itertools.pairwise(content.bounds[: content.segments + 1].tolist()):
        found.append(
            [_window(position, int(content.window_sizes[position]), begin, end) for position in range(begin, end)]
        )
    return found


def _window(position: int, window_size: int, begin: int, end: int) -> Window:
    return Window(
        position,
        [p for p in range(max(begin, position - window_size), min(end, position + window_size + 1)) if p != position],
    )


def subwords_of(content: Any, position: int) -> npt.NDArray[np.int64]:
    """The input rows that the word at a position of a block is the mean of."""
    if not content.starts.size:
        return np.array([content.words[position]], dtype=np.int64)
    return np.asarray(content.subwords[content.starts[position] : content.starts[position + 1]], dtype=np.int64)


def slow_block(recipe: Any, content: Any, inputs: Matrix, outputs: Matrix, lr: float) -> tuple[float, int]:
    """Trains on a planned block; the summed loss and the number of examples.

    Without subwords a word is its row, and windows use the updates of earlier ones. With subwords the words of a
    segment are composed first, and their changes are added to their rows after the last window.
    """
    loss, examples = 0.0, 0
    for windows in windows_of(content):
        positions = [window.middle for window in windows]
        if recipe.has_subwords:
            vectors = np.stack([inputs[subwords_of(content, position)].mean(axis=0) for position in positions])
            row_of = {position: row for row, position in enumerate(positions)}
            before = vectors.copy()
        else:
            vectors, row_of = inputs, {position: int(content.words[position]) for position in positions}
        for window in windows:
            rows = np.array([row_of[position] for position in window.around])
            loss += _slow_window(recipe, content, window.middle, vectors, rows, outputs, lr)
            examples += 1 if recipe.architecture == "cbow" else len(rows)
        if recipe.has_subwords:
            for position in positions:
                np.add.at(inputs, subwords_of(content, position), vectors[row_of[position]] - before[row_of[position]])
    return loss, examples


def _slow_window(
    recipe: Any, content: Any, middle: int, vectors: Matrix, rows: Any, outputs: Matrix, lr: float
) -> float:
    if recipe.architecture == "cbow":
        mean = vectors[rows].mean(axis=0, keepdims=True)
        before = mean.copy()
        loss = _slow_step(recipe, content, middle, mean, np.zeros(1, dtype=np.int64), outputs, lr)
        np.add.at(vectors, rows, mean[0] - before[0])
        return loss
    return _slow_step(recipe, content, middle, vectors, rows, outputs, lr)


def _slow_step(recipe: Any, content: Any, middle: int, vectors: Matrix, rows: Any, outputs: Matrix, lr: float) -> float:
    if recipe.loss == "softmax":
        everything = np.arange(FIRST_WORD, len(outputs))
        label = int(content.predicted[middle])
        return sum(slow_softmax(vectors, row, outputs, everything, label, lr) for row in rows)
    own = slice(content.target_starts[middle], content.target_starts[middle + 1])
    offsets = content.offsets[own].astype(np.float64) if content.offsets.size else 0.0
    return slow_sgd_step(vectors, rows, outputs, content.targets[own], content.labels[own], offsets, lr)
