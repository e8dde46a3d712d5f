"""What a fine-tuned model says of the examples of a file, and how good that is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import Any

from firth.abilities import Solves
from firth.errors import AbilityError, CorpusError
from firth.progress import note
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
    for answer in model.stream(asked):
        empty = False
        yield next(given), answer
    for line in reading.notes():
        note(line)
    if empty:
        raise CorpusError(f"there is no example in {path}: name a file with some.")


def evaluate_task(model: Any, path: Path, *, seed: int = 0, skip_bad: bool = False) -> dict[str, Any]:
    """The metrics of a fine-tuned model on labelled examples, each with its interval, beside a trivial baseline."""
    if not isinstance(model, Solves):
        raise AbilityError(f"a {type(model).__name__} was not fine-tuned for a task: make one with firth finetune.")
    found = list(solve_file(model, path, skip_bad=skip_bad, labelled=True))
    return {"task": model.task} | model.measure([one for one, _ in found], [answer for _, answer in found], seed=seed)
