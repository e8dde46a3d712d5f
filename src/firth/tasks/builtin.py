"""Built-in labelled tasks from the docstrings of the Python installation.

    classify   which package a text is from
    pair       whether a summary line belongs to a body
    tag        which words of a text are names of parameters
    span       which span of a text describes a parameter
    choice     which of four summary lines belongs to a body
    generate   the summary line of a body

`builtin:pydoc` is nine tenths of the documents, for training, and `builtin:pydoc-dev` the rest.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from firth.errors import CorpusError, near_miss
from firth.tasks.examples import (
    Answer,
    ChoiceExample,
    Example,
    GenerateExample,
    Origin,
    SpanExample,
    TagExample,
    TextExample,
)
from firth.text.pydoc import PydocEntry, pydoc_entries

PARTS = ("builtin:pydoc", "builtin:pydoc-dev")
_HELD_OUT = 10  # every tenth document is for validation
_OPTIONS = 4
_WORD = re.compile(r"\w+|[^\w\s]")
_MAX_LABELS = 12  # the packages with the most documents


def builtin_examples(task: str, name: str, limit: int = 20_000) -> list[Example]:
    """The first `limit` examples of a built-in task."""
    if name not in PARTS:
        raise CorpusError(f"no labelled examples are called {name!r}: {near_miss(name, PARTS)}")
    if task not in _MAKERS:
        raise CorpusError(f"{name} has no examples of {task}: name files of your own.")
    entries = [entry for entry in pydoc_entries() if entry.body]
    held_out = name == PARTS[1]
    mine = [entry for number, entry in enumerate(entries) if (number % _HELD_OUT == 0) == held_out]
    order = random.Random(name).sample(range(len(mine)), len(mine))
    return list(islice(_MAKERS[task]([mine[index] for index in order], name), limit))


def _packages(entries: Sequence[PydocEntry], name: str) -> Iterator[Example]:
    counts = Counter(entry.package for entry in entries)
    known = sorted(counts, key=lambda package: -counts[package])[:_MAX_LABELS]
    for number, entry in enumerate(entries, 1):
        if entry.package in known:
            text = " ".join((entry.summary, entry.body)).replace("\n", " ")
            yield TextExample(text, None, (entry.package,), Origin(name, number))


def _matches(entries: Sequence[PydocEntry], name: str) -> Iterator[Example]:
    for number, entry in enumerate(entries, 1):
        body = entry.body.replace("\n", " ")
        other = entries[number % len(entries)].summary
        belongs = number % 2 == 0
        label = "belongs" if belongs else "other"
        yield TextExample(entry.summary if belongs else other, body, (label,), Origin(name, number))


def _parameters(entries: Sequence[PydocEntry], name: str) -> Iterator[Example]:
    for number, entry in enumerate(entries, 1):
        names = {parameter for parameter, _ in entry.parameters}
        words = _WORD.findall(entry.text)
        tags = tuple("B-PARAM" if word in names else "O" for word in words)
        if "B-PARAM" in tags:
            yield TagExample(tuple(words), tags, True, Origin(name, number))


def _descriptions(entries: Sequence[PydocEntry], name: str) -> Iterator[Example]:
    for number, entry in enumerate(entries, 1):
        if len(entry.parameters) < 2:
            continue
        passage = entry.text.replace("\n", " ")
        parameter, description = entry.parameters[number % len(entry.parameters)]
        text = description.replace("\n", " ")
        start = passage.find(f"{parameter}: {text}") + len(parameter) + 2
        if passage[start : start + len(text)] == text and text:
            yield SpanExample(
                passage, f"what is {parameter}?", (Answer(text, start),), str(number), Origin(name, number)
            )


def _choices(entries: Sequence[PydocEntry], name: str) -> Iterator[Example]:
    for number, entry in enumerate(entries, 1):
        others = [entries[(number + 7 * step) % len(entries)].summary for step in range(1, _OPTIONS)]
        label = number % _OPTIONS
        choices = (*others[:label], entry.summary, *others[label:])
        body = entry.body.replace("\n", " ")
        yield ChoiceExample(body, "The summary is:", choices, label, str(number), Origin(name, number))


def _summaries(entries: Sequence[PydocEntry], name: str) -> Iterator[Example]:
    for number, entry in enumerate(entries, 1):
        yield GenerateExample(entry.body.replace("\n", " "), entry.summary, Origin(name, number))


_MAKERS: dict[str, Callable[[Sequence[PydocEntry], str], Iterator[Example]]] = {
    "classify": _packages,
    "pair": _matches,
    "tag": _parameters,
    "span": _descriptions,
    "choice": _choices,
    "generate": _summaries,
}
