"""Paragraph vectors (Le and Mikolov 2014): a vector for every document, which helps to predict its words.

    loss = - sum over words w of  log sigmoid(h o_w) + sum over `negatives` noise words v of  log sigmoid(-h o_v)

where o are output vectors and h is the document's vector (dbow), its mean with those of the words around (dm), or all
of them side by side (dm with concat). Windows stay within the document. Noise words are drawn whatever the word.
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
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _paragraph_kernels as kernels
from firth.vectors._step_kernels import random_start
from firth.vectors._word2vec_kernels import draw_pool
from firth.vectors.bag import document_bounds
from firth.vectors.job import Job, Result
from firth.vectors.lookup import saved_vector
from firth.vectors.loop import LANES, Plan, Touch, run_loop
from firth.vectors.model import VectorModel, restore_vectors
from firth.vectors.neighbours import Floats, Neighbours
from firth.vectors.recipe import ParagraphRecipe
from firth.vectors.sampling import alias_table, keep_thresholds, noise_shares
from firth.vectors.tables import Table, from_matrix, random_table, stride_of, zeros
from firth.vectors.text import FIRST_WORD, TrainingText

_RATE = 0.05
_FEW, _NEGATIVES = 1_000_000, (15, 5)  # texts of so few words need more noise words
_PULL = 3.0  # steps times rate that blocks take beside each other with an output: many more make it leap
_SMALLEST, _LARGEST = 500, 10_000  # words of text in a block
_POOL = (
    1024  # noise words at least that a block draws from, or half as many as it has words: few rows are quick to copy
)
_INFERENCE_POOL = 1 << 17
_TEXTS, _PART = 20_000, 256  # new texts that are encoded at once, and that a thread takes at a time
_LEAST_RATE = 1e-4  # of the first rate


def settle(recipe: ParagraphRecipe, words: int) -> ParagraphRecipe:
    """The recipe with what it leaves to the text filled in.

    >>> settle(ParagraphRecipe(), 2_000_000).negatives
    5
    """
    if recipe.negatives == "auto":
        recipe = replace(recipe, negatives=_NEGATIVES[words > _FEW])
    if recipe.learning_rate == "auto":
        recipe = replace(recipe, learning_rate=_RATE)
    return recipe


def train_paragraphs(recipe: ParagraphRecipe, job: Job) -> Result:
    """Vectors for the documents of a text and their words."""
    text = job.text
    text.require(2)
    recipe = settle(recipe, text.total)
    assert isinstance(recipe.learning_rate, float)
    blocks = ParagraphBlocks(recipe, text, job.seed)
    state = run_loop(blocks, recipe, recipe.learning_rate, job)
    metrics = {
        "loss": state.losses[-1],
        "losses": state.losses,
        "vocabulary": len(text.words) - FIRST_WORD,
        "documents": blocks.tables[0].rows,
    }
    return Result(blocks.model(job), round(state.done * blocks.words / blocks.blocks), metrics)


@dataclass(frozen=True)
class Pieces:
    """Documents, or parts of long ones, as they will be learnt from."""

    owners: npt.NDArray[np.int32]
    """The document of each piece."""
    shares: npt.NDArray[np.float32]
    """How much of what its document learns from a piece is brought back."""
    words: npt.NDArray[np.int32]
    """Those that are kept."""
    begins: npt.NDArray[np.int64]
    """Where the words of each piece begin, and the end."""
    reach: npt.NDArray[np.int32]
    """How wide the window around each word is."""
    targets: npt.NDArray[np.int32]


class Steps:
    """How pieces are planned and learnt from, in training as for new texts."""

    def __init__(self, recipe: ParagraphRecipe, counts: npt.NDArray[np.int64]) -> None:
        self.recipe = recipe = settle(recipe, int(counts.sum()))
        assert isinstance(recipe.negatives, int)
        self.draws = recipe.negatives
        self.keep = keep_thresholds(counts, recipe.subsample, recipe.subsample_rule)
        self.kept = float((counts * (self.keep / 2**32)).sum() / counts.sum())
        self.alias = alias_table(noise_shares(counts, recipe.noise))

    def pool(self, size: int, start: np.uint64) -> npt.NDArray[np.int32]:
        """Noise words to draw from."""
        pool = np.empty(size, dtype=np.int32)
        draw_pool(self.alias, pool, start)
        return pool

    def plan(
        self,
        ids: npt.NDArray[np.uint32],
        bounds: npt.NDArray[np.int64],
        states: npt.NDArray[np.uint64],
        pool: npt.NDArray[np.int32],
        owners: npt.NDArray[np.int32],
        shares: npt.NDArray[np.float32],
    ) -> Pieces:
        """The words that are kept, their windows and targets; `states` are where each piece's random numbers begin."""
        words, reach = np.empty((2, ids.size), dtype=np.int32)
        begins = np.empty(bounds.size, dtype=np.int64)
        window, shrink = self.recipe.window, self.recipe.combine == "mean"
        count = int(kernels.choose_words(ids, bounds, self.keep, window, shrink, states, words, begins, reach))
        targets = np.empty(count * (1 + self.draws), dtype=np.int32)
        kernels.list_targets(words, begins, self.draws, pool, states, targets)
        return Pieces(owners, shares, words[:count], begins, reach[:count], targets)

    def learn(self, pieces: Pieces, tables: Sequence[Table], rate: float, frozen: bool = False) -> float:
        """Learns from pieces, documents alone if `frozen`; returns the sum of the losses of their words before."""
        documents, outputs = tables[0], tables[1]
        stride, width, step = outputs.stride, outputs.width, np.float32(rate)
        if self.recipe.architecture == "dbow":
            loss = kernels.learn_bags(
                pieces.begins, self.draws, pieces.owners, pieces.shares, pieces.targets, documents.flat,
                outputs.flat, stride, width, step, frozen,
            )  # fmt: skip
        else:
            loss = kernels.learn_windows(
                self.recipe.window, pieces.words, pieces.begins, pieces.reach, self.draws, pieces.owners,
                pieces.shares, pieces.targets, documents.flat, tables[2].flat, outputs.flat, documents.dimension,
                stride, width, step, self.recipe.combine == "concat", frozen,
            )  # fmt: skip
        return float(loss)


