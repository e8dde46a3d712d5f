"""fastText classifier (Joulin et al. 2017): a linear classifier over the mean of word and n-gram vectors."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError, RecipeError
from firth.tokens.tokenizer import EOS, FIRST_WORD
from firth.vectors import _classifier_kernels as kernels
from firth.vectors._step_kernels import block_seed
from firth.vectors.classifier_model import (
    ClassifierFeatures,
    ClassifierModel,
    fasttext_words,
    label_tree,
    list_rows,
    rows_of_buckets,
    vocabulary_features,
    word_hashes,
)  # fmt: skip
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.loop import BlockPlan, SgdTrainer, train_blocks
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.sampling import alias_table, noise_distribution
from firth.vectors.subwords import ngram_buckets
from firth.vectors.tables import EmbeddingTable, random_table, zero_table
from firth.vectors.text import TrainingText
from firth.vectors.word2vec import sample_targets

_BLOCK_WORDS = 2000
_PREFETCHED = 8  # blocks planned in advance
_DEFAULT_LR = 0.5
_NEGATIVES = 5
_NS_EXPONENT = 0.5  # of the label distribution that negatives are drawn from
_MAX_BUCKETS = 2_000_000
_BUCKETS_PER_NGRAM = 32  # so that few collide
_CHUNK = 1 << 14  # texts hashed at once


def train_classifier(recipe: ClassifierRecipe, job: VectorJob) -> VectorResult:
    """A text classifier; each document of the text has its label."""
    texts = len(job.text.documents) - 1
    if job.labels is None or len(job.labels) != texts or not job.names:
        raise RecipeError("a classifier is trained on labelled texts: give it a file with a label for each text.")
    if len(job.names) < 2:
        raise CorpusError(f"all texts have the label {job.names[0]!r}: a classifier needs two labels or more.")
    recipe = resolve_defaults(recipe, job.text)
    trainer = ClassifierTrainer(recipe, job.text, job.labels, len(job.names), job.seed)
    run = _run(trainer, recipe, job)
    metrics = {"ngrams": trainer.used.size, "labels": len(job.names), "texts": texts}
    return run.result(trainer.model(recipe, job), **metrics)


def _run(trainer: ClassifierTrainer, recipe: ClassifierRecipe, job: VectorJob) -> SgdTrainer:
    """Trains on all blocks that the budget allows.

    All texts update the same few label vectors, so that merging parallel blocks would overshoot: exact mode trains on
    one block after the other, while other threads plan the next ones.
    """
    assert isinstance(recipe.lr, float)
    if recipe.mode == "fast":
        return train_blocks(trainer, recipe, recipe.lr, job)
    with ThreadPoolExecutor(job.threads) as trainer.planners:
        return train_blocks(trainer, replace(recipe, mode="fast"), recipe.lr, replace(job, threads=1))


def resolve_defaults(recipe: ClassifierRecipe, text: TrainingText) -> ClassifierRecipe:
    """The recipe with lr and buckets resolved."""
    if recipe.lr == "auto":
        recipe = replace(recipe, lr=_DEFAULT_LR)
    if recipe.buckets != "auto":
        return recipe
    if recipe.word_ngrams == 1 and not recipe.max_n:
        return replace(recipe, buckets=0)
    distinct = int(np.count_nonzero(used_buckets(replace(recipe, buckets=_MAX_BUCKETS), text)))
    return replace(recipe, buckets=min(_MAX_BUCKETS, 1000 * (1 + _BUCKETS_PER_NGRAM * distinct // 1000)))


def used_buckets(recipe: ClassifierRecipe, text: TrainingText) -> npt.NDArray[np.bool_]:
    """Whether each bucket has an n-gram of the text."""
    assert isinstance(recipe.buckets, int)
    used = np.zeros(recipe.buckets, dtype=np.bool_)
    if recipe.max_n and used.size:
        _, rows = ngram_buckets(text.words[FIRST_WORD:], recipe.min_n, recipe.max_n, recipe.buckets)
        used[rows] = True
    if recipe.word_ngrams > 1 and used.size:
        hashes, buckets = word_hashes(fasttext_words(text.words)), np.arange(used.size, dtype=np.int32)
        no_subwords = ClassifierFeatures(np.zeros(hashes.size + 1, dtype=np.int64), buckets[:0], hashes)
        bounds = text_bounds(text)
        for begin in range(0, bounds.size - 1, _CHUNK):
            ids, chunk = gather(text, bounds, np.arange(begin, min(begin + _CHUNK, bounds.size - 1)))
            used[list_rows(ids, chunk, no_subwords, recipe.word_ngrams, buckets)[0]] = True
    return used


def text_bounds(text: TrainingText) -> npt.NDArray[np.int64]:
    """The token bounds of documents."""
    return np.asarray(text.sentences)[np.asarray(text.documents).astype(np.int64)].astype(np.int64)


def gather(
    text: TrainingText, bounds: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The concatenated ids of some documents, each with its end, and their bounds."""
    begins, ends = bounds[indices], bounds[indices + 1]
    bounds = np.concatenate([[0], np.cumsum(ends - begins + 1)])
    ids = np.empty(int(bounds[-1]), dtype=np.uint32)
    kernels.gather(text.ids, begins, ends, ids)
    return ids, bounds


