"""Skip-gram and continuous bag of words (Mikolov et al. 2013), with or without character n-grams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import RecipeError
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _softmax_kernels
from firth.vectors import _word2vec_kernels as kernels
from firth.vectors._step_kernels import random_start
from firth.vectors.job import Job, Result
from firth.vectors.loop import LANES, Plan, Touch, block_size, run_loop
from firth.vectors.model import VectorModel, restore_vectors
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.sampling import alias_table, huffman_tree, keep_thresholds, noise_shares
from firth.vectors.subwords import SubwordModel, restore_subwords, subword_rows
from firth.vectors.tables import Table, random_table, zeros
from firth.vectors.text import FIRST_WORD, TrainingText

_CALM = 0.5  # tried: from about 1.2 on the loss rises, from 0.7 on it jumps about
_LONGEST = 1000  # words of a sentence that are looked at together
_PULLS = {"skipgram": 1.0, "cbow": 0.1}
"""Of outputs: in a window of skip-gram they learn from each word around, in one of CBOW only once."""
_POOL = {"exact": 4096, "fast": 0}
"""Noise words that a block draws from: few rows make exact mode quick; 0 means all words."""
_MOST_BUCKETS = 2_000_000
_MOST_SOFTMAX = 50_000  # words over which the exact objective is still worth waiting for
_RATES = {"skipgram": 0.04, "cbow": 0.05}
_NEGATIVES = ((1_000_000, 15), (5_000_000, 10), (1_000_000_000, 5))
"""Noise words for texts of up to so many words: small texts need more, beyond the last two will do."""


def settle(recipe: Word2vecRecipe, words: int) -> Word2vecRecipe:
    """The recipe with what it leaves to the text filled in.

    >>> settle(Word2vecRecipe(), 2_000_000).negatives
    10
    """
    if recipe.negatives == "auto":
        recipe = replace(recipe, negatives=next((k for most, k in _NEGATIVES if words <= most), 2))
    if recipe.learning_rate == "auto":
        recipe = replace(recipe, learning_rate=_RATES[recipe.architecture])
    return recipe


def settle_buckets(recipe: Word2vecRecipe, words: Sequence[str]) -> Word2vecRecipe:
    """The recipe with rows for twice as many character n-grams as the words have, at most two million."""
    if recipe.buckets != "auto":
        return recipe
    if not recipe.subwords:
        return replace(recipe, buckets=0)
    _, rows = subword_rows(words, recipe.min_n, recipe.max_n, _MOST_BUCKETS)
    kinds = int(np.unique(rows).size)
    return replace(recipe, buckets=min(_MOST_BUCKETS, 1000 * (1 + 2 * kinds // 1000)))


def train_word2vec(recipe: Word2vecRecipe, job: Job) -> Result:
    """Vectors for the words of a text."""
    text = job.text
    text.require(max(2, recipe.window))
    recipe = settle_buckets(settle(recipe, text.total), text.words[FIRST_WORD:])
    if recipe.loss == "softmax" and len(text.words) > _MOST_SOFTMAX:
        raise RecipeError(
            f"loss=softmax looks at all {len(text.words):,} words for each: set loss=negative, "
            f"or tokenizer.vocab_size to {_MOST_SOFTMAX} or less."
        )
    blocks = WordBlocks(recipe, text, job.seed, job.start)
    state = run_loop(blocks, recipe, float(recipe.learning_rate), job)
    metrics = {"loss": state.losses[-1], "losses": state.losses, "vocabulary": len(text.words) - FIRST_WORD}
    return Result(blocks.model(recipe, job), round(state.done * blocks.words / blocks.blocks), metrics)


def add_counts(counts: npt.NDArray[np.int64], older: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    """How often words occur in a text and in an older one, whose words are the first."""
    if older is None:
        return counts
    total = counts.copy()
    total[: older.size] += older
    return total


@dataclass
class _Content:
    """A planned block."""

    words: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.int64]
    pieces: int
    reach: npt.NDArray[np.int32]
    marks: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int32]
    labels: npt.NDArray[np.uint8]
    shifts: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    """With subwords: where the parts of each word begin in `parts`."""
    parts: npt.NDArray[np.int32]


class WordBlocks:
    """A text in blocks, to learn the vectors of its words."""

    calm = _CALM

    def __init__(self, recipe: Word2vecRecipe, text: TrainingText, seed: int, start: VectorModel | None = None) -> None:
        assert isinstance(recipe.negatives, int)
        assert isinstance(recipe.buckets, int)
        self.buckets = recipe.buckets
        self.recipe, self.text, self.seed = recipe, text, seed
        self.negatives = recipe.negatives
        self.cuts, self.pieces = text.cut(block_size(recipe.mode, len(text.ids)), _LONGEST)
        self.blocks = len(self.cuts) - 1
        self.words = len(text.ids)
        self.counts = text.counts if start is None else add_counts(text.counts, start.counts)
        self.keep = keep_thresholds(self.counts, recipe.subsample, recipe.subsample_rule)
        shares = noise_shares(self.counts, recipe.noise)
        self.alias = alias_table(shares)
        with np.errstate(divide="ignore"):
            # Scores begin near 0; with the number of words as normaliser that is the even distribution.
            self.log_noise = np.log(self.negatives * shares * np.count_nonzero(shares)).astype(np.float32)
        self.tree = huffman_tree(self.counts) if recipe.loss == "hierarchical" else None
        self.spelling = self._spell()
        self.inputs, self.outputs = self._tables()
        self.tables: Sequence[Table] = (self.inputs, self.outputs)
        if start is not None:
            self._go_on_from(start)

    def _spell(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
        """The rows that each word is made of: its own and those of its character n-grams."""
        recipe, words = self.recipe, self.text.words
        if not recipe.subwords:
            return None
        spelt = [*[""] * FIRST_WORD, *words[FIRST_WORD:]]
        starts, buckets = subword_rows(spelt, recipe.min_n, recipe.max_n, self.buckets)
        own = np.arange(len(words), dtype=np.int32)
        parts = np.insert(buckets + np.int32(len(words)), starts[:-1], own).astype(np.int32)
        return starts + np.arange(starts.size), parts

    def _tables(self) -> tuple[Table, Table]:
        size, recipe = len(self.text.words), self.recipe
        rows = size + self.buckets
        longest = int(np.diff(self.pieces[self.cuts]).max())
        parts = int(np.diff(self.spelling[0]).max()) if self.spelling else 1
        lanes = LANES if recipe.mode == "exact" else 0
        inputs = random_table(rows, recipe.dimension, self.seed, FIRST_WORD, lanes * min(rows, longest * parts))
        outputs = zeros(size, recipe.dimension, lanes * size)
        return inputs, replace(outputs, pull=_PULLS[recipe.architecture])

    def _go_on_from(self, model: VectorModel) -> None:
        """Takes over what a model has learnt; new words keep what chance gave them."""
        known, size = len(model.words), len(self.text.words)
        inputs = self.inputs.matrix()
        inputs[:known] = model.own if isinstance(model, SubwordModel) else model.vectors
        if isinstance(model, SubwordModel):
            inputs[size:] = model.ngrams
        if model.outputs is not None and self.tree is None:  # another tree has other nodes
            self.outputs.matrix()[:known] = model.outputs

    @property
    def work(self) -> float:
        """Floating-point operations for a word of text, about: three products of each pair and target."""
        pairs = self.recipe.window + 1 if self.recipe.architecture == "skipgram" else 1
        targets = self.tree.nodes.size / len(self.text.words) if self.tree else self.negatives + 1
        targets = len(self.text.words) if self.recipe.loss == "softmax" else targets
        kept = float((self.text.counts * (self.keep / 2**32)).sum() / max(self.text.total, 1))
        return 6.0 * kept * pairs * targets * self.recipe.dimension

    def plan(self, epoch: int, block: int) -> Plan:
        """The words that are kept, their windows and targets."""
        begin, end = self.cuts[block], self.cuts[block + 1]
        ids = np.asarray(self.text.ids[self.pieces[begin] : self.pieces[end]], dtype=np.uint32)
        words, reach = np.empty(ids.size, dtype=np.int32), np.empty(ids.size, dtype=np.int32)
        bounds = np.empty(end - begin + 1, dtype=np.int64)
        recipe = self.recipe
        pieces, state = kernels.choose_words(
            ids, self.pieces, begin, end, self.keep, recipe.window, recipe.shrink,
            np.uint64(random_start(self.seed, epoch, block)), words, bounds, reach,
        )  # fmt: skip
        words = words[: int(bounds[pieces])]
        targets, labels, shifts, marks = self._targets(words, np.uint64(state))
        starts, parts = self._parts(words)
        touches = (Touch(0, parts if recipe.subwords else words), Touch(1, targets))
        return Plan(touches, _Content(words, bounds, pieces, reach, marks, targets, labels, shifts, starts, parts))

    def _targets(self, words: npt.NDArray[np.int32], state: np.uint64) -> tuple[Any, Any, Any, Any]:
        """The targets of each word, what they should answer, what goes off their products, and where each's begin."""
        count = words.size
        marks = np.zeros(count + 1, dtype=np.int64)
        none = np.empty(0, dtype=np.float32)
        if self.recipe.loss == "softmax":  # every word is a target of every other
            everything = np.arange(len(self.text.words), dtype=np.int32)
            return everything, words.astype(np.uint32), none, marks
        if self.tree is not None:
            room = int(np.sum(np.diff(self.tree.starts)[words]))
            targets, labels = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.uint8)
            kernels.follow_paths(words, count, *self.tree, marks, targets, labels)
            return targets, labels, none, marks
        room = count * (self.negatives + 1)
        targets, labels = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.uint8)
        shifts = np.empty(room if self.recipe.loss == "nce" else 0, dtype=np.float32)
        pool = np.empty(_POOL[self.recipe.mode], dtype=np.int32)
        state = np.uint64(kernels.draw_pool(self.alias, pool, state))
        used = kernels.draw_noise(
            words, count, self.negatives, self.alias, pool, self.log_noise, state, marks, targets, labels, shifts
        )
        return targets[:used], labels[:used], shifts, marks

    def _parts(self, words: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        if self.spelling is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return kernels.list_parts(words, *self.spelling)  # type: ignore[no-any-return]

    def learn(self, plan: Plan, rate: float) -> tuple[float, int]:
        """Learns from a block."""
        recipe, block = self.recipe, plan.content
        inputs, outputs, together = self.inputs.flat, self.outputs.flat, recipe.architecture == "cbow"
        stride, width, step = self.inputs.stride, self.inputs.width, np.float32(rate)
        if recipe.subwords and recipe.loss == "softmax":
            loss, examples = _softmax_kernels.learn_subwords_exactly(
                recipe.window, block.parts, block.starts, block.labels, block.bounds, block.pieces, block.reach,
                block.targets, inputs, outputs, stride, width, step, together,
            )  # fmt: skip
        elif recipe.subwords:
            loss, examples = kernels.learn_subwords(
                recipe.window, block.parts, block.starts, block.bounds, block.pieces, block.reach, block.marks,
                block.targets, block.labels, block.shifts, inputs, outputs, stride, width, step, together,
            )  # fmt: skip
        elif recipe.loss == "softmax":
            loss, examples = _softmax_kernels.learn_exactly(
                recipe.window, block.words, block.labels, block.bounds, block.pieces, block.reach, block.targets,
                inputs, outputs, stride, width, step, together,
            )  # fmt: skip
        else:
            loss, examples = kernels.learn_windows(
                recipe.window, block.words, block.bounds, block.pieces, block.reach, block.marks,
                block.targets, block.labels, block.shifts, inputs, outputs, stride, width, step, together,
            )  # fmt: skip
        return float(loss), int(examples)

    def model(self, recipe: Word2vecRecipe, job: Job) -> VectorModel:
        """The model that has been learnt; it takes over the tables."""
        size = len(self.text.words)
        rows = self.inputs.packed()
        rest: dict[str, Any] = {
            "counts": self.counts, "outputs": self.outputs.packed(), "phrases": job.phrases
        }  # fmt: skip
        if recipe.subwords:
            own, ngrams = rows[:size], rows[size:]
            return SubwordModel.of(recipe, job.tokenizer, job.layout, own=own, ngrams=ngrams, **rest)
        return VectorModel(recipe, job.tokenizer, job.layout, rows, **rest)


def restore(recipe: Word2vecRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> VectorModel:
    """The model of a saved artifact's arrays."""
    return (restore_subwords if recipe.subwords else restore_vectors)(recipe, arrays, tokenizer, layout)
