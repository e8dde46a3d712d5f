"""Predictions for the examples of a file, and their evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any, ClassVar, cast

from firth.abilities import Predicts, TaskPredictor, for_task
from firth.errors import AbilityError
from firth.metrics.labels import matching_label
from firth.progress import note
from firth.tasks.examples import Example, TagExample, TextExample, without_labels
from firth.tasks.predictor import MetricInputs, Prediction, Predictor
from firth.tasks.readers.columns import parse_columns
from firth.tasks.readers.reader import read_task


class ClassifierAdapter(Predictor):
    """A text classifier, such as fastText's, with the predictions and metrics of `classify`."""

    task = "classify"
    chunk: ClassVar[int] = 20_000

    def __init__(self, model: Predicts, count: int | None = None) -> None:
        """count: number of labels for each text; None: all."""
        self.model, self.labels = model, model.labels
        self.columns: Sequence[str] = ("text=text",)
        self.tokenizer: Any = cast(Any, model).tokenizer
        self._count = count or len(self.labels)

    def predict_chunk(self, examples: Sequence[Example]) -> list[Prediction]:
        found = self.model.predict([one.text for one in cast(Sequence[TextExample], examples)], self._count)
        return [{"label": best[0][0], "probability": best[0][1], "probabilities": dict(best)} for best in found]

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        """The inputs of `measure`; of several gold labels any is correct."""
        predicted = [answer["label"] for answer in answers]
        known = [one.labels for one in cast(Sequence[TextExample], examples)]
        return "classify", [matching_label(*pair) for pair in zip(predicted, known, strict=True)], predicted


def predict_file(
    model: TaskPredictor,
    path: Path,
    *,
    encoding: str | None = None,
    skip_bad: bool = False,
    labelled: bool = False,
    columns: Sequence[str] = (),
) -> Iterator[tuple[Any, Prediction]]:
    """Each example of a file with its prediction; afterwards a note on what was skipped.

    With `labelled` the file is read as for training. Otherwise labels are not read, and a file without columns is plain
    text with one example per line, blank lines included. `columns` (ROLE=NAME) take precedence over the model's.
    """
    named = parse_columns(model.columns) | parse_columns(columns)
    reader = read_task(model.task, path, skip_bad=skip_bad, encoding=encoding, columns=named, labelled=labelled)
    examples, inputs = tee(reader)
    yield from zip(examples, model.stream(map(without_labels, inputs)), strict=False)
    for line in reader.notes():
        note(line)


def evaluate_task(
    model: Any,
    path: Path,
    *,
    task: str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    columns: Sequence[str] = (),
) -> dict[str, Any]:
    """The metrics of a model on labelled examples with their intervals, and those of a trivial baseline.

    `task` names one of several that the model was fine-tuned for.
    """
    predictor = require_task_predictor(model, task)
    examples, answers = predict_labelled(predictor, path, skip_bad=skip_bad, columns=columns)
    return {"task": predictor.task} | predictor.measure(examples, answers, seed=seed)


def require_task_predictor(model: Any, task: str | None = None) -> TaskPredictor:
    """The model, its part for the `task` of that name, or an adapter of a classifier; else `AbilityError`."""
    found = for_task(model, task)
    if isinstance(found, TaskPredictor):
        return found
    if isinstance(found, Predicts):
        return ClassifierAdapter(found)
    raise AbilityError(f"a {type(model).__name__} was not fine-tuned for a task: make one with firth finetune.")


def require_predicts(model: Any) -> Predicts:
    """The model, if it is a text classifier; raises `AbilityError` otherwise."""
    if isinstance(model, TaskPredictor):
        raise AbilityError(f"a {type(model).__name__} was fine-tuned for a task: evaluate it with the suite task.")
    if not isinstance(model, Predicts):
        raise AbilityError(
            f"a {type(model).__name__} predicts no labels: use a classifier, such as fasttext-classifier makes."
        )
    return model


def predict_labelled(
    model: TaskPredictor, path: Path, *, skip_bad: bool = False, columns: Sequence[str] = ()
) -> tuple[list[Any], list[Prediction]]:
    """All labelled examples of a file and their predictions, with a note on labels unknown to the model."""
    found = list(predict_file(model, path, skip_bad=skip_bad, labelled=True, columns=columns))
    examples, answers = [one for one, _ in found], [answer for _, answer in found]
    known = set(getattr(model, "labels", ()))
    if unknown := sorted(known and {label for one in examples for label in _labels(one)} - known):
        shown = ", ".join(unknown[:5]) + ", ..." * (len(unknown) > 5)
        note(f"labels unknown to the model, for which every prediction counts as wrong: {shown}")
    return examples, answers


def _labels(example: Example) -> Sequence[str]:
    """The labels of a text, or the tags of words."""
    if isinstance(example, TextExample):
        return example.labels or ()
    return (example.tags or ()) if isinstance(example, TagExample) else ()