@lru_cache(maxsize=2)
def _order(texts: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The shuffled order of texts in an epoch: files are often sorted by label."""
    return np.random.default_rng([seed, epoch]).permutation(texts)


_ClassifierBlock = namedtuple("_ClassifierBlock", "rows row_bounds labels target_starts targets is_positive")


class ClassifierTrainer:
    """A `BlockTrainer` of labelled texts, reshuffled each epoch."""

    max_step = math.inf

    def __init__(
        self, recipe: ClassifierRecipe, text: TrainingText, labels: npt.NDArray[np.int32], names: int, seed: int
    ) -> None:
        """`labels` has a row for each document, padded with -1; label indices are below `names`."""
        assert isinstance(recipe.buckets, int)
        self.recipe, self.text, self.seed = recipe, text, seed
        self.labels = labels.reshape(len(labels), -1)
        self.label_counts = np.bincount(self.labels[self.labels >= 0], minlength=names).astype(np.int64)
        self.bounds = text_bounds(text)
        self.texts = self.bounds.size - 1
        self.num_words = len(text.ids)
        self.texts_per_block = max(1, round(_BLOCK_WORDS * self.texts / max(self.num_words, 1)))
        self.num_blocks = -(-self.texts // self.texts_per_block)
        self.used = np.flatnonzero(used_buckets(recipe, text)).astype(np.int32)
        self.bucket_rows = rows_of_buckets(self.used, recipe.buckets, len(text.words))
        own = np.arange(len(text.words)) >= FIRST_WORD
        own[EOS] = True
        self.features = vocabulary_features(text.words, own, recipe, self.bucket_rows)
        self.tree = label_tree(self.label_counts) if recipe.loss == "hierarchical" else None
        self.alias = alias_table(noise_distribution(self.label_counts, _NS_EXPONENT))
        self.inputs, self.outputs = self._tables(names)
        self.tables: Sequence[EmbeddingTable] = (self.inputs, self.outputs)
        self.planners: ThreadPoolExecutor | None = None
        self._planned: dict[int, Future[BlockPlan]] = {}

    def _tables(self, names: int) -> tuple[EmbeddingTable, EmbeddingTable]:
        rows, dimension = len(self.text.words) + self.used.size, self.recipe.dimension
        inputs = random_table(rows, dimension, self.seed, EOS)
        inputs.matrix()[EOS + 1 : FIRST_WORD] = 0
        return inputs, zero_table(names, dimension)

    @property
    def flops_per_word(self) -> float:
        """Approximate floating-point operations for a word of text: sums of rows and products with labels."""
        subwords = self.features.subwords.size / len(self.text.words) + self.recipe.word_ngrams - 1
        targets = {"softmax": self.label_counts.size, "negative": _NEGATIVES + 1}.get(self.recipe.loss, 0)
        if self.tree is not None:
            targets = self.tree.nodes.size // self.label_counts.size + 1
        return float(self.recipe.dimension * (2 * subwords + 6 * targets * self.texts / max(self.num_words, 1)))

    def plan(self, epoch: int, block: int) -> BlockPlan:
        """The rows of the block's texts, and their targets; planners start with the next blocks."""
        if self.planners is None:
            return self._plan(epoch, block)
        number = epoch * self.num_blocks + block
        self._planned = {
            n: self._planned.get(n) or self.planners.submit(self._plan, *divmod(n, self.num_blocks))
            for n in range(number, number + _PREFETCHED)
        }
        return self._planned[number].result()

    def _plan(self, epoch: int, block: int) -> BlockPlan:
        texts = _order(self.texts, self.seed, epoch)[block * self.texts_per_block : (block + 1) * self.texts_per_block]
        ids, bounds = gather(self.text, self.bounds, texts)
        rows, row_bounds = list_rows(ids, bounds, self.features, self.recipe.word_ngrams, self.bucket_rows)
        labels = np.empty(texts.size, dtype=np.int32)
        kernels.draw_labels(self.labels, texts, self.seed, epoch, labels)
        state = np.uint64(block_seed(self.seed, epoch, self.texts + block))
        return BlockPlan((), _ClassifierBlock(rows, row_bounds, labels, *self._targets(labels, state)))

    def _targets(self, labels: npt.NDArray[np.int32], state: np.uint64) -> tuple[Any, Any, Any]:
        if self.recipe.loss == "softmax":  # all labels are targets of all texts
            targets = np.arange(self.label_counts.size, dtype=np.int32)
            return np.zeros(labels.size + 1, dtype=np.int64), targets, np.empty(0, dtype=np.uint8)
        pool, none = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        return sample_targets(labels, self.tree, _NEGATIVES, self.alias, pool, none, state)[:3]

    def train_block(self, plan: BlockPlan, lr: float) -> tuple[float, int]:
        train: Any = kernels.train_texts
        loss, examples = train(
            *plan.content, self.recipe.loss == "softmax", self.inputs.flat, self.outputs.flat, self.inputs.stride,
            self.inputs.width, np.float32(lr),
        )  # fmt: skip
        return float(loss), int(examples)

    def model(self, recipe: ClassifierRecipe, job: VectorJob) -> ClassifierModel:
        """The trained model; it takes over the memory of the tables."""
        model: ClassifierModel = job.build(
            ClassifierModel, recipe, self.inputs.compact(), outputs=self.outputs.compact(), words=self.text.words,
            used=self.used, labels=job.names, label_counts=self.label_counts,
        )  # fmt: skip
        return model
