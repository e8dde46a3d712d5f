"""Examples: what a task is asked, and the answer where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from firth.errors import CorpusError


class Origin(NamedTuple):
    """Where an example stands."""

    source: str = ""
    """The file; nothing for items from Python."""
    number: int = 0
    """The line, or the item if there is no file, from 1; for JSON that is one value, the number of the question."""

    def __str__(self) -> str:
        return f"{self.source}, line {self.number}" if self.source else f"item {self.number}"


NOWHERE = Origin()


@dataclass(frozen=True, slots=True)
class TextExample:
    """classify and pair: one text or two, and the labels, of which there may be several."""

    text: str
    other: str | None = None
    """The second text of a pair."""
    labels: tuple[str, ...] | None = None
    """None: not known. Where numbers are to be told (similarity), the number as it is written."""
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class TagExample:
    """tag: words, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    spaced: bool = True
    """Whether spaces stand between the words; in Chinese not."""
    origin: Origin = NOWHERE


class Answer(NamedTuple):
    """A piece of a passage."""

    text: str
    start: int
    """Its first character in the passage."""


@dataclass(frozen=True, slots=True)
class SpanExample:
    """span: a question about a passage, and the pieces of it that answer."""

    passage: str
    question: str
    answers: tuple[Answer, ...] | None = None
    """None: not known; empty: the passage has no answer."""
    id: str = ""
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """choice: which of some sentences is right."""

    context: str
    question: str
    choices: tuple[str, ...]
    label: int | None = None
    id: str = ""
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class GenerateExample:
    """generate: a text to be written for another."""

    source: str
    target: str | None = None
    origin: Origin = NOWHERE


Example = TextExample | TagExample | SpanExample | ChoiceExample | GenerateExample


def texts_of(example: Example) -> list[str]:
    """What there is to read in an example, labels left out.

    >>> texts_of(TextExample("one", "two", ("label",)))
    ['one', 'two']
    """
    match example:
        case TextExample():
            found = [example.text, example.other]
        case TagExample():
            found = [(" " if example.spaced else "").join(example.words)]
        case SpanExample():
            found = [example.passage, example.question]
        case ChoiceExample():
            found = [example.context, example.question, *example.choices]
        case _:
            found = [example.source, example.target]
    return [text for text in found if text]


def numeric_labels(examples: Sequence[TextExample]) -> list[float]:
    """The number that each example has for a label."""
    found = []
    for one in examples:
        label = (one.labels or ("",))[0]
        try:
            found.append(float(label))
        except ValueError:
            raise CorpusError(
                f"{one.origin}: the label {label!r:.80} is no number, as other labels are: correct it."
            ) from None
    return found
