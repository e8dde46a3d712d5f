"""Several vectors for words that have several meanings (Huang et al. 2012).

Vectors are trained twice: first for words, whose contexts are clustered into senses; then every word of the text is
given the name of the sense that is meant there, and vectors are trained for these names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError
from firth.progress import note
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _neighbour_kernels as kernels
from firth.vectors.clusters import Senses, find_senses, relabel_text
from firth.vectors.job import Arrays, Job, Keeper, Result
from firth.vectors.lookup import Found, NoVectorError, saved_vector
from firth.vectors.model import VectorModel, saved_matrix
from firth.vectors.neighbours import Floats, unit
from firth.vectors.phrases import phrase_words, saved_phrases
from firth.vectors.recipe import SenseRecipe
from firth.vectors.text import FIRST_WORD
from firth.vectors.word2vec import train_word2vec

_EXAMPLES = 10  # words whose senses are told with the metrics
_NEAREST = 5  # neighbours of each of them
_FIRST_SHARE = 0.5  # of a budget that is for the first vectors
_FIRST_TIME = 0.4  # of a budget of time likewise: telling senses apart takes time, too
_LEAST_SHARE = 0.1  # of a budget of time that is left for the second vectors, however long the senses took
_MOST_PASSES = 100  # over a short text
_TEXTS = 20_000  # that are encoded at once
_SAVED = ("senses", "centres", "shares", "sharpness", "contexts", "idf")


class SenseModel(VectorModel):
    """Senses as vectors: row `i` is the vector of `words[i]`, a word that has one sense, or bank#1, bank#2, ...

    A word by itself stands for all its senses, each as much as it is frequent.
    """

    def __init__(
        self, recipe: SenseRecipe, tokenizer: Tokenizer, layout: Layout, vectors: Floats, *, senses: Senses, **rest: Any
    ) -> None:
        """`rest` is that of `VectorModel`."""
        super().__init__(recipe, tokenizer, layout, vectors, **rest)
        self.inventory = senses

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        return super().arrays() | _senses_to_arrays(self.inventory)

    @property
    def names(self) -> list[str]:
        """The word of each row, whatever its sense."""
        found = list(self.words)
        for word in self._vocabulary:
            for row in self.rows_of(word):
                found[row] = word
        return found

    def senses(self, word: str) -> list[str]:
        """The names of a word's senses, the most frequent first; a word with one sense is its own name."""
        return [self.words[row] for row in self.rows_of(word)]

    def sense(self, word: str, context: str) -> tuple[str, float]:
        """The sense of a word that is meant in a text, and how probable it is."""
        rows, chances = self._in_context(word, context)
        best = int(chances.argmax())
        return self.words[rows[best]], float(chances[best])

    def rows_of(self, word: str) -> range:
        """The rows of a word's senses, or of a sense; a word that is not there raises `AbilityError`."""
        known = self._find(word)
        if known is None:
            raise NoVectorError(word, self.rows)
        return known

    def find(self, word: str) -> int | None:
        """The row of a sense, or of a word's most frequent one; None if there is none."""
        rows = self._find(word)
        return None if rows is None else rows.start

    def vector(self, word: str) -> Floats:
        """The vector of a sense; for a word with several the mean, each counting as much as it is frequent."""
        rows, shares = self._weighed(word)
        return np.asarray(shares @ self.vectors[rows], dtype=np.float32)

    def similarity(self, one: str, two: str) -> float:
        """The mean cosine of the words' senses, each as much as it is frequent (AvgSim)."""
        return self._mean_cosine(self._weighed(one), self._weighed(two))

    def similarity_in_context(self, one: str, context: str, two: str, other: str) -> float:
        """The mean cosine of the words' senses, each as much as it is probable in its text (AvgSimC)."""
        return self._mean_cosine(self._in_context(one, context), self._in_context(two, other))

    def max_similarity_in_context(self, one: str, context: str, two: str, other: str) -> float:
        """The cosine of the senses that are most probable in their texts (MaxSimC)."""
        return self.similarity(self.sense(one, context)[0], self.sense(two, other)[0])

    def similar(
        self,
        word: str,
        count: int = 10,
        *,
        context: str | None = None,
        exclude: Sequence[str] = (),
        approximate: bool = False,
    ) -> Found:
        """The nearest senses: to the one that the context tells, or to any of the word's, by the best cosine."""
        rows = self.rows_of(word) if context is None else self.rows_of(self.sense(word, context)[0])
        leave_out = self._known([word, *exclude])
        search = self.index() if approximate else self.neighbours
        best: dict[int, float] = {}
        for row in rows:
            for other, score in search.nearest(self.vectors[row], count, leave_out):
                best[other] = max(score, best.get(other, -1.0))
        ordered = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
        return self._named(ordered[: max(count, 0)])

    def embed(self, texts: Sequence[str]) -> Floats:
        """The mean vector of the senses that are meant in each text; zeros if none of its words has one."""
        means = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        for begin in range(0, len(texts), _TEXTS):
            ids, bounds = self.encode(texts[begin : begin + _TEXTS])
            rows = np.empty_like(ids)
            self.inventory.relabel(ids, bounds, rows)
            kernels.mean_rows(self.neighbours.vectors, rows, bounds, FIRST_WORD, means[begin : begin + _TEXTS])
        return means

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        """The number of each word, whatever its senses."""
        words = self.tokenizer.vocabulary
        words = words if self.phrases is None else phrase_words(self.phrases, words)
        return {word: number for number, word in enumerate(words) if number >= FIRST_WORD}

    def _number(self, word: str) -> int | None:
        """The number of a word as it is given, or as the tokenizer writes it; None if it is none."""
        for one in (word, self.written(word)):
            if one in self._vocabulary:
                return self._vocabulary[one]
        ids, _ = self.encode([self.written(word)])
        return int(ids[0]) if ids.size == 1 and ids[0] >= FIRST_WORD else None

    def _find(self, word: str) -> range | None:
        """The rows of a word or of a sense."""
        for one in (word, self.written(word)):
            if one in self.rows:
                return range(self.rows[one], self.rows[one] + 1)
        number = self._number(word)
        starts = self.inventory.starts
        return None if number is None else range(int(starts[number]), int(starts[number + 1]))

    def _known(self, words: Sequence[str]) -> list[int]:
        return [row for word in words for row in self._find(word) or ()]

    def _weighed(self, word: str) -> tuple[range, npt.NDArray[np.float64]]:
        """The rows of a word's senses and how frequent each is among them."""
        rows = self.rows_of(word)
        counts = np.ones(len(rows)) if self.counts is None else self.counts[rows.start : rows.stop].astype(np.float64)
        total = counts.sum()
        return rows, counts / total if total else np.full(len(rows), 1 / len(rows))

    def _in_context(self, word: str, context: str) -> tuple[range, npt.NDArray[np.float64]]:
        """The rows of a word's senses and how probable each is in a text."""
        rows = self.rows_of(word)
        if len(rows) == 1:
            return rows, np.ones(1)
        number = int(np.searchsorted(self.inventory.starts, rows.start, side="right")) - 1
        ids, _ = self.encode([context])
        return rows, self.inventory.probabilities(number, self.inventory.context(ids, number))

    def _mean_cosine(self, one: tuple[range, Any], two: tuple[range, Any]) -> float:
        first, second = (sum(p * unit(self.vectors[row]) for row, p in zip(*part, strict=True)) for part in (one, two))
        return float(np.clip(np.dot(first, second), -1, 1))


