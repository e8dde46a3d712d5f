"""The bag of tricks (Joulin et al. 2017): a linear classifier over the mean of word and word n-gram vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError, RecipeError
from firth.tokens.tokenizer import EOS
from firth.vectors import _classifier_kernels as kernels
from firth.vectors._step_kernels import random_start
from firth.vectors._word2vec_kernels import draw_noise, follow_paths
from firth.vectors.classifier_model import ClassifierModel, label_tree, restore_classifier
from firth.vectors.classifier_rows import Spelling, as_spelt, list_rows, slots_of, spell_all, word_hashes
from firth.vectors.job import Job, Result
from firth.vectors.loop import Plan, Progress, run_loop
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.sampling import alias_table, noise_shares
from firth.vectors.subwords import subword_rows
from firth.vectors.tables import Table, random_table, zeros
from firth.vectors.text import FIRST_WORD, TrainingText

_WORDS = 2000  # of a block
_PLANNED = 8  # blocks that are planned ahead
_RATE = 0.5
_NEGATIVES = 5
_NOISE = 0.5  # labels are drawn by their frequency to this power
_MOST_BUCKETS = 2_000_000
_CROWD = 32  # buckets for each n-gram that occurs, so that few fall together
_CHUNK = 1 << 14  # texts that are looked through at once


def train_classifier(recipe: ClassifierRecipe, job: Job) -> Result:
    """A classifier of texts: each document of the text has its label."""
    texts = len(job.text.documents) - 1
    if job.labels is None or len(job.labels) != texts or not job.names:
        raise RecipeError("a classifier learns from labelled texts: give it a file with a label for each text.")
    if len(job.names) < 2:
        raise CorpusError(f"all texts have the label {job.names[0]!r}: a classifier needs two labels or more.")
    recipe = settle(recipe, job.text)
    blocks = TextBlocks(recipe, job.text, job.labels, len(job.names), job.seed)
    state = _run(blocks, recipe, job)
    metrics = {
        "loss": state.losses[-1], "losses": state.losses, "vocabulary": len(job.text.words) - FIRST_WORD,
        "ngrams": blocks.used.size, "labels": len(job.names), "texts": texts,
    }  # fmt: skip
    return Result(blocks.model(recipe, job), round(state.done * blocks.words / blocks.blocks), metrics)


def _run(blocks: TextBlocks, recipe: ClassifierRecipe, job: Job) -> Progress:
    """Learns from all blocks that the budget allows.

    All texts move the same few labels. Blocks that started from the same tables would each move them all the way, and
    together too far: so exact mode learns from one block after the other, and other threads only plan the next ones.
    """
    assert isinstance(recipe.learning_rate, float)
    if recipe.mode == "fast":
        return run_loop(blocks, recipe, recipe.learning_rate, job)
    with ThreadPoolExecutor(job.threads) as threads:
        ahead = _Ahead(blocks, threads)
        return run_loop(ahead, replace(recipe, mode="fast"), recipe.learning_rate, replace(job, threads=1))


def settle(recipe: ClassifierRecipe, text: TrainingText) -> ClassifierRecipe:
    """The recipe with what it leaves to the text filled in."""
    if recipe.learning_rate == "auto":
        recipe = replace(recipe, learning_rate=_RATE)
    if recipe.buckets != "auto":
        return recipe
    if recipe.word_ngrams == 1 and not recipe.max_n:
        return replace(recipe, buckets=0)
    kinds = int(np.count_nonzero(mark_buckets(replace(recipe, buckets=_MOST_BUCKETS), text)))
    return replace(recipe, buckets=min(_MOST_BUCKETS, 1000 * (1 + _CROWD * kinds // 1000)))


def mark_buckets(recipe: ClassifierRecipe, text: TrainingText) -> npt.NDArray[np.bool_]:
    """Which buckets the n-grams of a text fall into."""
    assert isinstance(recipe.buckets, int)
    marks = np.zeros(recipe.buckets, dtype=np.bool_)
    if recipe.max_n and marks.size:
        _, rows = subword_rows(text.words[FIRST_WORD:], recipe.min_n, recipe.max_n, recipe.buckets)
        marks[rows] = True
    if recipe.word_ngrams > 1 and marks.size:
        hashes = word_hashes(as_spelt(text.words))
        for ids, bounds in _all_texts(text):
            kernels.mark_ngrams(ids, bounds, hashes, recipe.word_ngrams, marks)
    return marks


def _all_texts(text: TrainingText) -> Iterator[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]]:
    bounds = text_bounds(text)
    for begin in range(0, bounds.size - 1, _CHUNK):
        yield gather(text, bounds, np.arange(begin, min(begin + _CHUNK, bounds.size - 1)))


def text_bounds(text: TrainingText) -> npt.NDArray[np.int64]:
    """Where each document's tokens begin, and the end."""
    return np.asarray(text.sentences)[np.asarray(text.documents).astype(np.int64)].astype(np.int64)


