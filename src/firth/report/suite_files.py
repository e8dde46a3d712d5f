"""Readers of evaluation files: word pairs, analogies, words in context, labelled texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from firth.errors import CorpusError
from firth.text.files import find_files
from firth.text.readers import read_lines

T = TypeVar("T")
_TAG = re.compile(r"\s*</?b>\s*")


class WordPair(NamedTuple):
    """Two words and their similarity as rated by people."""

    one: str
    two: str
    score: float
    contexts: tuple[str, str] | None = None
    """A text for each word, which stands between `<b>` and `</b>` in it."""


class AnalogyQuestion(NamedTuple):
    """a is to b as c is to d."""

    section: str
    words: tuple[str, str, str, str]


def read_pairs(path: Path) -> list[WordPair]:
    """Word pairs: two words and a number a line, with or without a header; tabs or spaces between them."""
    pairs: list[WordPair] = []
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t")] if "\t" in line else line.split()
        score = _number(fields[2]) if len(fields) > 2 else None
        if score is None and not pairs and number == 0:
            continue  # the header
        if score is None or not math.isfinite(score) or not fields[0] or not fields[1]:
            raise CorpusError(f"{path}, line {number + 1}: a pair has two words and a number, such as: tiger cat 7.35.")
        pairs.append(WordPair(fields[0], fields[1], score))
    return _require_some(pairs, path, "word pairs")


def read_questions(path: Path) -> list[AnalogyQuestion]:
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
        questions.append(AnalogyQuestion(section, (words[0], words[1], words[2], words[3])))
    return _require_some(questions, path, "analogies")


def read_contexts(path: Path) -> list[WordPair]:
    """Words in context (SCWS): id, word1, pos1, word2, pos2, context1, context2 and score, separated by tabs."""
    pairs = []
    for number, line in _lines(path):
        fields = line.split("\t")
        score = _number(fields[7]) if len(fields) > 7 else None
        if score is None and number == 0:
            continue  # the header
        if score is None or not math.isfinite(score):
            raise CorpusError(
                f"{path}, line {number + 1}: there must be eight fields, separated by tabs: "
                "id, word1, pos1, word2, pos2, context1, context2 and a number."
            )
        pairs.append(WordPair(fields[1], fields[3], score, (fields[5], fields[6])))
    return _require_some(pairs, path, "words in context")


def read_labelled(path: Path) -> tuple[list[str], list[str]]:
    """Labels and texts of a file with a header that names the columns `label` and `text_a`, separated by tabs."""
    lines = _lines(path)
    head = next(lines, (0, ""))[1].split("\t")
    if "label" not in head or "text_a" not in head:
        raise CorpusError(f"{path} has no columns label and text_a: name them in a first line, separated by a tab.")
    labels, texts = [], []
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(head):
            raise CorpusError(f"{path}, line {number + 1}: {len(fields)} fields where the first line has {len(head)}.")
        labels.append(fields[head.index("label")])
        texts.append(fields[head.index("text_a")])
    return _require_some(labels, path, "labelled texts"), texts


def strip_tags(context: str) -> str:
    """A context without the tags around its word.

    >>> strip_tags("on the <b> bank </b> of the river")
    'on the bank of the river'
    """
    return _TAG.sub(" ", context).strip()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, compressed or not, that are not blank, each with its number from 0."""
    sources = find_files([path])
    if len(sources) != 1:
        raise CorpusError(f"{path} is not a single file: name one file.")
    for number, line in read_lines(sources[0]):
        if line.strip():
            yield number, line.rstrip("\r\n")


def _number(field: str) -> float | None:
    """The number in a field, which may be infinite or NaN; None for text, as in a header."""
    try:
        return float(field)
    except ValueError:
        return None


def _require_some(found: list[T], path: Path, what: str) -> list[T]:
    if not found:
        raise CorpusError(f"there are no {what} in {path}: name another file.")
    return found