def train_senses(recipe: SenseRecipe, job: Job) -> Result:
    """Vectors for the senses of the words of a text."""
    text = job.text
    text.require(2)
    recipe = replace(recipe, base=replace(recipe.base, tokenizer=recipe.tokenizer))
    stages = _Stages(job.keeper)
    job = replace(_long_enough(recipe, job), keeper=None if job.keeper is None else stages)
    senses, facts = stages.senses(recipe.context) or _first_stage(recipe, job, stages)
    relabelled = relabel_text(text, senses, job.threads)
    several = int(np.count_nonzero(np.diff(senses.starts) > 1))
    note(f"words with several senses: {several:,}")
    trained = train_word2vec(recipe.base, replace(_second_share(job, facts), text=relabelled, phrases=None))
    vectors = trained.model
    model = SenseModel(
        replace(recipe, base=vectors.recipe), job.tokenizer, job.layout, vectors.vectors, senses=senses,
        counts=vectors.counts, outputs=vectors.outputs, words=relabelled.words, phrases=job.phrases,
    )  # fmt: skip
    words = {"words": len(text.words) - FIRST_WORD, "ambiguous": several, "examples": _examples(model, text.words)}
    metrics = trained.metrics | {"first_losses": facts["losses"]} | words
    return Result(model, facts["tokens"] + trained.tokens, metrics)


def _first_stage(recipe: SenseRecipe, job: Job, stages: _Stages) -> tuple[Senses, dict[str, Any]]:
    """The senses that vectors of words tell, and what it took to find them."""
    started = time.monotonic()
    seconds = None if job.seconds is None else _FIRST_TIME * job.seconds
    trained = train_word2vec(recipe.base, replace(_share(job, _FIRST_SHARE), seconds=seconds))
    senses = find_senses(recipe, job.text, trained.model.vectors, job.seed, job.threads)
    facts = {
        "tokens": trained.tokens, "losses": trained.metrics["losses"], "seconds": time.monotonic() - started
    }  # fmt: skip
    stages.begin_second(senses, facts)
    return senses, facts


def _second_share(job: Job, facts: Mapping[str, Any]) -> Job:
    """The job with what the first training has left of its budget."""
    left = None if job.seconds is None else max(job.seconds - facts["seconds"], _LEAST_SHARE * job.seconds)
    return replace(_share(job, 1 - _FIRST_SHARE), seconds=left)


