"""Skip-gram and continuous bag of words (Mikolov et al. 2013), with or without character n-grams."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import RecipeError
from firth.progress import note
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _word2vec_kernels as kernels
from firth.vectors._step_kernels import block_seed, fill_noise_pool
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.loop import DEFAULT_EPOCHS, REPLICAS, BlockPlan, auto_epochs, block_size, train_blocks
from firth.vectors.model import VectorModel
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.sampling import (
    HuffmanCodes,
    alias_table,
    huffman_tree,
    keep_thresholds,
    kept_fraction,
    noise_distribution,
)  # fmt: skip
from firth.vectors.subwords import SubwordModel, ngram_buckets
from firth.vectors.tables import EmbeddingTable, random_table, zero_table
from firth.vectors.text import TrainingText

_MAX_STEP = 0.5  # measured: from about 1.2 on the loss rises, from 0.7 on it fluctuates
_MAX_SEGMENT = 1000  # words of a sentence trained together
_GRADIENT_SCALES = {"skipgram": 1.0, "cbow": 0.1}
"""Of output rows: a skip-gram window updates them for each context word, a CBOW window only once."""
_POOL = {"exact": 4096, "fast": 0}
"""Negative samples that a block draws from: few rows make exact mode fast; 0 means all words."""
_MAX_BUCKETS = 2_000_000
_MAX_SOFTMAX = 50_000  # vocabulary size up to which full softmax is feasible
_DEFAULT_LR = {"skipgram": 0.04, "cbow": 0.05}
_NEGATIVES = ((1_000_000, 15), (5_000_000, 10), (1_000_000_000, 5))
"""Maximum words of a text, and its negative samples: small texts need more, above the last two are enough."""


def resolve_defaults(recipe: Word2vecRecipe, words: int) -> Word2vecRecipe:
    """The recipe with epochs, negatives and lr resolved for a text of that many words.

    >>> resolved = resolve_defaults(Word2vecRecipe(), 2_000_000)
    >>> resolved.epochs, resolved.negatives
    (5, 10)
    """
    if recipe.epochs == "auto":
        recipe = replace(recipe, epochs=auto_epochs(words))
    if recipe.negatives == "auto":
        recipe = replace(recipe, negatives=next((k for most, k in _NEGATIVES if words <= most), 2))
    if recipe.lr == "auto":
        recipe = replace(recipe, lr=_DEFAULT_LR[recipe.architecture])
    return recipe


def resolve_buckets(recipe: Word2vecRecipe, words: Sequence[str]) -> Word2vecRecipe:
    """The recipe with buckets for twice the number of distinct character n-grams, at most two million."""
    if recipe.buckets != "auto":
        return recipe
    if not recipe.has_subwords:
        return replace(recipe, buckets=0)
    _, rows = ngram_buckets(words, recipe.min_n, recipe.max_n, _MAX_BUCKETS)
    distinct = int(np.unique(rows).size)
    return replace(recipe, buckets=min(_MAX_BUCKETS, 1000 * (1 + 2 * distinct // 1000)))


def train_word2vec(recipe: Word2vecRecipe, job: VectorJob) -> VectorResult:
    """Word vectors of a text."""
    text = job.text
    text.require_words(max(2, recipe.window))
    if recipe.epochs == "auto" and not job.has_budget and (epochs := auto_epochs(text.total)) > DEFAULT_EPOCHS:
        note(f"chosen: {epochs} epochs for {text.total:,} words of text")
    recipe = resolve_buckets(resolve_defaults(recipe, text.total), text.words[FIRST_WORD:])
    if recipe.loss == "softmax" and len(text.words) > _MAX_SOFTMAX:
        raise RecipeError(
            f"loss=softmax computes the scores of all {len(text.words):,} words for each: set loss=negative, "
            f"or tokenizer.vocab_size to {_MAX_SOFTMAX} or less."
        )
    trainer = Word2vecTrainer(recipe, text, job.seed, job.start)
    run = train_blocks(trainer, recipe, float(recipe.lr), job)
    return run.result(trainer.model(recipe, job))


def sample_targets(
    words: npt.NDArray[np.int32], tree: HuffmanCodes | None, negatives: int, alias: npt.NDArray[np.uint32],
    pool: npt.NDArray[np.int32], log_noise: npt.NDArray[np.float32], state: np.uint64,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The bounds of the targets of each word, the targets, their labels, and the offsets of their scores.

    Targets are the nodes of a Huffman tree, or a word and its negative samples from the pool or, if that is empty, the
    alias table. There are offsets if there is `log_noise`.
    """
    target_starts = np.zeros(words.size + 1, dtype=np.int64)
    size = words.size * (negatives + 1) if tree is None else int(np.sum(np.diff(tree.starts)[words]))
    targets, labels = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.uint8)
    offsets = np.empty(size if log_noise.size else 0, dtype=np.float32)
    if tree is not None:
        kernels.huffman_targets(words, words.size, *tree, target_starts, targets, labels)
        return target_starts, targets, labels, offsets
    used = kernels.draw_negatives(
        words, words.size, negatives, alias, pool, log_noise, state, target_starts, targets, labels, offsets
    )
    return target_starts, targets[:used], labels[:used], offsets


