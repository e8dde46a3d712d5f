"""Layout: how lines relate to sentences; detected from the text, then used to split documents into sentences."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from firth.text.sentences import split_sentences


@dataclass(frozen=True, slots=True)
class RawDocument:
    """An unsplit document, or a piece of one too long for memory, which continues that of the previous piece."""

    text: str  # without blank lines at either end
    source: str = ""
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    sentences: tuple[str, ...]
    source: str = ""
    continues: bool = False


Layout = Literal["lines", "prose", "wrapped"]
"""`lines`: each line is a sentence. `prose`: each line is a paragraph. `wrapped`: paragraphs run over lines."""


class TextBlock(NamedTuple):
    """Consecutive documents as lines of UTF-8: the unit of work of a worker.

    Documents are separated by blank lines, or if `packed`, by lines of a single NUL, which text never contains. The
    first document continues the last one of the previous block unless there is a separator between them.
    """

    data: bytes
    packed: bool = False


_SEPARATOR = "\n\0\n"
_BLANK = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"[.!?…。！？；][\"'”’」』）)\]]*$")
# Scripts without spaces between words: lines are joined without a space.
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_HYPHENATED = re.compile(r"\S-$")
_SECOND_PART = re.compile(r"(?:and|or|to)\b")  # "mother- and fatherland"
_MIN_WIDTH, _MAX_WIDTH = 28, 140  # plausible columns of wrapped text


def pack_documents(documents: Iterable[RawDocument]) -> TextBlock:
    """The documents as a packed block.

    >>> pack_documents([RawDocument("one\\ntwo"), RawDocument("three", continues=True)])
    TextBlock(data=b'\\n\\x00\\none\\ntwo\\nthree', packed=True)
    """
    texts = (("\n" if document.continues else _SEPARATOR) + document.text for document in documents)
    return TextBlock("".join(texts).encode(), packed=True)


def unpack_documents(block: TextBlock) -> tuple[list[str], bool]:
    """The texts of a packed block, and whether the first one continues a document of the previous block."""
    first, *others = block.data.decode().split(_SEPARATOR)
    return ([first, *others], True) if first else (others, False)


def detect_layout(texts: Iterable[str]) -> Layout:
    """The layout of a file by its first documents; if in doubt "lines", which changes nothing.

    >>> detect_layout(["The cat sat.\\nThe dog ran.\\nThe bird flew."])
    'lines'
    >>> detect_layout(["The cat sat. The dog ran.\\nThe bird flew. It came back."])
    'prose'
    """
    paragraphs = [lines for text in texts for lines in _paragraphs(text)]
    if _is_wrapped(paragraphs):
        return "wrapped"
    with_several = total = 0
    for line in (line for lines in paragraphs for line in lines):
        total += len(line)
        if len(split_sentences(line)) > 1:
            with_several += len(line)
    return "prose" if with_several > 0.4 * total else "lines"


def sentences_of(text: str, layout: Layout) -> list[str]:
    """The stripped, non-empty sentences of one document.

    >>> sentences_of("He left. She\\nstayed.", "wrapped")
    ['He left.', 'She stayed.']
    """
    if layout == "wrapped":
        return [sentence for lines in _paragraphs(text) for sentence in split_sentences(_join(lines))]
    lines = (line.strip() for line in text.split("\n"))
    if layout == "prose":
        return [sentence for line in lines for sentence in split_sentences(line)]
    return [line for line in lines if line]


def _paragraphs(text: str) -> Iterator[list[str]]:
    for part in _BLANK.split(text):
        lines = [line.strip() for line in part.split("\n") if line.strip()]
        if lines:
            yield lines


def _join(lines: list[str]) -> str:
    """The lines of a paragraph joined, with spaces where words need them."""
    joined = lines[:1]
    for before, line in itertools.pairwise(lines):
        is_unspaced = _UNSPACED.match(before[-1]) and _UNSPACED.match(line[0])
        is_hyphenated = _HYPHENATED.search(before) and not _SECOND_PART.match(line)
        joined.append(line if is_unspaced or is_hyphenated else " " + line)
    return "".join(joined)


def _is_wrapped(paragraphs: list[list[str]]) -> bool:
    """Whether lines end at a margin rather than at the ends of sentences."""
    pairs = [pair for lines in paragraphs for pair in itertools.pairwise(lines)]
    lengths = sorted(len(line) for lines in paragraphs for line in lines)
    width = lengths[len(lengths) * 95 // 100] if lengths else 0
    if len(pairs) < 2 or not _MIN_WIDTH <= width <= _MAX_WIDTH:
        return False
    full = sum(_is_full(line, after, width) for line, after in pairs)
    ended = sum(_ends_sentence(line) for line, _ in pairs)
    begun = sum(after[0].isupper() for line, after in pairs if not _ends_sentence(line))
    if full < 0.6 * len(pairs) or ended > 0.4 * len(pairs) or begun > 0.5 * (len(pairs) - ended):
        return False
    # Sentences must end somewhere, and as often within lines as at the margin.
    inside = sum(len(split_sentences(line)) - 1 for lines in paragraphs for line in lines)
    return inside + sum(_ends_sentence(lines[-1]) for lines in paragraphs) >= max(1, ended)


def _is_full(line: str, after: str, width: int) -> bool:
    if _UNSPACED.match(after):
        return len(line) + 3 > width
    return len(line) + 1 + len(after.split(maxsplit=1)[0]) > 0.9 * width  # indented text has a narrower margin


def _ends_sentence(line: str) -> bool:
    return _SENTENCE_END.search(line) is not None
