"""NumPy references of the kernels of paragraph vectors, and small recipes and texts for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.paragraph import ParagraphUpdater, Segments, output_dimension
from firth.vectors.recipe import ParagraphRecipe
from firth.vectors.tables import EmbeddingTable, table_from_matrix
from tests.vectors.word_groups import WORDS

SMALL = ParagraphRecipe(tokenizer=WORDS, dimension=5, window=2, epochs=3, negatives=3, lr=0.05, subsample=0.02)
SHAPES = {
    "dbow": replace(SMALL, architecture="dbow"),
    "mean": SMALL,
    "concat": replace(SMALL, combine="concat"),
}
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(number: int) -> int:
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def slow_plan(
    updater: ParagraphUpdater, texts: list[list[int]], states: list[int], pool: list[int]
) -> tuple[Any, Any, Any]:
    """The kept words of each text, their window sizes, and their targets."""
    words, window_sizes, targets = [], [], []
    for text, state in zip(texts, states, strict=True):
        kept = []
        for word in text:
            if word >= FIRST_WORD:
                state = (state + GOLDEN) & MASK
                number = splitmix64(state)
                if number >> 32 <= updater.keep[word]:
                    kept.append(word)
                    wide = 1 + (((number & 0xFFFFFFFF) * updater.recipe.window) >> 32)
                    window_sizes.append(wide if updater.recipe.combine == "mean" else updater.recipe.window)
        for word in kept:
            noise = []
            for _ in range(updater.negatives):
                state = (state + GOLDEN) & MASK
                noise.append(pool[((splitmix64(state) >> 32) * len(pool)) >> 32])
            targets.append([word, *noise])
        words.append(kept)
    return words, window_sizes, targets


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def slow_loss(h: Any, outputs: Any, targets: Any) -> float:
    """The objective of the module's first lines, for one word."""
    word, *noise = targets
    return float(-np.log(sigmoid(outputs[word] @ h)) - np.log(sigmoid(-outputs[noise] @ h)).sum())


def slow_step(h: Any, outputs: Any, targets: list[int], lr: float) -> Any:
    """How h changes in a step; outputs change too."""
    updater = lr * (np.eye(len(targets))[0] - sigmoid(outputs[targets] @ h))
    change = updater @ outputs[targets]
    np.add.at(outputs, targets, updater[:, None] * h)
    return change


def around(words: list[int], index: int, window_sizes: int) -> list[tuple[int, int]]:
    """The words around one, each with its distance."""
    span = range(max(0, index - window_sizes), min(len(words), index + window_sizes + 1))
    return [(other - index, words[other]) for other in span if other != index]


def slow_train(updater: ParagraphUpdater, planned: Any, tables: list[Any], segments: Segments, lr: float) -> float:
    """Trains as the kernels do; returns the loss."""
    documents, outputs, *inputs = tables
    words, window_sizes, targets = planned
    size, window, loss = documents.shape[1], updater.recipe.window, 0.0
    each, reaches = iter(targets), iter(window_sizes)
    for document, weight, kept in zip(segments.documents_of, segments.weights, words, strict=True):
        row = documents[document].copy()
        for index in range(len(kept)):
            some = next(each)
            if not inputs:
                loss += slow_loss(row, outputs, some)
                row += slow_step(row, outputs, some, lr)
                continue
            near = around(kept, index, next(reaches))
            if updater.recipe.combine == "mean":
                h = np.mean([row, *(inputs[0][word] for _, word in near)], axis=0)
            else:
                h = np.zeros(size * (2 * window + 1))
                h[:size] = row
                for distance, word in near:
                    slot = window + distance + (distance < 0)
                    h[slot * size : (slot + 1) * size] = inputs[0][word]
            loss += slow_loss(h, outputs, some)
            change = slow_step(h, outputs, some, lr)
            row += change[:size]
            for distance, word in near:
                slot = 0 if updater.recipe.combine == "mean" else window + distance + (distance < 0)
                inputs[0][word] += change[slot * size : (slot + 1) * size]
        documents[document] += weight * (row - documents[document])
    return loss


def example(
    shape: str,
) -> tuple[ParagraphUpdater, list[list[int]], Segments, list[int], list[int], list[EmbeddingTable]]:
    """Some texts with repeated, special and subsampled words, their plan, and random tables."""
    rng = np.random.default_rng(5)
    size, recipe = 12, SHAPES[shape]
    counts = np.concatenate([np.zeros(FIRST_WORD, dtype=np.int64), np.arange(1, size - FIRST_WORD + 1) * 10])
    updater = ParagraphUpdater(replace(recipe, subsample=0.1), counts)
    texts = [rng.integers(0, size, size=length).tolist() for length in (7, 0, 1, 25)]
    pool = updater.pool(16, np.uint64(9)).tolist()
    states = [int(state) for state in rng.integers(0, 1 << 63, size=len(texts))]
    ids = np.array([word for text in texts for word in text], dtype=np.uint32)
    bounds = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    segments = updater.plan(
        ids, bounds, np.array(states, dtype=np.uint64), np.array(pool, dtype=np.int32),
        np.array([2, 0, 1, 3], dtype=np.int32), np.array([1, 1, 1, 0.5], dtype=np.float32),
    )  # fmt: skip
    wide = output_dimension(recipe)
    widths = (recipe.dimension, wide) if shape == "dbow" else (recipe.dimension, wide, recipe.dimension)
    tables = [table_from_matrix(rng.normal(size=(size, width), scale=0.5).astype(np.float32)) for width in widths]
    return updater, texts, segments, states, pool, tables