def gather(
    text: TrainingText, bounds: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The ids of some documents, each with its end, and where each begins, and the end."""
    begins, ends = bounds[chosen], bounds[chosen + 1]
    places = np.concatenate([[0], np.cumsum(ends - begins + 1)])
    ids = np.empty(int(places[-1]), dtype=np.uint32)
    kernels.gather(text.ids, begins, ends, ids)
    return ids, places


@lru_cache(maxsize=2)
def _order(texts: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of texts in a pass: files are often sorted by label, which no one learns from."""
    return np.random.default_rng([seed, epoch]).permutation(texts)


@dataclass
class _Content:
    """A planned block."""

    rows: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]
    answers: npt.NDArray[np.int32]
    marks: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]


class TextBlocks:
    """Labelled texts in blocks, in another order in each pass."""

    calm = math.inf

    def __init__(
        self, recipe: ClassifierRecipe, text: TrainingText, labels: npt.NDArray[np.int32], names: int, seed: int
    ) -> None:
        """`labels` has a row for each document, filled up with -1; they are numbered below `names`."""
        assert isinstance(recipe.buckets, int)
        self.recipe, self.text, self.seed = recipe, text, seed
        self.labels = labels.reshape(len(labels), -1)
        self.label_counts = np.bincount(self.labels[self.labels >= 0], minlength=names).astype(np.int64)
        self.bounds = text_bounds(text)
        self.texts = self.bounds.size - 1
        self.words = len(text.ids)
        self.each = max(1, round(_WORDS * self.texts / max(self.words, 1)))
        self.blocks = -(-self.texts // self.each)
        self.used = np.flatnonzero(mark_buckets(recipe, text)).astype(np.int32)
        self.slots = slots_of(self.used, recipe.buckets, len(text.words))
        self.spelling = self._spell()
        self.tree = label_tree(self.label_counts) if recipe.loss == "hierarchical" else None
        self.alias = alias_table(noise_shares(self.label_counts, _NOISE))
        self.inputs, self.outputs = self._tables(names)
        self.tables: Sequence[Table] = (self.inputs, self.outputs)

    def _spell(self) -> Spelling:
        own = np.arange(len(self.text.words)) >= FIRST_WORD
        own[EOS] = True
        return spell_all(self.text.words, own, self.recipe, self.slots)

    def _tables(self, names: int) -> tuple[Table, Table]:
        rows, dimension = len(self.text.words) + self.used.size, self.recipe.dimension
        inputs = random_table(rows, dimension, self.seed, EOS)
        inputs.matrix()[EOS + 1 : FIRST_WORD] = 0
        return inputs, zeros(names, dimension)

    @property
    def work(self) -> float:
        """Floating-point operations for a word of text, about: rows are added up and moved, labels multiplied."""
        parts = self.spelling.parts.size / len(self.text.words) + self.recipe.word_ngrams - 1
        targets = {"softmax": self.label_counts.size, "negative": _NEGATIVES + 1}.get(self.recipe.loss, 0)
        if self.tree is not None:
            targets = self.tree.nodes.size // self.label_counts.size + 1
        return float(self.recipe.dimension * (2 * parts + 6 * targets * self.texts / max(self.words, 1)))

    def plan(self, epoch: int, block: int) -> Plan:
        """The rows of the block's texts, and what their labels are compared with."""
        texts = _order(self.texts, self.seed, epoch)[block * self.each : (block + 1) * self.each]
        ids, bounds = gather(self.text, self.bounds, texts)
        rows, places = list_rows(ids, bounds, self.spelling, self.recipe.word_ngrams, self.slots)
        answers = np.empty(texts.size, dtype=np.int32)
        kernels.choose_labels(self.labels, texts, self.seed, epoch, answers)
        state = np.uint64(random_start(self.seed, epoch, self.texts + block))
        marks, targets, flags = self._targets(answers, state)
        return Plan((), _Content(rows, places, answers, marks, targets, flags))

    def _targets(self, answers: npt.NDArray[np.int32], state: np.uint64) -> tuple[Any, Any, Any]:
        """Where the targets of each text begin, the targets, and what each should answer."""
        count, labels = answers.size, self.label_counts.size
        marks = np.zeros(count + 1, dtype=np.int64)
        if self.recipe.loss == "softmax":  # all labels are targets of all texts
            return marks, np.arange(labels, dtype=np.int32), np.empty(0, dtype=np.uint8)
        room = count * (_NEGATIVES + 1) if self.tree is None else int(np.diff(self.tree.starts)[answers].sum())
        targets, flags = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.uint8)
        if self.tree is not None:
            follow_paths(answers, count, *self.tree, marks, targets, flags)
            return marks, targets, flags
        none, pool = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32)
        used = draw_noise(answers, count, _NEGATIVES, self.alias, pool, none, state, marks, targets, flags, none)
        return marks, targets[:used], flags[:used]

    def learn(self, plan: Plan, rate: float) -> tuple[float, int]:
        """Learns from a block."""
        block, softmax = plan.content, self.recipe.loss == "softmax"
        loss, examples = kernels.learn_texts(
            block.rows, block.places, block.answers, block.marks, block.targets, block.flags, softmax,
            self.inputs.flat, self.outputs.flat, self.inputs.stride, self.inputs.width, np.float32(rate),
        )  # fmt: skip
        return float(loss), int(examples)

    def model(self, recipe: ClassifierRecipe, job: Job) -> ClassifierModel:
        """The model that has been learnt."""
        return ClassifierModel(
            recipe, job.tokenizer, job.layout, self.inputs.packed(), used=self.used,
            outputs=self.outputs.packed(), labels=job.names, label_counts=self.label_counts,
            counts=self.text.counts, words=self.text.words, phrases=job.phrases,
        )  # fmt: skip


class _Ahead:
    """The same blocks, planned by other threads while one learns."""

    calm = math.inf

    def __init__(self, blocks: TextBlocks, threads: ThreadPoolExecutor) -> None:
        self.tables, self.blocks, self.words, self.work = blocks.tables, blocks.blocks, blocks.words, blocks.work
        self.learn = blocks.learn
        self._plan, self._threads = blocks.plan, threads
        self._planned: dict[int, Future[Plan]] = {}

    def plan(self, epoch: int, block: int) -> Plan:
        """The plan of a block; those of the next ones are begun."""
        number = epoch * self.blocks + block
        numbers = range(number, number + _PLANNED)
        self._planned = {
            n: self._planned.get(n) or self._threads.submit(self._plan, *divmod(n, self.blocks)) for n in numbers
        }
        return self._planned[number].result()


restore = restore_classifier
"""Makes the model of a saved artifact's arrays."""
