"""Paragraph vectors (Le and Mikolov 2014): a vector for every document that helps to predict its words.

    loss = - sum over words w of  log sigmoid(h o_w) + sum over `negatives` noise words v of  log sigmoid(-h o_v)

where o are output vectors and h is the document's vector (dbow), its mean with those of the context words (dm), or
their concatenation (dm with concat). Windows do not cross documents. Negatives are drawn independently of the word.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.errors import AbilityError, ArtifactError, RecipeError
from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors import _paragraph_kernels as kernels
from firth.vectors._step_kernels import block_seed, fill_noise_pool
from firth.vectors.bag import document_bounds
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.lookup import saved_counts, saved_vector
from firth.vectors.loop import REPLICAS, BlockPlan, train_blocks
from firth.vectors.model import VectorModel, saved_vectors
from firth.vectors.neighbours import ExactIndex, Floats
from firth.vectors.recipe import ParagraphRecipe
from firth.vectors.sampling import alias_table, keep_thresholds, kept_fraction, noise_distribution
from firth.vectors.tables import EmbeddingTable, random_table, row_stride, table_from_matrix, zero_table
from firth.vectors.text import TrainingText

_DEFAULT_LR = 0.05
_SMALL_TEXT, _NEGATIVES = 1_000_000, (15, 5)  # small texts need more negatives
_MAX_MOVEMENT = 3.0  # steps times learning rate of an output row in parallel blocks: many more diverge
_MIN_BLOCK, _MAX_BLOCK = 500, 10_000  # words of text in a block
_MIN_POOL = 1024  # negatives that a block draws from, or half of its words if more: few rows are fast to copy
_INFERENCE_POOL = 1 << 17
_TEXTS, _BATCH = 20_000, 256  # new texts encoded at once, and trained by one thread at a time
_MIN_LR = 1e-4  # as a fraction of the initial learning rate


def resolve_defaults(recipe: ParagraphRecipe, words: int) -> ParagraphRecipe:
    """The recipe with negatives and lr resolved for a text of that many words.

    >>> resolve_defaults(ParagraphRecipe(), 2_000_000).negatives
    5
    """
    if recipe.negatives == "auto":
        recipe = replace(recipe, negatives=_NEGATIVES[words > _SMALL_TEXT])
    if recipe.lr == "auto":
        recipe = replace(recipe, lr=_DEFAULT_LR)
    return recipe


def train_paragraphs(recipe: ParagraphRecipe, job: VectorJob) -> VectorResult:
    """Vectors of the documents of a text and of their words."""
    text = job.text
    text.require_words(2)
    recipe = resolve_defaults(recipe, text.total)
    trainer = ParagraphTrainer(recipe, text, job.seed)
    run = train_blocks(trainer, recipe, float(recipe.lr), job)
    return run.result(trainer.model(job), documents=trainer.documents)


@dataclass(frozen=True)
class Segments:
    """Planned documents, or parts of long ones."""

    documents_of: npt.NDArray[np.int32]  # the document of each segment
    weights: npt.NDArray[np.float32]  # the fraction of its document's change that is added
    words: npt.NDArray[np.int32]  # after subsampling
    begins: npt.NDArray[np.int64]  # bounds of the words of each segment
    window_sizes: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]


class ParagraphUpdater:
    """Plans segments and updates vectors, in training as in inference."""

    def __init__(self, recipe: ParagraphRecipe, counts: npt.NDArray[np.int64]) -> None:
        self.recipe = recipe = resolve_defaults(recipe, int(counts.sum()))
        assert isinstance(recipe.negatives, int)
        self.negatives = recipe.negatives
        self.keep = keep_thresholds(counts, recipe.subsample, recipe.subsample_rule)
        self.kept = kept_fraction(counts, self.keep)
        self.alias = alias_table(noise_distribution(counts, recipe.ns_exponent))

    def pool(self, size: int, start: np.uint64) -> npt.NDArray[np.int32]:
        """Negative samples to draw from."""
        pool = np.empty(size, dtype=np.int32)
        fill_noise_pool(self.alias, pool, start)
        return pool

    def plan(
        self, ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64], states: npt.NDArray[np.uint64],
        pool: npt.NDArray[np.int32], documents_of: npt.NDArray[np.int32], weights: npt.NDArray[np.float32],
    ) -> Segments:  # fmt: skip
        """Subsampled words, windows and targets; `states` are the random states of the segments."""
        words, window_sizes = np.empty((2, ids.size), dtype=np.int32)
        begins = np.empty(bounds.size, dtype=np.int64)
        window, dynamic = self.recipe.window, self.recipe.combine == "mean"
        count = kernels.subsample_words(ids, bounds, self.keep, window, dynamic, states, words, begins, window_sizes)
        targets = np.empty(count * (1 + self.negatives), dtype=np.int32)
        kernels.list_targets(words, begins, self.negatives, pool, states, targets)
        return Segments(documents_of, weights, words[:count], begins, window_sizes[:count], targets)

    def train(self, segments: Segments, tables: Sequence[EmbeddingTable], lr: float, frozen: bool = False) -> float:
        """Trains on segments, documents alone if `frozen`; returns the summed loss of their words before."""
        documents, outputs = tables[0], tables[1]
        stride, width, step = outputs.stride, outputs.width, np.float32(lr)
        if self.recipe.architecture == "dbow":
            loss = kernels.train_dbow(
                segments.begins, self.negatives, segments.documents_of, segments.weights, segments.targets,
                documents.flat, outputs.flat, stride, width, step, frozen,
            )  # fmt: skip
        else:
            loss = kernels.train_dm(
                self.recipe.window, segments.words, segments.begins, segments.window_sizes, self.negatives,
                segments.documents_of, segments.weights, segments.targets, documents.flat, tables[2].flat, outputs.flat,
                documents.dimension, stride, width, step, self.recipe.combine == "concat", frozen,
            )  # fmt: skip
        return float(loss)


def output_dimension(recipe: ParagraphRecipe) -> int:
    """The dimension of output rows.

    >>> output_dimension(ParagraphRecipe(combine="concat", window=2, dimension=10))
    50
    """
    return recipe.dimension * (2 * recipe.window + 1 if recipe.combine == "concat" else 1)


class ParagraphTrainer:
    """A `BlockTrainer` of document and word vectors.

    Blocks end where documents do; only documents longer than a block are split. Parts of one may be trained in
    parallel from the same start: then only a fraction of each one's change is added.
    """

    max_step = math.inf

    def __init__(self, recipe: ParagraphRecipe, text: TrainingText, seed: int) -> None:
        self.recipe, self.text, self.seed = recipe, text, seed
        self.num_words = len(text.ids)
        self.updater = ParagraphUpdater(recipe, text.counts)
        size = self._block_size()
        self.pool = max(_MIN_POOL, size // 2)
        bounds = document_bounds(text)
        self.documents = len(bounds) - 1
        full = np.flatnonzero(np.diff(bounds))
        edges = np.append(bounds[full], bounds[-1])
        self.blocks, self.segments = replace(text, sentences=edges.astype(np.uint64)).split_blocks(size, size)
        self.num_blocks = len(self.blocks) - 1
        parts = -(-np.diff(edges) // size)
        replicas = REPLICAS if recipe.mode == "exact" else 1
        self.documents_of = np.repeat(full.astype(np.int32), parts)
        self.weights = np.repeat((1 / np.minimum(parts, replicas)).astype(np.float32), parts)
        self.tables: Sequence[EmbeddingTable] = self._tables()

    def _block_size(self) -> int:
        """Words in a block: in exact mode fewer for small vocabularies, which parallel blocks share."""
        if self.recipe.mode == "fast":
            return _MAX_BLOCK
        assert isinstance(self.recipe.lr, float)
        noise = noise_distribution(self.text.counts, self.recipe.ns_exponent)
        steps = REPLICAS * self.updater.kept * self.updater.negatives * float((noise**2).sum())
        return int(np.clip(_MAX_MOVEMENT / (steps * self.recipe.lr), _MIN_BLOCK, _MAX_BLOCK))

    def _tables(self) -> list[EmbeddingTable]:
        """Documents, outputs and, for dm, inputs."""
        recipe, size = self.recipe, len(self.text.words)
        wide, dimension = output_dimension(recipe), recipe.dimension
        replicas = REPLICAS if recipe.mode == "exact" else 0
        max_words = int(np.diff(self.segments[self.blocks]).max())
        max_segments = replicas * int(np.diff(self.blocks).max())
        inputs, outputs = replicas * min(size, max_words), replicas * min(size, max_words + self.pool)
        memory = 4 * (size + outputs) * row_stride(wide) + 4 * (self.documents + max_segments) * row_stride(dimension)
        if memory > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise RecipeError(
                f"the vectors of {size:,} words and {self.documents:,} documents would take {memory >> 30} GB, more "
                "than this machine has: lower dimension or window, or raise tokenizer.min_count."
            )
        # The other tables are zero, so the first gradients are proportional to these: if they are too small, early
        # epochs do nothing.
        table = random_table(size, wide, self.seed, FIRST_WORD, outputs)
        table.flat[:] *= np.float32(np.sqrt(wide) / 2)
        tables = [zero_table(self.documents, dimension, max_segments), table]
        return tables if recipe.architecture == "dbow" else [*tables, zero_table(size, dimension, inputs)]

    @property
    def flops_per_word(self) -> float:
        """Approximate floating-point operations for a word of text: three products with each target."""
        return 6.0 * self.updater.kept * (1 + self.updater.negatives) * output_dimension(self.recipe)

    def plan(self, epoch: int, block: int) -> BlockPlan:
        """The kept words of a block, their windows and targets."""
        begin, end = int(self.blocks[block]), int(self.blocks[block + 1])
        bounds = self.segments[begin : end + 1]
        ids = np.asarray(self.text.ids[bounds[0] : bounds[-1]], dtype=np.uint32)
        start = np.uint64(block_seed(self.seed, epoch, block))
        states = np.empty(end - begin, dtype=np.uint64)
        kernels.block_states(start, states)
        documents_of, weights = self.documents_of[begin:end].copy(), self.weights[begin:end]
        segments = self.updater.plan(ids, bounds, states, self.updater.pool(self.pool, start), documents_of, weights)
        accesses = [(0, segments.documents_of), (1, segments.targets), (2, segments.words)]
        return BlockPlan(accesses[: len(self.tables)], segments)

    def train_block(self, plan: BlockPlan, lr: float) -> tuple[float, int]:
        return self.updater.train(plan.content, self.tables, lr), int(plan.content.begins[-1])

    def model(self, job: VectorJob) -> ParagraphModel:
        """The trained model; it takes over the memory of the tables."""
        documents, outputs, *inputs = (table.compact() for table in self.tables)
        vectors, kept = (inputs[0], outputs) if inputs else (outputs, None)
        others = {"outputs": kept, "documents": documents, "seed": self.seed}
        model: ParagraphModel = job.build(ParagraphModel, self.recipe, vectors, **others)
        return model


class ParagraphModel(VectorModel):
    """Document and word vectors, and inference for new documents.

    With dbow, words share the space of documents: a word is near the documents that contain it.
    """

    def __init__(self, *arguments: Any, documents: Floats, seed: int, **others: Any) -> None:
        """`documents` has a row for each training document; `arguments` and `others` are those of `VectorModel`."""
        super().__init__(*arguments, **others)
        self.documents, self.seed = documents, seed

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {"documents": self.documents, "seed": np.array([self.seed], dtype=np.int64)}

    @cached_property
    def _updater(self) -> tuple[ParagraphUpdater, npt.NDArray[np.int32], Sequence[EmbeddingTable]]:
        """The updater of new texts, its negatives, and the frozen tables of outputs and inputs."""
        assert self.counts is not None
        updater = ParagraphUpdater(self.recipe, self.counts)
        matrices = [self.vectors] if self.outputs is None else [self.outputs, self.vectors]
        pool = updater.pool(_INFERENCE_POOL, np.uint64(block_seed(self.seed, 0, 0)))
        return updater, pool, [table_from_matrix(matrix) for matrix in matrices]

    def infer(self, texts: Sequence[str], epochs: int | None = None) -> Floats:
        """The vectors of new texts, trained for that many epochs, by default as in training; all else is frozen.

        A text always has the same vector, whatever the batch; one without known words has zeros.
        """
        epochs = self.recipe.epochs if epochs is None else epochs
        if epochs < 1:
            raise AbilityError(f"epochs={epochs} must be 1 or more.")
        found = np.zeros((len(texts), self.documents.shape[1]), dtype=np.float32)
        with ThreadPoolExecutor(cores()) as threads:
            for begin in range(0, len(texts), _TEXTS):
                ids, bounds = self.encode(texts[begin : begin + _TEXTS])
                firsts = range(0, bounds.size - 1, _BATCH)
                parts = [(ids, bounds[first : first + _BATCH + 1], epochs) for first in firsts]
                for first, part in zip(firsts, threads.map(lambda part: self._infer(*part), parts), strict=True):
                    found[begin + first : begin + first + len(part)] = part
        return found

    def _infer(self, ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64], epochs: int) -> Floats:
        updater, pool, tables = self._updater
        count = bounds.size - 1
        ids, bounds = ids[bounds[0] : bounds[-1]], bounds - bounds[0]
        documents = zero_table(count, self.documents.shape[1])
        documents_of, weights = np.arange(count, dtype=np.int32), np.ones(count, dtype=np.float32)
        states = np.empty(count, dtype=np.uint64)
        assert isinstance(updater.recipe.lr, float)
        for epoch in range(epochs):
            kernels.text_states(np.uint64(block_seed(self.seed, epoch, 1)), ids, bounds, states)
            segments = updater.plan(ids, bounds, states, pool, documents_of, weights)
            lr = updater.recipe.lr * max(1 - epoch / epochs, _MIN_LR)
            updater.train(segments, [documents, *tables], lr, frozen=True)
        return documents.matrix()

    def embed(self, texts: Sequence[str]) -> Floats:
        """The inferred vectors of new texts: see `infer`."""
        return self.infer(texts)

    @cached_property
    def _near(self) -> ExactIndex:
        return ExactIndex(self.documents)

    def similar_documents(self, text: str, count: int = 10) -> list[tuple[int, float]]:
        """The training documents nearest to a text: their indices and cosines."""
        vector = self.infer([text])[0]
        if not vector.any():
            raise AbilityError("no word of the text has a vector: use words that the model knows.")
        return self._near.nearest(vector, count)


def restore_paragraphs(
    recipe: ParagraphRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> ParagraphModel:
    """The model of a saved artifact's arrays."""
    saved = saved_vectors(arrays, tokenizer)
    counts = saved_counts(arrays, "counts", len(saved["words"]))
    seed = saved_vector(arrays, "seed", np.int64, 1)
    documents: Any = arrays.get("documents")
    outputs = saved["outputs"]
    shape = None if recipe.architecture == "dbow" else (len(saved["words"]), output_dimension(recipe))
    sound = saved["vectors"].shape[1] == recipe.dimension and counts.any()
    sound = sound and shape == (None if outputs is None else outputs.shape) and documents is not None
    if not sound or documents.dtype != np.float32 or documents.shape[1:] != (recipe.dimension,):
        raise ArtifactError("the arrays of documents and words do not fit together: train the model again.")
    return ParagraphModel(recipe, tokenizer, layout, **saved, documents=documents, seed=int(seed[0]))
