"""Reading the files that vectors are measured with: word pairs, analogies, words in context, labelled texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from firth.errors import CorpusError
from firth.text.readers import read_lines
from firth.text.sources import find_sources

T = TypeVar("T")


class Pair(NamedTuple):
    """Two words and how alike people say they are."""

    one: str
    two: str
    score: float
    contexts: tuple[str, str] | None = None
    """A text around each, the word itself marked `<b> ... </b>`."""


class Question(NamedTuple):
    """a is to b as c is to d."""

    section: str
    words: tuple[str, str, str, str]


class Labelled(NamedTuple):
    """Texts and what they are."""

    labels: list[str]
    texts: list[str]


def read_pairs(path: Path) -> list[Pair]:
    """Word pairs: two words and a number a line, with or without a header; tabs or spaces between them."""
    pairs: list[Pair] = []
    for number, line in _lines(path):
        if line.startswith("#"):
            continue  # a remark
        fields = [field.strip() for field in line.split("\t")] if "\t" in line else line.split()
        score = _number(fields[2]) if len(fields) > 2 else None
        if score is None and not pairs and number == 0:
            continue  # the names of the columns
        if score is None or not fields[0] or not fields[1]:
            raise CorpusError(f"{path}, line {number + 1}: a pair has two words and a number, such as: tiger cat 7.35.")
        pairs.append(Pair(fields[0], fields[1], score))
    return _some(pairs, path, "word pairs")


def read_questions(path: Path) -> list[Question]:
    """Analogies: four words a line, in sections that begin with a line `: name`."""
    section, questions = "questions", []
    for number, line in _lines(path):
        if line.startswith(":"):
            section = line[1:].strip() or section
            continue
        words = line.split()
        if len(words) != 4:
            raise CorpusError(
                f"{path}, line {number + 1}: an analogy has four words, such as: Athens Greece Oslo Norway."
            )
        questions.append(Question(section, (words[0], words[1], words[2], words[3])))
    return _some(questions, path, "analogies")


def read_contexts(path: Path) -> list[Pair]:
    """Words in context (SCWS): id, word1, pos1, word2, pos2, context1, context2 and score, separated by tabs."""
    pairs = []
    for number, line in _lines(path):
        fields = line.split("\t")
        score = _number(fields[7]) if len(fields) > 7 else None
        if score is None and number == 0:
            continue
        if score is None:
            raise CorpusError(
                f"{path}, line {number + 1}: there must be eight fields, separated by tabs: "
                "id, word1, pos1, word2, pos2, context1, context2 and a number."
            )
        pairs.append(Pair(fields[1], fields[3], score, (fields[5], fields[6])))
    return _some(pairs, path, "words in context")


def read_labelled(path: Path) -> Labelled:
    """Labelled texts: a header that names the columns `label` and `text_a`, fields separated by tabs."""
    lines = _lines(path)
    head = next(lines, (0, ""))[1].split("\t")
    if "label" not in head or "text_a" not in head:
        raise CorpusError(f"{path} has no columns label and text_a: name them in a first line, separated by a tab.")
    label, text = head.index("label"), head.index("text_a")
    found = Labelled([], [])
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(head):
            raise CorpusError(f"{path}, line {number + 1}: {len(fields)} fields where the first line has {len(head)}.")
        found.labels.append(fields[label])
        found.texts.append(fields[text])
    _some(found.labels, path, "labelled texts")
    return found


_MARK = re.compile(r"\s*</?b>\s*")


def unmarked(context: str) -> str:
    """A context without the marks around its word.

    >>> unmarked("on the <b> bank </b> of the river")
    'on the bank of the river'
    """
    return _MARK.sub(" ", context).strip()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, packed or not, that are not blank, each with its number from 0."""
    sources = find_sources([path])
    if len(sources) != 1:
        raise CorpusError(f"{path} is not a single file: name one file.")
    for number, line in read_lines(sources[0]):
        if line.strip():
            yield number, line.rstrip("\r\n")


def _number(field: str) -> float | None:
    try:
        value = float(field)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _some(found: list[T], path: Path, what: str) -> list[T]:
    if not found:
        raise CorpusError(f"there are no {what} in {path}: name another file.")
    return found
