"""Plain twins of the kernels of paragraph vectors, and small recipes and texts for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from firth.vectors.paragraph import Pieces, Steps, output_dimension
from firth.vectors.recipe import ParagraphRecipe
from firth.vectors.tables import Table, from_matrix
from firth.vectors.text import FIRST_WORD
from tests.vectors.word_groups import WORDS

SMALL = ParagraphRecipe(
    tokenizer=WORDS, dimension=5, window=2, epochs=3, negatives=3, learning_rate=0.05, subsample=0.02
)
SHAPES = {
    "dbow": replace(SMALL, architecture="dbow"),
    "mean": SMALL,
    "concat": replace(SMALL, combine="concat"),
}
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(number: int) -> int:
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def slow_plan(steps: Steps, texts: list[list[int]], states: list[int], pool: list[int]) -> tuple[Any, Any, Any]:
    """The words that are kept of each text, the reach of each, and the targets of each."""
    words, reach, targets = [], [], []
    for text, state in zip(texts, states, strict=True):
        kept = []
        for word in text:
            if word >= FIRST_WORD:
                state = (state + GOLDEN) & MASK
                number = mixed(state)
                if number >> 32 <= steps.keep[word]:
                    kept.append(word)
                    wide = 1 + (((number & 0xFFFFFFFF) * steps.recipe.window) >> 32)
                    reach.append(wide if steps.recipe.combine == "mean" else steps.recipe.window)
        for word in kept:
            noise = []
            for _ in range(steps.draws):
                state = (state + GOLDEN) & MASK
                noise.append(pool[((mixed(state) >> 32) * len(pool)) >> 32])
            targets.append([word, *noise])
        words.append(kept)
    return words, reach, targets


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def slow_loss(h: Any, outputs: Any, targets: Any) -> float:
    """The objective of the module's first lines, for one word."""
    word, *noise = targets
    return float(-np.log(sigmoid(outputs[word] @ h)) - np.log(sigmoid(-outputs[noise] @ h)).sum())


def slow_step(h: Any, outputs: Any, targets: list[int], rate: float) -> Any:
    """How h changes in a step; outputs change too."""
    steps = rate * (np.eye(len(targets))[0] - sigmoid(outputs[targets] @ h))
    change = steps @ outputs[targets]
    np.add.at(outputs, targets, steps[:, None] * h)
    return change


def around(words: list[int], index: int, reach: int) -> list[tuple[int, int]]:
    """The words around one, each with its distance."""
    span = range(max(0, index - reach), min(len(words), index + reach + 1))
    return [(other - index, words[other]) for other in span if other != index]


def slow_learn(steps: Steps, planned: Any, tables: list[Any], pieces: Pieces, rate: float) -> float:
    """Learns as the kernels do; returns the loss."""
    documents, outputs, *inputs = tables
    words, reach, targets = planned
    size, window, loss = documents.shape[1], steps.recipe.window, 0.0
    each, reaches = iter(targets), iter(reach)
    for owner, share, kept in zip(pieces.owners, pieces.shares, words, strict=True):
        row = documents[owner].copy()
        for index in range(len(kept)):
            some = next(each)
            if not inputs:
                loss += slow_loss(row, outputs, some)
                row += slow_step(row, outputs, some, rate)
                continue
            near = around(kept, index, next(reaches))
            if steps.recipe.combine == "mean":
                h = np.mean([row, *(inputs[0][word] for _, word in near)], axis=0)
            else:
                h = np.zeros(size * (2 * window + 1))
                h[:size] = row
                for distance, word in near:
                    slot = window + distance + (distance < 0)
                    h[slot * size : (slot + 1) * size] = inputs[0][word]
            loss += slow_loss(h, outputs, some)
            change = slow_step(h, outputs, some, rate)
            row += change[:size]
            for distance, word in near:
                slot = 0 if steps.recipe.combine == "mean" else window + distance + (distance < 0)
                inputs[0][word] += change[slot * size : (slot + 1) * size]
        documents[owner] += share * (row - documents[owner])
    return loss


def example(shape: str) -> tuple[Steps, list[list[int]], Pieces, list[int], list[int], list[Table]]:
    """Some texts with repeated, special and left-out words, how they are planned, and tables full of numbers."""
    rng = np.random.default_rng(5)
    size, recipe = 12, SHAPES[shape]
    counts = np.concatenate([np.zeros(FIRST_WORD, dtype=np.int64), np.arange(1, size - FIRST_WORD + 1) * 10])
    steps = Steps(replace(recipe, subsample=0.1), counts)
    texts = [rng.integers(0, size, size=length).tolist() for length in (7, 0, 1, 25)]
    pool = steps.pool(16, np.uint64(9)).tolist()
    states = [int(state) for state in rng.integers(0, 1 << 63, size=len(texts))]
    ids = np.array([word for text in texts for word in text], dtype=np.uint32)
    bounds = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    pieces = steps.plan(
        ids, bounds, np.array(states, dtype=np.uint64), np.array(pool, dtype=np.int32),
        np.array([2, 0, 1, 3], dtype=np.int32), np.array([1, 1, 1, 0.5], dtype=np.float32),
    )  # fmt: skip
    wide = output_dimension(recipe)
    widths = (recipe.dimension, wide) if shape == "dbow" else (recipe.dimension, wide, recipe.dimension)
    tables = [from_matrix(rng.normal(size=(size, width), scale=0.5).astype(np.float32)) for width in widths]
    return steps, texts, pieces, states, pool, tables
