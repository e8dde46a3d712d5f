"""Multi-prototype vectors: several for words with several senses (Huang et al. 2012).

Vectors are trained twice: first of words, whose contexts are clustered into senses; then every word of the text is
replaced by its most probable sense, and vectors of these are trained.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, reading
from firth.progress import note
from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.training import Arrays, Checkpoint, Checkpointer
from firth.vectors.clusters import SenseInventory, find_senses, relabel_text
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.lookup import NoVectorError, saved_counts, saved_matrix, saved_vector
from firth.vectors.loop import auto_epochs
from firth.vectors.model import VectorModel
from firth.vectors.neighbours import Floats, unit
from firth.vectors.phrases import phrase_words, saved_phrases
from firth.vectors.recipe import SenseRecipe
from firth.vectors.word2vec import train_word2vec

_EXAMPLES = 10  # ambiguous words reported in the metrics
_NEAREST = 5  # neighbours of each sense
_FIRST_FRACTION = 0.5  # of a budget for the first training
_FIRST_TIME = 0.4  # of a time budget: sense induction takes time, too
_MIN_SECOND = 0.1  # fraction of a time budget for the second training, however long the first stage took
_MAX_EPOCHS = 100  # of a short text
_SAVED = ("senses", "centres", "priors", "sharpness", "contexts", "idf")


class SenseModel(VectorModel):
    """Sense vectors: row `i` is the vector of `words[i]`, an unambiguous word, or bank#1, bank#2, ...

    An ambiguous word without context stands for all its senses, weighted by frequency.
    """

    def __init__(self, *arguments: Any, senses: SenseInventory, **others: Any) -> None:
        """`arguments` and `others` are those of `VectorModel`."""
        super().__init__(*arguments, **others)
        self.inventory = senses

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | _senses_to_arrays(self.inventory)

    @property
    def names(self) -> list[str]:
        """The word of each row, without sense numbers."""
        found = list(self.words)
        for word in self._vocabulary:
            for row in self.rows_of(word):
                found[row] = word
        return found

    def senses(self, word: str) -> list[str]:
        """The names of a word's senses, most frequent first; an unambiguous word is its own name."""
        return [self.words[row] for row in self.rows_of(word)]

    def sense(self, word: str, context: str) -> tuple[str, float]:
        """The most probable sense of a word in a text, and its probability."""
        rows, probabilities = self._context_probabilities(word, context)
        best = int(probabilities.argmax())
        return self.words[rows[best]], float(probabilities[best])

    def rows_of(self, word: str) -> range:
        """The rows of a word's senses, or of a sense; raises `AbilityError` if there are none."""
        if (known := self._find_rows(word)) is None:
            raise NoVectorError(word, self.rows)
        return known

    def find_row(self, word: str) -> int | None:
        """The row of a sense, or of a word's most frequent one; None if there is none."""
        rows = self._find_rows(word)
        return None if rows is None else rows.start

    def vector(self, word: str) -> Floats:
        """The vector of a sense; for an ambiguous word the mean weighted by frequency."""
        rows, priors = self._frequencies(word)
        return np.asarray(priors @ self.vectors[rows], dtype=np.float32)

    def similarity(self, one: str, two: str) -> float:
        """The mean cosine of the words' senses, weighted by frequency (AvgSim)."""
        return self._mean_cosine(self._frequencies(one), self._frequencies(two))

    def similarity_in_context(self, one: str, context: str, two: str, other: str) -> float:
        """The mean cosine of the words' senses, weighted by their probabilities in context (AvgSimC)."""
        return self._mean_cosine(self._context_probabilities(one, context), self._context_probabilities(two, other))

    def max_similarity_in_context(self, one: str, context: str, two: str, other: str) -> float:
        """The cosine of the most probable senses in context (MaxSimC)."""
        return self.similarity(self.sense(one, context)[0], self.sense(two, other)[0])

    def _queries(self, word: str, context: str | None) -> list[Floats]:
        rows = self.rows_of(word) if context is None else self.rows_of(self.sense(word, context)[0])
        return [self.vectors[row] for row in rows]

    def _rows_of_ids(self, ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        rows = np.empty_like(ids)
        self.inventory.relabel(ids, bounds, rows)
        return rows

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        words = phrase_words(self.phrases, self.tokenizer.vocabulary)
        return {word: number for number, word in enumerate(words) if number >= FIRST_WORD}

    def _find_rows(self, word: str) -> range | None:
        for one in (word, self.normalize(word)):
            if one in self.rows:
                return range(self.rows[one], self.rows[one] + 1)
        number = self._look_up(word, self._vocabulary)
        starts = self.inventory.starts
        return None if number is None else range(int(starts[number]), int(starts[number + 1]))

    def _known(self, words: Sequence[str]) -> list[int]:
        return [row for word in words for row in self._find_rows(word) or ()]

    def _frequencies(self, word: str) -> tuple[range, npt.NDArray[np.float64]]:
        rows = self.rows_of(word)
        counts = np.ones(len(rows)) if self.counts is None else self.counts[rows.start : rows.stop].astype(np.float64)
        total = counts.sum()
        return rows, counts / total if total else np.full(len(rows), 1 / len(rows))

    def _context_probabilities(self, word: str, context: str) -> tuple[range, npt.NDArray[np.float64]]:
        """The rows of a word's senses and their probabilities in a text."""
        rows = self.rows_of(word)
        if len(rows) == 1:
            return rows, np.ones(1)
        number = int(np.searchsorted(self.inventory.starts, rows.start, side="right")) - 1
        ids, _ = self.encode([context])
        return rows, self.inventory.probabilities(number, self.inventory.context(ids, number))

    def _mean_cosine(self, one: tuple[range, Any], two: tuple[range, Any]) -> float:
        first, second = (sum(p * unit(self.vectors[row]) for row, p in zip(*part, strict=True)) for part in (one, two))
        return float(np.clip(np.dot(first, second), -1, 1))


def train_senses(recipe: SenseRecipe, job: VectorJob) -> VectorResult:
    """Sense vectors of a text."""
    text = job.text
    text.require_words(2)
    recipe = replace(recipe, base=replace(recipe.base, tokenizer=recipe.tokenizer))
    stages = _StagedCheckpointer(job.checkpointer)
    job = replace(_with_min_words(recipe, job), checkpointer=None if job.checkpointer is None else stages)
    job = replace(job, lr_field="base.lr")
    senses, facts = stages.senses(recipe.window) or _induce_senses(recipe, job, stages)
    relabelled = relabel_text(text, senses, job.threads)
    ambiguous = int(np.count_nonzero(np.diff(senses.starts) > 1))
    note(f"words with several senses: {ambiguous:,}")
    trained = train_word2vec(recipe.base, replace(_second_budget(job, facts), text=relabelled, phrases=None))
    base = trained.model
    recipe = replace(recipe, base=base.recipe)
    others = {"counts": base.counts, "outputs": base.outputs, "words": relabelled.words}
    model = job.build(SenseModel, recipe, base.vectors, senses=senses, **others)
    words = {"words": len(text.words) - FIRST_WORD, "ambiguous": ambiguous, "examples": _examples(model, text.words)}
    metrics = trained.metrics | {"first_losses": facts["losses"]} | words
    return VectorResult(model, facts["tokens"] + trained.tokens, metrics, trained.records)


def _induce_senses(
    recipe: SenseRecipe, job: VectorJob, stages: _StagedCheckpointer
) -> tuple[SenseInventory, dict[str, Any]]:
    """The senses found with word vectors, and the tokens, losses and seconds spent on them."""
    started = time.monotonic()
    seconds = None if job.seconds is None else _FIRST_TIME * job.seconds
    trained = train_word2vec(recipe.base, replace(_scale_budget(job, _FIRST_FRACTION), seconds=seconds))
    senses = find_senses(recipe, job.text, trained.model.vectors, job.seed, job.threads)
    seconds = time.monotonic() - started
    facts = {"tokens": trained.tokens, "losses": trained.metrics["losses"], "seconds": seconds}
    stages.begin_second(senses, facts)
    return senses, facts


def _second_budget(job: VectorJob, facts: Mapping[str, Any]) -> VectorJob:
    """The job with what the first training has left of its budget."""
    left = None if job.seconds is None else max(job.seconds - facts["seconds"], _MIN_SECOND * job.seconds)
    return replace(_scale_budget(job, 1 - _FIRST_FRACTION), seconds=left)


def _with_min_words(recipe: SenseRecipe, job: VectorJob) -> VectorJob:
    """The job with a budget in words, for both trainings, if the text is short and has none."""
    size = len(job.text.ids)
    epochs = auto_epochs(size) if recipe.base.epochs == "auto" else recipe.base.epochs
    if job.has_budget or epochs * size >= recipe.min_training_words:
        return job
    return replace(job, tokens=2 * max(epochs * size, min(recipe.min_training_words, _MAX_EPOCHS * size)))


def _scale_budget(job: VectorJob, fraction: float) -> VectorJob:
    return replace(
        job,
        tokens=None if job.tokens is None else max(1, round(fraction * job.tokens)),
        flops=None if job.flops is None else fraction * job.flops,
    )


def _examples(model: SenseModel, words: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    starts, counts = model.inventory.starts, model.counts
    assert counts is not None
    ambiguous = np.flatnonzero(np.diff(starts) > 1)
    totals = np.add.reduceat(counts, starts[:-1])[ambiguous]
    found = {}
    for word in ambiguous[np.argsort(-totals, kind="stable")][:_EXAMPLES].tolist():
        names = model.words[starts[word] : starts[word + 1]]
        found[words[word]] = {name: [near for near, _ in model.similar(name, _NEAREST)] for name in names}
    return found


@dataclass
class _StagedCheckpointer:
    """Checkpoints of both trainings; those of the second include the senses."""

    checkpointer: Checkpointer | None
    sense_arrays: Arrays = field(default_factory=dict)
    facts: dict[str, Any] | None = None

    @cached_property
    def _checkpoint(self) -> Checkpoint | None:
        return self.checkpointer.load() if self.checkpointer is not None else None

    def senses(self, window: int) -> tuple[SenseInventory, dict[str, Any]] | None:
        """The senses and facts of a run that was interrupted in its second training."""
        found = self._checkpoint
        with reading("the checkpoint", "remove it and train again"):
            if found is None or found[1]["facts"] is None:
                return None
            self.sense_arrays = {name: np.array(found[0][name]) for name in _SAVED}
            self.facts = dict(found[1]["facts"])
            return _senses_from_arrays(self.sense_arrays, window), self.facts

    def begin_second(self, senses: SenseInventory, facts: dict[str, Any]) -> None:
        """Saves the senses at once: inducing them again would take long."""
        self.sense_arrays, self.facts = _senses_to_arrays(senses), facts
        if self.checkpointer is not None:
            self.checkpointer.save(self.sense_arrays, {"facts": facts, "loop": None})

    def due(self) -> bool:
        return self.checkpointer is not None and self.checkpointer.due()

    def save(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        assert self.checkpointer is not None
        self.checkpointer.save({**self.sense_arrays, **arrays}, {"facts": self.facts, "loop": dict(state)})

    def load(self) -> Checkpoint | None:
        """The state of this training, if the checkpoint belongs to it."""
        found = self._checkpoint
        if found is None or found[1]["loop"] is None or (found[1]["facts"] is None) != (self.facts is None):
            return None
        return found[0], found[1]["loop"]


def _senses_to_arrays(senses: SenseInventory) -> Arrays:
    found = (senses.starts, senses.centres, senses.priors, senses.sharpness, senses.vectors, senses.idf)
    return dict(zip(_SAVED, found, strict=True))


def _senses_from_arrays(arrays: Mapping[str, Any], window: int) -> SenseInventory:
    starts, centres, priors, sharpness, contexts, idf = (np.array(arrays[name]) for name in _SAVED)
    return SenseInventory(starts, centres, priors, sharpness, contexts, idf, window)


def restore_senses(recipe: SenseRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> SenseModel:
    """The model of a saved artifact's arrays."""
    phrases, words = saved_phrases(arrays, tokenizer)
    starts = saved_vector(arrays, "senses", np.int64, len(words) + 1)
    counts = np.diff(starts)
    if starts[0] != 0 or counts.min() < 1 or counts.max() > recipe.max_senses or np.any(counts[:FIRST_WORD] != 1):
        raise ArtifactError("the array 'senses' is damaged: train the model again.")
    contexts = saved_matrix(arrays, "contexts", len(words))
    ambiguous = int(counts[counts > 1].sum())
    saved_vector(arrays, "idf", np.float32, len(words))
    priors, sharpness = (saved_vector(arrays, name, np.float32, ambiguous) for name in ("priors", "sharpness"))
    centres = arrays.get("centres")
    if centres is None or centres.dtype != np.float32 or centres.shape != (ambiguous, contexts.shape[1]):
        raise ArtifactError("the array 'centres' is missing or has a wrong shape: train the model again.")
    if not (np.all(priors > 0) and np.all(np.isfinite(sharpness))):
        raise ArtifactError("the arrays 'priors' and 'sharpness' are damaged: train the model again.")
    senses = _senses_from_arrays(arrays, recipe.window)
    rows = int(starts[-1])
    return SenseModel(
        recipe, tokenizer, layout, saved_matrix(arrays, "vectors", rows), senses=senses, phrases=phrases,
        words=senses.names(words), counts=saved_counts(arrays, "counts", rows),
        outputs=saved_matrix(arrays, "outputs", rows),
    )  # fmt: skip
