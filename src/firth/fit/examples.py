"""Labelled examples of files, lists and built-in sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from firth.errors import CorpusError
from firth.progress import note
from firth.tasks.builtin import builtin_examples
from firth.tasks.examples import Example
from firth.tasks.readers.reader import parse_columns, read_items, read_task
from firth.tasks.recipe import TaskName

Examples = str | Path | Iterable[Any]


def read_all(task: TaskName, given: Examples, *, skip_bad: bool = False, columns: Sequence[str] = ()) -> list[Example]:
    """All examples of a file or a list, or built-in ones; notes what was skipped."""
    if isinstance(given, str | Path) and str(given).startswith("builtin:"):
        return builtin_examples(task, str(given))
    if isinstance(given, str | Path):
        reader = read_task(task, given, skip_bad=skip_bad, columns=parse_columns(columns))
    else:
        reader = read_items(task, given, skip_bad=skip_bad)
    found = list(reader)
    for line in reader.notes():
        note(line)
    if not found:
        raise CorpusError(f"there is no example in {given}: give labelled ones.")
    return found
