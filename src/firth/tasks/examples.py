"""Examples of each task, with labels if they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from firth.errors import CorpusError


class Origin(NamedTuple):
    """The file and line of an example."""

    source: str = ""  # empty for Python objects
    number: int = 0  # of the line, of the item if there is no file, or of the question in SQuAD's JSON, from 1

    def __str__(self) -> str:
        return f"{self.source}, line {self.number}" if self.source else f"item {self.number}"


NOWHERE = Origin()


@dataclass(frozen=True, slots=True)
class TextExample:
    """classify and pair: one text or two, and any number of labels."""

    text: str
    other: str | None = None  # second text of a pair
    labels: tuple[str, ...] | None = None  # None: unknown; similarity: the number as a string
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class MentionExample(TextExample):
    """typing and relation: a text with one marked mention or two."""

    mentions: tuple[tuple[int, int], ...] = ()  # characters from which and to which each goes


@dataclass(frozen=True, slots=True)
class TagExample:
    """tag: words, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    spaced: bool = True  # whether words are separated by spaces
    origin: Origin = NOWHERE


class Answer(NamedTuple):
    """A span of a passage."""

    text: str
    start: int  # character offset in the passage


@dataclass(frozen=True, slots=True)
class SpanExample:
    """span: a question about a passage, and its answers."""

    passage: str
    question: str
    answers: tuple[Answer, ...] | None = None  # None: unknown; empty: unanswerable
    id: str = ""
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """choice: a multiple-choice question."""

    context: str
    question: str
    choices: tuple[str, ...]
    label: int | None = None
    id: str = ""
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class GenerateExample:
    """generate: a source text and its target."""

    source: str
    target: str | None = None
    origin: Origin = NOWHERE


Example = TextExample | TagExample | SpanExample | ChoiceExample | GenerateExample


def texts_of(example: Example) -> list[str]:
    """The texts of an example without labels.

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
    """The numeric label of each example."""
    found = []
    for one in examples:
        label = (one.labels or ("",))[0]
        try:
            found.append(float(label))
        except ValueError:
            raise CorpusError(
                f"{one.origin}: the label {label!r:.80} is not a number, as other labels are: correct it."
            ) from None
    return found


def without_labels(example: Example) -> Example:
    """A copy without the labels, which may be unknown to the model.

    >>> without_labels(TextExample("a fine film", labels=("good",)))
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