def output_dimension(recipe: ParagraphRecipe) -> int:
    """Numbers of an output row.

    >>> output_dimension(ParagraphRecipe(combine="concat", window=2, dimension=10))
    50
    """
    return recipe.dimension * (2 * recipe.window + 1 if recipe.combine == "concat" else 1)


class ParagraphBlocks:
    """A text in blocks, to learn the vectors of its documents and words.

    Blocks end where documents do; only documents longer than a block are cut. Parts of one may be learnt from beside
    each other, all from the same start: then each brings back only its share.
    """

    calm = math.inf

    def __init__(self, recipe: ParagraphRecipe, text: TrainingText, seed: int) -> None:
        self.recipe, self.text, self.seed = recipe, text, seed
        self.words = len(text.ids)
        self.steps = Steps(recipe, text.counts)
        size = self._block_size()
        self.pool = max(_POOL, size // 2)
        bounds = document_bounds(text)
        self.documents = len(bounds) - 1
        full = np.flatnonzero(np.diff(bounds))
        edges = np.append(bounds[full], bounds[-1])
        self.cuts, self.pieces = replace(text, sentences=edges.astype(np.uint64)).cut(size, size)
        self.blocks = len(self.cuts) - 1
        parts = -(-np.diff(edges) // size)
        lanes = LANES if recipe.mode == "exact" else 1
        self.owners = np.repeat(full.astype(np.int32), parts)
        self.shares = np.repeat((1 / np.minimum(parts, lanes)).astype(np.float32), parts)
        self.tables: Sequence[Table] = self._tables()

    def _block_size(self) -> int:
        """Words in a block: in exact mode few where there are few different words, which blocks then share."""
        if self.recipe.mode == "fast":
            return _LARGEST
        assert isinstance(self.recipe.learning_rate, float)
        shares = noise_shares(self.text.counts, self.recipe.noise)
        steps = LANES * self.steps.kept * self.steps.draws * float((shares**2).sum())
        return int(np.clip(_PULL / (steps * self.recipe.learning_rate), _SMALLEST, _LARGEST))

    def _tables(self) -> list[Table]:
        """Documents, outputs and, where words around help to predict, inputs."""
        recipe, size = self.recipe, len(self.text.words)
        wide, narrow = output_dimension(recipe), recipe.dimension
        lanes = LANES if recipe.mode == "exact" else 0
        longest = int(np.diff(self.pieces[self.cuts]).max())
        together = lanes * int(np.diff(self.cuts).max())
        inputs, outputs = lanes * min(size, longest), lanes * min(size, longest + self.pool)
        room = 4 * (size + outputs) * stride_of(wide) + 4 * (self.documents + together) * stride_of(narrow)
        if room > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise RecipeError(
                f"the vectors of {size:,} words and {self.documents:,} documents would take {room >> 30} GB, more than "
                "this machine has: lower dimension or window, or raise tokenizer.min_count."
            )
        # The others begin at zero, so all they learn at first is from these: too small, and early passes bring nothing.
        table = random_table(size, wide, self.seed, FIRST_WORD, outputs)
        table.flat[:] *= np.float32(np.sqrt(wide) / 2)
        tables = [zeros(self.documents, narrow, together), table]
        return tables if recipe.architecture == "dbow" else [*tables, zeros(size, narrow, inputs)]

    @property
    def work(self) -> float:
        """Floating-point operations for a word of text, about: three products with each target."""
        return 6.0 * self.steps.kept * (1 + self.steps.draws) * output_dimension(self.recipe)

    def plan(self, epoch: int, block: int) -> Plan:
        """The words that are kept, their windows and targets."""
        begin, end = int(self.cuts[block]), int(self.cuts[block + 1])
        bounds = self.pieces[begin : end + 1]
        ids = np.asarray(self.text.ids[bounds[0] : bounds[-1]], dtype=np.uint32)
        start = np.uint64(random_start(self.seed, epoch, block))
        states = np.empty(end - begin, dtype=np.uint64)
        kernels.place_states(start, states)
        owners, shares = self.owners[begin:end].copy(), self.shares[begin:end]
        pieces = self.steps.plan(ids, bounds, states, self.steps.pool(self.pool, start), owners, shares)
        touches = [Touch(0, pieces.owners), Touch(1, pieces.targets), Touch(2, pieces.words)]
        return Plan(touches[: len(self.tables)], pieces)

    def learn(self, plan: Plan, rate: float) -> tuple[float, int]:
        """Learns from a block; its examples are words."""
        return self.steps.learn(plan.content, self.tables, rate), int(plan.content.begins[-1])

    def model(self, job: Job) -> ParagraphModel:
        """The model that has been learnt."""
        documents, outputs, *inputs = (table.packed() for table in self.tables)
        vectors, kept = (inputs[0], outputs) if inputs else (outputs, None)
        return ParagraphModel(
            self.recipe, job.tokenizer, job.layout, vectors, documents=documents, seed=self.seed,
            counts=self.text.counts, outputs=kept, phrases=job.phrases,
        )  # fmt: skip


class ParagraphModel(VectorModel):
    """Documents and words as vectors, and vectors for new documents.

    With dbow words lie in the space of documents: a word's vector is near those of documents that have it.
    """

    def __init__(
        self,
        recipe: ParagraphRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        vectors: Floats,
        *,
        documents: Floats,
        seed: int,
        **others: Any,
    ) -> None:
        """`documents` has a row for each document of the text, in order; `others` are those of `VectorModel`."""
        super().__init__(recipe, tokenizer, layout, vectors, **others)
        self.documents = documents
        self.seed = seed

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        return super().arrays() | {"documents": self.documents, "seed": np.array([self.seed], dtype=np.int64)}

    @cached_property
    def _steps(self) -> tuple[Steps, npt.NDArray[np.int32], Sequence[Table]]:
        """How new texts are learnt from, their noise words, and the tables of outputs and inputs, which stay."""
        assert self.counts is not None
        steps = Steps(self.recipe, self.counts)
        matrices = [self.vectors] if self.outputs is None else [self.outputs, self.vectors]
        pool = steps.pool(_INFERENCE_POOL, np.uint64(random_start(self.seed, 0, 0)))
        return steps, pool, [from_matrix(matrix) for matrix in matrices]

    def infer(self, texts: Sequence[str], epochs: int | None = None) -> Floats:
        """The vectors of new texts, learnt in so many passes, by default as many as in training; all else stays.

        A text has the same vector every time, whatever is asked for with it; one without known words has zeros.
        """
        passes = self.recipe.epochs if epochs is None else epochs
        if passes < 1:
            raise AbilityError(f"epochs={passes} must be 1 or more.")
        found = np.zeros((len(texts), self.documents.shape[1]), dtype=np.float32)
        with ThreadPoolExecutor(cores()) as threads:
            for begin in range(0, len(texts), _TEXTS):
                ids, bounds = self.encode(texts[begin : begin + _TEXTS])
                firsts = range(0, bounds.size - 1, _PART)
                parts = [(ids, bounds[first : first + _PART + 1], passes) for first in firsts]
                for first, part in zip(firsts, threads.map(lambda part: self._infer(*part), parts), strict=True):
                    found[begin + first : begin + first + len(part)] = part
        return found

    def _infer(self, ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64], passes: int) -> Floats:
        """The vectors of some texts."""
        steps, pool, tables = self._steps
        count = bounds.size - 1
        ids, bounds = ids[bounds[0] : bounds[-1]], bounds - bounds[0]
        documents = zeros(count, self.documents.shape[1])
        owners, shares = np.arange(count, dtype=np.int32), np.ones(count, dtype=np.float32)
        states = np.empty(count, dtype=np.uint64)
        assert isinstance(steps.recipe.learning_rate, float)
        for epoch in range(passes):
            kernels.text_states(np.uint64(random_start(self.seed, epoch, 1)), ids, bounds, states)
            pieces = steps.plan(ids, bounds, states, pool, owners, shares)
            rate = steps.recipe.learning_rate * max(1 - epoch / passes, _LEAST_RATE)
            steps.learn(pieces, [documents, *tables], rate, frozen=True)
        return documents.matrix()

    def embed(self, texts: Sequence[str]) -> Floats:
        """The vectors of new texts: see `infer`."""
        return self.infer(texts)

    @cached_property
    def _near(self) -> Neighbours:
        return Neighbours(self.documents)

    def similar_documents(self, text: str, count: int = 10) -> list[tuple[int, float]]:
        """The documents it was trained on that are nearest to a text: their numbers, from 0, and cosines."""
        vector = self.infer([text])[0]
        if not vector.any():
            raise AbilityError("no word of the text has a vector: ask with words that the model knows.")
        return self._near.nearest(vector, count)


def restore(recipe: ParagraphRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> ParagraphModel:
    """The model of a saved artifact's arrays."""
    plain = restore_vectors(recipe, arrays, tokenizer, layout)
    counts = saved_vector(arrays, "counts", np.int64)
    seed = saved_vector(arrays, "seed", np.int64, 1)
    documents, outputs = arrays.get("documents"), plain.outputs
    shape = None if recipe.architecture == "dbow" else (len(plain.words), output_dimension(recipe))
    if (
        documents is None
        or documents.dtype != np.float32
        or documents.shape[1:] != (recipe.dimension,)
        or plain.vectors.shape[1] != recipe.dimension
        or shape != (None if outputs is None else outputs.shape)
        or counts.min() < 0
        or not counts.any()
    ):
        raise ArtifactError("the arrays of documents and words do not belong together: train the model again.")
    others = {"counts": counts, "outputs": outputs, "words": plain.words, "phrases": plain.phrases}
    return ParagraphModel(recipe, tokenizer, layout, plain.vectors, documents=documents, seed=int(seed[0]), **others)