_Word2vecBlock = namedtuple(
    "_Word2vecBlock",
    "words starts subwords bounds segments window_sizes target_starts targets labels offsets predicted",
)  # `starts` are the bounds of each word's `subwords`, `predicted` the centre words of full softmax


class Word2vecTrainer:
    """A `BlockTrainer` of word vectors."""

    max_step = _MAX_STEP

    def __init__(self, recipe: Word2vecRecipe, text: TrainingText, seed: int, start: VectorModel | None = None) -> None:
        assert isinstance(recipe.negatives, int)
        assert isinstance(recipe.buckets, int)
        self.recipe, self.text, self.seed = recipe, text, seed
        self.negatives, self.buckets = recipe.negatives, recipe.buckets
        self.blocks, self.segments = text.split_blocks(block_size(recipe.mode, len(text.ids)), _MAX_SEGMENT)
        self.num_blocks = len(self.blocks) - 1
        self.num_words = len(text.ids)
        self.counts = text.counts.copy()
        if start is not None and start.counts is not None:
            self.counts[: start.counts.size] += start.counts
        self.keep = keep_thresholds(self.counts, recipe.subsample, recipe.subsample_rule)
        noise = noise_distribution(self.counts, recipe.ns_exponent)
        self.alias = alias_table(noise)
        with np.errstate(divide="ignore"):
            # Scores are initially near 0; with the vocabulary size as normaliser that is the uniform distribution.
            self.log_noise = np.log(self.negatives * noise * np.count_nonzero(noise)).astype(np.float32)
        self.tree = huffman_tree(self.counts) if recipe.loss == "hierarchical" else None
        self.subwords = self._subwords()
        self.inputs, self.outputs = self._tables()
        self.tables: Sequence[EmbeddingTable] = (self.inputs, self.outputs)
        if start is not None:
            self._copy_weights(start)

    def _subwords(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
        """The bounds and rows of the subwords of each word: its own row and those of its character n-grams."""
        recipe, words = self.recipe, self.text.words
        if not recipe.has_subwords:
            return None
        spelt = [*[""] * FIRST_WORD, *words[FIRST_WORD:]]
        starts, buckets = ngram_buckets(spelt, recipe.min_n, recipe.max_n, self.buckets)
        own = np.arange(len(words), dtype=np.int32)
        rows = np.insert(buckets + np.int32(len(words)), starts[:-1], own).astype(np.int32)
        return starts + np.arange(starts.size), rows

    def _tables(self) -> tuple[EmbeddingTable, EmbeddingTable]:
        size, recipe = len(self.text.words), self.recipe
        rows = size + self.buckets
        max_words = int(np.diff(self.segments[self.blocks]).max())
        max_subwords = int(np.diff(self.subwords[0]).max()) if self.subwords else 1
        replicas = REPLICAS if recipe.mode == "exact" else 0
        spare = replicas * min(rows, max_words * max_subwords)
        inputs = random_table(rows, recipe.dimension, self.seed, FIRST_WORD, spare)
        outputs = zero_table(size, recipe.dimension, replicas * size)
        return inputs, replace(outputs, gradient_scale=_GRADIENT_SCALES[recipe.architecture])

    def _copy_weights(self, model: VectorModel) -> None:
        """Copies the weights of a model; new words keep their random initialisation."""
        known, size = len(model.words), len(self.text.words)
        inputs = self.inputs.matrix()
        inputs[:known] = model.own if isinstance(model, SubwordModel) else model.vectors
        if isinstance(model, SubwordModel):
            inputs[size:] = model.ngrams
        if model.outputs is not None and self.tree is None:  # a new tree has other nodes
            self.outputs.matrix()[:known] = model.outputs

    @property
    def flops_per_word(self) -> float:
        """Approximate floating-point operations for a word of text: three products of each pair and target."""
        pairs = self.recipe.window + 1 if self.recipe.architecture == "skipgram" else 1
        targets = self.tree.nodes.size / len(self.text.words) if self.tree else self.negatives + 1
        targets = len(self.text.words) if self.recipe.loss == "softmax" else targets
        return 6.0 * kept_fraction(self.text.counts, self.keep) * pairs * targets * self.recipe.dimension

    def plan(self, epoch: int, block: int) -> BlockPlan:
        """The kept words of a block, their windows and targets."""
        begin, end = self.blocks[block], self.blocks[block + 1]
        ids = np.asarray(self.text.ids[self.segments[begin] : self.segments[end]], dtype=np.uint32)
        words, window_sizes = np.empty((2, ids.size), dtype=np.int32)
        bounds = np.empty(end - begin + 1, dtype=np.int64)
        recipe = self.recipe
        segments, state = kernels.subsample_words(
            ids, self.segments, begin, end, self.keep, recipe.window, recipe.dynamic_window,
            np.uint64(block_seed(self.seed, epoch, block)), words, bounds, window_sizes,
        )  # fmt: skip
        words = words[: int(bounds[segments])]
        targets = self._targets(words, np.uint64(state))
        starts, subwords = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        if self.subwords is not None:
            starts, subwords = kernels.list_subwords(words, *self.subwords)
        predicted = words.copy() if recipe.loss == "softmax" else words[:0]  # exact mode overwrites `words`
        content = _Word2vecBlock(words, starts, subwords, bounds, segments, window_sizes, *targets, predicted)
        return BlockPlan(((0, subwords if recipe.has_subwords else words), (1, targets[1])), content)

    def _targets(self, words: npt.NDArray[np.int32], state: np.uint64) -> tuple[Any, Any, Any, Any]:
        none = np.empty(0, dtype=np.float32)
        if self.recipe.loss == "softmax":  # every word is a target of every other
            vocabulary = np.arange(len(self.text.words), dtype=np.int32)
            return np.zeros(words.size + 1, dtype=np.int64), vocabulary, np.empty(0, dtype=np.uint8), none
        pool = np.empty(_POOL[self.recipe.mode], dtype=np.int32)
        if self.tree is None:
            state = np.uint64(fill_noise_pool(self.alias, pool, state))
        offsets = self.log_noise if self.recipe.loss == "nce" else none
        return sample_targets(words, self.tree, self.negatives, self.alias, pool, offsets, state)

    def train_block(self, plan: BlockPlan, lr: float) -> tuple[float, int]:
        recipe, block = self.recipe, plan.content
        words = (block.subwords, block.starts) if recipe.has_subwords else (block.words,)
        train: Any = kernels.train_subwords if recipe.has_subwords else kernels.train_windows
        loss, examples = train(
            recipe.window, *words, *block[3:], self.inputs.flat, self.outputs.flat, self.inputs.stride,
            self.inputs.width, np.float32(lr), recipe.architecture == "cbow",
        )  # fmt: skip
        return float(loss), int(examples)

    def model(self, recipe: Word2vecRecipe, job: VectorJob) -> VectorModel:
        """The trained model; it takes over the memory of the tables."""
        size, rows = len(self.text.words), self.inputs.compact()
        others: Any = {"counts": self.counts, "outputs": self.outputs.compact(), "phrases": job.phrases}
        if recipe.has_subwords:
            own, ngrams = rows[:size], rows[size:]
            return SubwordModel.of(recipe, job.tokenizer, job.layout, own=own, ngrams=ngrams, **others)
        return VectorModel(recipe, job.tokenizer, job.layout, rows, **others)
