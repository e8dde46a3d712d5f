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


class SensePair(NamedTuple):
    """Two uses of a word, and whether it has the same sense in both."""

    word: str
    is_same: bool
    texts: tuple[str, str]
    ranges: tuple[tuple[int, int], tuple[int, int]]
    """Where the word begins and ends in each text."""


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


_SENSES = ("label", "word", "index_a", "index_b", "text_a", "text_b")


def is_sense_file(path: Path) -> bool:
    """Whether the first line of a file has the columns of pairs of senses."""
    return set(_SENSES) <= set(next(_lines(path), (0, ""))[1].split("\t"))


def read_senses(path: Path) -> list[SensePair]:
    """Pairs of senses (WiC): a header with label (T or F), word, index_a, index_b, text_a and text_b, and further ones.

    Indexes are those of words between spaces, from 0.
    """
    lines = _lines(path)
    head = next(lines, (0, ""))[1].split("\t")
    if lacking := [name for name in _SENSES if name not in head]:
        raise CorpusError(f"{path} has no column {lacking[0]}: name {', '.join(_SENSES)} in a first line, with tabs.")
    pairs = []
    for number, line in lines:
        where, fields = f"{path}, line {number + 1}", line.split("\t")
        if len(fields) != len(head):
            raise CorpusError(f"{where}: {len(fields)} fields where the first line has {len(head)}.")
        row = dict(zip(head, fields, strict=True))
        if row["label"] not in ("T", "F"):
            raise CorpusError(f"{where}: the label {row['label']!r:.40} must be T for the same sense, or F.")
        ranges = [_word_range(row[f"text_{side}"], row[f"index_{side}"], where) for side in "ab"]
        texts = (row["text_a"], row["text_b"])
        pairs.append(SensePair(row["word"], row["label"] == "T", texts, (ranges[0], ranges[1])))
    return _require_some(pairs, path, "pairs of senses")


def _word_range(text: str, index: str, where: str) -> tuple[int, int]:
    """Where the word of a number begins and ends in a text."""
    words = list(re.finditer(r"\S+", text))
    if not index.isascii() or not index.isdigit() or len(index) > 9 or int(index) >= len(words):
        raise CorpusError(f"{where}: the index {index!r:.40} must be from 0 to {len(words) - 1}, a word of the text.")
    return words[int(index)].span()


def find_tagged(context: str) -> tuple[int, int]:
    """Where the word between `<b>` and `</b>` begins and ends in the context without tags.

    >>> find_tagged("on the <b> bank </b> of the river")
    (7, 11)
    """
    before, _, rest = context.partition("<b>")
    word = rest.partition("</b>")[0].strip()
    begin = len(strip_tags(f"{before}<b>x")) - 1
    return begin, begin + len(word)


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
