"""Quality: what is measured of a model before and after compression, on the same examples.

An evaluation set has items, each with an answer of a model. The metric is a function of the answers of any rows, so
that both models are resampled together: the interval of their difference is that of paired examples.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Embeds, HasLayers, Scores, TaskPredictor
from firth.errors import AbilityError, CorpusError
from firth.metrics.bootstrap import interval
from firth.metrics.measure import main_metric, measure
from firth.tasks.examples import Example, TextExample, numeric_labels, texts_of, without_labels
from firth.tasks.predictor import Predictor
from firth.tasks.readers.columns import parse_columns
from firth.tasks.readers.reader import read_task
from firth.text.files import find_files
from firth.text.readers import read_lines

Ints = npt.NDArray[np.int64]
_RESAMPLES = 1000
_SLOW_RESAMPLES = 200  # of metrics that are not computed by a few operations on arrays
_MAX_LINES = 1000  # of a text
_TINY = 1e-12


class Side(NamedTuple):
    """A model, and how it makes vectors of texts."""

    model: Any
    pooling: str | None = None

    def embed(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """(texts, dimension)."""
        options = {"pooling": self.pooling} if self.pooling and isinstance(self.model, HasLayers) else {}
        rows: Any = self.model.embed(texts, **options)
        return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())


class EvaluationSet(ABC):
    """Items with a metric of the answers of a model."""

    metric: ClassVar[str]
    is_lower_better: ClassVar[bool] = False
    resamples: int = _RESAMPLES

    def __init__(self, name: str, items: Sequence[Any]) -> None:
        self.name, self.items = name, items

    @abstractmethod
    def use(self, side: Side, items: Sequence[Any]) -> Any:
        """What a model computes of some items: this is what is timed."""

    @abstractmethod
    def answers(self, side: Side) -> Any:
        """The answer of a model to each item."""

    @abstractmethod
    def value(self, answers: Any, rows: Ints) -> float:
        """The metric of the answers of some rows."""

    def texts(self, items: Sequence[Any]) -> int:
        """The number of texts of some items."""
        return len(items)

    def shuffled(self) -> EvaluationSet | None:
        """The same set with the words of each text in a random order; None if that cannot be measured."""
        return None

    @property
    def metric_name(self) -> str:
        return self.metric


class TaskSet(EvaluationSet):
    """Labelled examples of the task that a model was fine-tuned for."""

    metric = "accuracy"

    def __init__(self, name: str, examples: Sequence[Example], predictor: TaskPredictor) -> None:
        super().__init__(name, examples)
        self._predictor = predictor
        self._unlabelled = [without_labels(one) for one in examples]
        self._main = ""
        self._is_simple = False

    def use(self, side: Side, items: Sequence[Any]) -> Any:
        return list(_predictor_of(side.model).stream(map(without_labels, items)))

    def answers(self, side: Side) -> Any:
        found = list(_predictor_of(side.model).stream(self._unlabelled))
        kind, gold, predicted = _inputs(_predictor_of(side.model), self.items, found)
        if not self._main:
            self._main = str(measure(kind, gold, predicted, samples=0)["main"])
            self._is_simple = self._main in ("accuracy", "spearman") and kind not in ("tag", "segment", "multilabel")
            self.resamples = _RESAMPLES if self._is_simple else _SLOW_RESAMPLES
        return [(kind, *pair) for pair in zip(gold, predicted, strict=True)]

    def value(self, answers: Any, rows: Ints) -> float:
        chosen = [answers[row] for row in rows.tolist()]
        kind, gold, predicted = chosen[0][0], [one[1] for one in chosen], [one[2] for one in chosen]
        if self._is_simple and kind == "similarity":
            return spearman(np.array(gold), np.array(predicted))
        if self._is_simple:
            return float(np.mean([true == found for true, found in zip(gold, predicted, strict=True)]))
        found = measure(kind, gold, predicted, samples=0)
        return float(found[main_metric(kind, found)])

    @property
    def metric_name(self) -> str:
        return self._main or self.metric


class PairSet(EvaluationSet):
    """Pairs of texts with a score of their similarity: the rank correlation of the cosines of their vectors."""

    metric = "spearman"

    def __init__(self, name: str, examples: Sequence[TextExample]) -> None:
        super().__init__(name, [(one.text, one.other or "") for one in examples])
        self.gold = np.array(numeric_labels(examples))

    def use(self, side: Side, items: Sequence[Any]) -> Any:
        return side.embed([text for pair in items for text in pair])

    def answers(self, side: Side) -> Any:
        rows = self.use(side, self.items)
        return cosines(rows[0::2], rows[1::2])

    def value(self, answers: Any, rows: Ints) -> float:
        return spearman(self.gold[rows], answers[rows])

    def texts(self, items: Sequence[Any]) -> int:
        return 2 * len(items)

    def shuffled(self) -> PairSet:
        other = copy.copy(self)
        other.items = [(shuffle_words(one), shuffle_words(two)) for one, two in self.items]
        return other


class TextSet(EvaluationSet):
    """Text without labels: the bits per byte of a language model."""

    metric = "bits_per_byte"
    is_lower_better = True

    def use(self, side: Side, items: Sequence[Any]) -> Any:
        return side.model.score(items)

    def answers(self, side: Side) -> Any:
        bits = [(one.bits_per_byte * one.bytes, one.bytes) for one in side.model.score(self.items)]
        return np.array(bits, dtype=np.float64)

    def value(self, answers: Any, rows: Ints) -> float:
        bits, total = answers[rows].sum(axis=0)
        return float(bits / max(total, 1))


class AgreementSet(EvaluationSet):
    """Text without labels, for models that embed: the rank correlation with the original's similarities of lines."""

    metric = "agreement"

    def __init__(self, name: str, items: Sequence[Any], original: Side) -> None:
        super().__init__(name, items)
        order = np.random.default_rng(0).permutation(len(items))
        self._other = order
        self._wanted = self._cosines(original.embed(items))

    def use(self, side: Side, items: Sequence[Any]) -> Any:
        return side.embed(items)

    def answers(self, side: Side) -> Any:
        return self._cosines(side.embed(self.items))

    def _cosines(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return cosines(rows, rows[self._other])

    def value(self, answers: Any, rows: Ints) -> float:
        return spearman(self._wanted[rows], answers[rows])


class Comparison(NamedTuple):
    """The metric of both models on an evaluation set, with 95 % intervals of each and of the loss."""

    name: str
    metric: str
    items: int
    before: float
    before_interval: list[float]
    after: float
    after_interval: list[float]
    loss: float
    """How much worse the second model is, in the unit of the metric; negative if it is better."""
    loss_interval: list[float]


def compare(one: EvaluationSet, before: Side, after: Side, seed: int = 0) -> Comparison:
    """The metric of two models, with intervals from resamples of items that are the same for both."""
    answers = one.answers(before), one.answers(after)
    everything = np.arange(len(one.items))
    values = [one.value(each, everything) for each in answers]
    drawn = np.empty((one.resamples, 2))
    for number in range(one.resamples):
        rows = np.random.default_rng((seed, number)).integers(0, len(everything), len(everything))
        drawn[number] = [one.value(each, rows) for each in answers]
    sign = -1.0 if one.is_lower_better else 1.0
    losses = sign * (drawn[:, 0] - drawn[:, 1])
    return Comparison(
        one.name,
        one.metric_name,
        len(one.items),
        values[0],
        interval(drawn[:, 0]),
        values[1],
        interval(drawn[:, 1]),
        sign * (values[0] - values[1]),
        interval(losses),
    )


def read_set(path: Path, original: Side, compressed_embeds: bool, columns: Sequence[str] = ()) -> EvaluationSet:
    """The evaluation set of a file, by what it holds and what the model can do.

    `compressed_embeds`: whether the result has vectors of texts, but may have lost the probabilities of the original.
    """
    model = original.model
    if isinstance(model, TaskPredictor):
        return task_set(path, model, columns)
    (file,) = find_files([str(path)])
    header = {one.strip().strip('"') for one in next(read_lines(file), (0, ""))[1].replace(",", "\t").split("\t")}
    if "text_b" in header and "score" in header:
        _require_embeds(model, path)
        named = parse_columns(["label=score", *columns])
        examples = [one for one in read_task("pair", path, columns=named) if isinstance(one, TextExample)]
        return PairSet(path.name, examples)
    lines = [line.strip() for _, line in read_lines(file) if line.strip()]
    if len(lines) > _MAX_LINES:  # from all over the text
        lines = [lines[row] for row in np.linspace(0, len(lines) - 1, _MAX_LINES).astype(int).tolist()]
    return text_set(path.name, lines, original, compressed_embeds)


def text_set(name: str, lines: Sequence[str], original: Side, compressed_embeds: bool) -> EvaluationSet:
    """The evaluation set of text without labels."""
    if len(lines) < 2:
        raise CorpusError(f"{name} has fewer than two lines of text: give more with --eval.")
    if isinstance(original.model, Scores) and not compressed_embeds:
        return TextSet(name, lines)
    _require_embeds(original.model, Path(name))
    return AgreementSet(name, lines, original)


def task_set(path: Path, model: Any, columns: Sequence[str] = ()) -> TaskSet:
    """The labelled examples of a file for a model that was fine-tuned for their task."""
    named = parse_columns(model.columns) | parse_columns(columns)
    return TaskSet(path.name, list(read_task(model.task, path, columns=named)), model)


def _require_embeds(model: Any, path: Path) -> None:
    if not isinstance(model, Embeds):
        raise AbilityError(
            f"a {type(model).__name__} makes no vectors of texts, so {path} measures nothing: give a text file "
            "with --eval."
        )


def _predictor_of(model: Any) -> Predictor:
    if not isinstance(model, Predictor):
        raise AbilityError(f"a {type(model).__name__} predicts no labels: choose another --method for this model.")
    return model


def _inputs(model: Predictor, examples: Sequence[Example], answers: Sequence[Any]) -> tuple[str, Any, Any]:
    return model.metric_inputs(examples, answers)


def shuffle_words(text: str) -> str:
    """A text with its words, or the characters of one without spaces, in an order that depends on the text alone.

    >>> sorted(shuffle_words("a b c").split()), shuffle_words("a b c") == shuffle_words("a b c")
    (['a', 'b', 'c'], True)
    """
    joint = " " if " " in text.strip() else ""
    words = np.array(text.split() if joint else list(text), dtype=object)
    return joint.join(words[np.random.default_rng(len(text)).permutation(len(words))])


def spearman(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> float:
    """The rank correlation; ties have their mean rank, and a constant has none: 0.

    >>> spearman(np.array([1, 2, 3, 3]), np.array([10.0, 20.0, 30.0, 30.0]))
    1.0
    """
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    first, second = (rank - rank.mean() for rank in (rankdata(one), rankdata(two)))
    spread = float(np.sqrt((first @ first) * (second @ second)))
    return round(float(first @ second) / spread, 12) if spread else 0.0


def cosines(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The cosine of each pair of rows; 0 for rows of zeros."""
    one, two = one.astype(np.float64), two.astype(np.float64)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return np.asarray((one * two).sum(1) / np.maximum(norms, _TINY))


def sample_texts(sets: Sequence[EvaluationSet]) -> list[str]:
    """The texts of evaluation sets."""
    found: list[str] = []
    for one in sets:
        for item in one.items:
            found += [item] if isinstance(item, str) else list(item) if isinstance(item, tuple) else texts_of(item)
    return found