def _long_enough(recipe: SenseRecipe, job: Job) -> Job:
    """The job with a budget for a text that is short and has none; it is for both trainings."""
    if job.tokens is not None or job.seconds is not None or job.flops is not None:
        return job
    size = len(job.text.ids)
    if recipe.base.epochs * size >= recipe.exposure:
        return job
    return replace(job, tokens=2 * max(recipe.base.epochs * size, min(recipe.exposure, _MOST_PASSES * size)))


def _share(job: Job, share: float) -> Job:
    """The job with a share of its budget of words or operations."""
    return replace(
        job,
        tokens=None if job.tokens is None else max(1, round(share * job.tokens)),
        flops=None if job.flops is None else share * job.flops,
    )


def _examples(model: SenseModel, words: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """The neighbours of each sense of the most frequent words that have several."""
    starts, counts = model.inventory.starts, model.counts
    assert counts is not None
    several = np.flatnonzero(np.diff(starts) > 1)
    totals = np.add.reduceat(counts, starts[:-1])[several]
    found = {}
    for word in several[np.argsort(-totals, kind="stable")][:_EXAMPLES].tolist():
        names = model.words[starts[word] : starts[word + 1]]
        found[words[word]] = {name: [near for near, _ in model.similar(name, _NEAREST)] for name in names}
    return found


@dataclass
class _Stages:
    """Keeps the state of both trainings; in the second, also the senses that it is about."""

    inner: Keeper | None
    carried: Arrays = field(default_factory=dict)
    facts: dict[str, Any] | None = None

    @cached_property
    def _found(self) -> tuple[Arrays, dict[str, Any]] | None:
        """What an earlier run has kept."""
        return self.inner.kept() if self.inner is not None else None

    def senses(self, window: int) -> tuple[Senses, dict[str, Any]] | None:
        """The senses and facts of a run that was in its second training when it was kept."""
        found = self._found
        if found is None or found[1]["facts"] is None:
            return None
        self.carried = {name: np.array(found[0][name]) for name in _SAVED}
        self.facts = dict(found[1]["facts"])
        return _senses_from_arrays(self.carried, window), self.facts

    def begin_second(self, senses: Senses, facts: dict[str, Any]) -> None:
        """Keeps the senses at once: finding them again would take long."""
        self.carried, self.facts = _senses_to_arrays(senses), facts
        if self.inner is not None:
            self.inner.keep(self.carried, {"facts": facts, "loop": None})

    def due(self) -> bool:
        """Whether it is time to keep the state."""
        return self.inner is not None and self.inner.due()

    def keep(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Keeps the state of a training and what it is about."""
        assert self.inner is not None
        self.inner.keep({**self.carried, **arrays}, {"facts": self.facts, "loop": dict(state)})

    def kept(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The state of this training, if it is the one that was kept."""
        found = self._found
        if found is None or found[1]["loop"] is None or (found[1]["facts"] is None) != (self.facts is None):
            return None
        return found[0], found[1]["loop"]


def _senses_to_arrays(senses: Senses) -> Arrays:
    found = (senses.starts, senses.centres, senses.shares, senses.sharpness, senses.vectors, senses.idf)
    return dict(zip(_SAVED, found, strict=True))


def _senses_from_arrays(arrays: Mapping[str, Any], window: int) -> Senses:
    starts, centres, shares, sharpness, contexts, idf = (np.array(arrays[name]) for name in _SAVED)
    return Senses(starts, centres, shares, sharpness, contexts, idf, window)


def restore(recipe: SenseRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> SenseModel:
    """The model of a saved artifact's arrays."""
    phrases, words = saved_phrases(arrays, tokenizer)
    starts = saved_vector(arrays, "senses", np.int64, len(words) + 1)
    counts = np.diff(starts)
    if starts[0] != 0 or counts.min() < 1 or counts.max() > recipe.senses or np.any(counts[:FIRST_WORD] != 1):
        raise ArtifactError("the array 'senses' is damaged: train the model again.")
    contexts = saved_matrix(arrays, "contexts", len(words))
    several = int(counts[counts > 1].sum())
    saved_vector(arrays, "idf", np.float32, len(words))
    shares, sharpness = (saved_vector(arrays, name, np.float32, several) for name in ("shares", "sharpness"))
    centres = arrays.get("centres")
    if centres is None or centres.dtype != np.float32 or centres.shape != (several, contexts.shape[1]):
        raise ArtifactError("the array 'centres' is missing or has a wrong shape: train the model again.")
    if not (np.all(shares > 0) and np.all(np.isfinite(sharpness))):
        raise ArtifactError("the arrays 'shares' and 'sharpness' are damaged: train the model again.")
    senses = _senses_from_arrays(arrays, recipe.context)
    rows = int(starts[-1])
    return SenseModel(
        recipe, tokenizer, layout, saved_matrix(arrays, "vectors", rows), senses=senses, phrases=phrases,
        words=senses.names(words), counts=saved_vector(arrays, "counts", np.int64, rows),
        outputs=saved_matrix(arrays, "outputs", rows),
    )  # fmt: skip
