"""What a fine-tuned model says of the examples of a file, and how good that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import Any

from firth.abilities import Predicts, Solves
from firth.apply.labels import Labeller
from firth.errors import AbilityError, CorpusError
from firth.progress import note
from firth.tasks.examples import ChoiceExample, Example, SpanExample, TagExample, TextExample
from firth.tasks.reading import parse_fields, read_task

Answered = tuple[Any, dict[str, Any]]
"""An example and its answer."""


def solve_file(
    model: Solves, path: Path, *, encoding: str | None = None, skip_bad: bool = False, labelled: bool = False
) -> Iterator[Answered]:
    """Each example of a file with its answer; tells afterwards what was left out."""
    fields = parse_fields(model.fields)
    reading = read_task(model.task, path, skip_bad=skip_bad, encoding=encoding, fields=fields, labelled=labelled)
    given, asked = tee(reading)
    empty = True
    for answer in model.stream(map(without_answer, asked)):
        empty = False
        yield next(given), answer
    for line in reading.notes():
        note(line)
    if empty:
        raise CorpusError(f"there is no example in {path}: name a file with some.")


def without_answer(example: Example) -> Example:
    """An example as a model is asked it: what is right is not told, and may be a label that it has never seen.

    >>> without_answer(TextExample("a fine film", labels=("good",)))
    TextExample(text='a fine film', other=None, labels=None, origin=Origin(source='', number=0))
    """
    match example:
        case TextExample():
            return replace(example, labels=None)
        case TagExample():
            return replace(example, tags=None)
        case SpanExample():
            return replace(example, answers=None)
        case ChoiceExample():
            return replace(example, label=None)
        case _:
            return replace(example, target=None)


def evaluate_task(model: Any, path: Path, *, seed: int = 0, skip_bad: bool = False) -> dict[str, Any]:
    """The metrics of a fine-tuned model on labelled examples, each with its interval, beside a trivial baseline."""
    solver = require_solves(model)
    examples, answers = answer_task(solver, path, skip_bad=skip_bad)
    return {"task": solver.task} | solver.measure(examples, answers, seed=seed)


def require_solves(model: Any) -> Solves:
    """The model, if it does a task, or what asks it for labels; `AbilityError` otherwise."""
    if isinstance(model, Solves):
        return model
    if isinstance(model, Predicts):
        return Labeller(model)
    raise AbilityError(f"a {type(model).__name__} was not fine-tuned for a task: make one with firth finetune.")


def answer_task(model: Solves, path: Path, *, skip_bad: bool = False) -> tuple[list[Any], list[dict[str, Any]]]:
    """All labelled examples of a file, and the answers of a fine-tuned model to them."""
    found = list(solve_file(model, path, skip_bad=skip_bad, labelled=True))
    examples, answers = [one for one, _ in found], [answer for _, answer in found]
    known = set(getattr(model, "labels", ()))
    if unlearnt := sorted(known and {label for one in examples for label in labels_of(one)} - known):
        shown = ", ".join(unlearnt[:5]) + ", ..." * (len(unlearnt) > 5)
        note(f"labels that were never learnt, so that whatever is said counts as wrong: {shown}")
    return examples, answers


def labels_of(example: Example) -> Sequence[str]:
    """The labels of a text, or the tags of words."""
    if isinstance(example, TextExample):
        return example.labels or ()
    return (example.tags or ()) if isinstance(example, TagExample) else ()
