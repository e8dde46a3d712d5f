"""Predictor: what all models of a task have in common, from items to predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, cast

from firth.arguments import ChecksArguments
from firth.metrics.measure import measure
from firth.metrics.tags import scheme_of
from firth.progress import progress
from firth.summaries import SummarisedModel
from firth.tasks.examples import Example, TagExample, TextExample, numeric_labels
from firth.tasks.readers.reader import read_items

Prediction = dict[str, Any]  # a JSON object
TRUNCATED = "truncated"
"""The key of a prediction whose input was truncated."""
DROPPED = "dropped_facts"
"""The key of the number of facts that had no room in an input."""
MetricInputs = tuple[str, Sequence[Any], Sequence[Any]]
"""The name of the metrics, the references and the predictions, as `measure` takes them."""
_THRESHOLD = 0.5  # probability from which on a label is predicted in multi-label classification


class Predictor(SummarisedModel, ChecksArguments, ABC):
    """A model that predicts for any number of examples of a task."""

    chunk: ClassVar[int] = 4096
    """Number of examples predicted together, so that those of similar length share batches."""
    task: str

    def predict(self, items: Iterable[Any]) -> list[Prediction]:
        """A dictionary for each item; docs/tasks.md describes the items and predictions of each task.

        classify and generate: a text; pair: two texts; tag: words or a text; span: a dictionary with passage and
        question; choice: one with context, question and choices.
        """
        return self.predict_examples(list(read_items(self.task, items, labelled=False)))

    def predict_examples(self, examples: Sequence[Example]) -> list[Prediction]:
        """Predictions for examples, with a progress bar."""
        with progress("predicting", len(examples), "examples") as advance:
            return list(self.stream(examples, advance))

    def stream(self, examples: Iterable[Example], advance: Any = None) -> Iterator[Prediction]:
        """Predictions one after the other, for files of any length."""
        remaining = iter(examples)
        while chunk := list(islice(remaining, self.chunk)):
            yield from self.predict_chunk(chunk)
            if advance is not None:
                advance(len(chunk))

    @abstractmethod
    def predict_chunk(self, examples: Sequence[Example]) -> list[Prediction]:
        """Predictions for some examples."""

    @abstractmethod
    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        """The inputs of `measure`."""

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Prediction], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """Metrics with confidence intervals, and those of a trivial baseline."""
        return measure(*self.metric_inputs(examples, answers), seed=seed, samples=samples)


def with_truncation(prediction: Prediction, truncated: bool, dropped: int = 0) -> Prediction:
    """The prediction, which says so if its input was truncated, or if facts of a knowledge graph had no room in it.

    >>> with_truncation({"label": "good"}, True), with_truncation({"label": "good"}, False, 3)
    ({'label': 'good', 'truncated': True}, {'label': 'good', 'dropped_facts': 3})
    """
    prediction = prediction | {TRUNCATED: True} if truncated else prediction
    return prediction | {DROPPED: dropped} if dropped else prediction


def count_truncated(predictions: Iterable[Prediction]) -> int:
    """The number of predictions whose inputs were truncated."""
    return sum(TRUNCATED in one for one in predictions)


def single_label(labels: Sequence[str], probabilities: Sequence[float]) -> Prediction:
    """The likeliest label and the probabilities of all.

    >>> single_label(["good", "bad"], [0.75, 0.25])
    {'label': 'good', 'probability': 0.75, 'probabilities': {'good': 0.75, 'bad': 0.25}}
    """
    found = dict(zip(labels, probabilities, strict=True))
    best = max(probabilities)
    return {"label": labels[list(probabilities).index(best)], "probability": best, "probabilities": found}


def multiple_labels(labels: Sequence[str], probabilities: Sequence[float]) -> Prediction:
    """The labels of multi-label classification and the probabilities of all."""
    found = dict(zip(labels, probabilities, strict=True))
    return {"labels": [label for label, p in found.items() if p >= _THRESHOLD], "probabilities": found}


def text_metric_inputs(
    task: str, form: str, examples: Sequence[Example], answers: Sequence[Prediction]
) -> MetricInputs:
    """The metric inputs of classify and pair."""
    texts = cast(Sequence[TextExample], examples)
    if form == "number":
        return "similarity", numeric_labels(texts), [one["score"] for one in answers]
    if form == "multi":
        return "multilabel", [one.labels or () for one in texts], [one["labels"] for one in answers]
    return task, [(one.labels or ("",))[0] for one in texts], [one["label"] for one in answers]


def tag_metric_inputs(examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
    """The metric inputs of tag; BIES tags of characters are evaluated as word segmentation."""
    gold = [list(cast(TagExample, one).tags or ()) for one in examples]
    kind = "segment" if scheme_of([tag for tags in gold for tag in tags]) == "BIES" else "tag"
    return kind, gold, [one["tags"] for one in answers]
