"""How the lines of a file relate to its sentences: found out from the text, then used to cut documents."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from firth.text.document import RawDocument
from firth.text.sentences import split_sentences

Layout = Literal["lines", "prose", "wrapped"]
"""`lines`: each line is a sentence. `prose`: each line is a paragraph. `wrapped`: paragraphs run over lines."""


class Block(NamedTuple):
    """Some documents in a row as lines of UTF-8: what one worker handles at a time.

    Documents are parted by blank lines; or if `packed`, by lines that hold nothing but a NUL, which no text does. The
    first one goes on with the last one of the block before, unless either block has such a line there.
    """

    data: bytes
    packed: bool = False


_PARTED = "\n\0\n"
_BLANK = re.compile(r"\n\s*\n")
_FINAL = re.compile(r"[.!?…。！？；][\"'”’」』）)\]]*$")
# Scripts written without spaces between words: nothing is put between two lines of them.
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_HYPHENED = re.compile(r"\S-$")
_SECOND_PART = re.compile(r"(?:and|or|to)\b")  # "mother- and fatherland"
_NARROWEST, _WIDEST = 28, 140  # columns between which people wrap text


def pack_documents(documents: Iterable[RawDocument]) -> Block:
    """The documents as a block.

    >>> pack_documents([RawDocument("one\\ntwo"), RawDocument("three", continues=True)])
    Block(data=b'\\n\\x00\\none\\ntwo\\nthree', packed=True)
    """
    texts = (("\n" if document.continues else _PARTED) + document.text for document in documents)
    return Block("".join(texts).encode(), packed=True)


def unpack_documents(block: Block) -> tuple[list[str], bool]:
    """The texts of a packed block, and whether the first one goes on with a document of the block before."""
    first, *others = block.data.decode().split(_PARTED)
    return ([first, *others], True) if first else (others, False)


def detect_layout(texts: Iterable[str]) -> Layout:
    """The layout of a file, judged by its first documents; "lines", which changes nothing, where in doubt.

    >>> detect_layout(["The cat sat.\\nThe dog ran.\\nThe bird flew."])
    'lines'
    >>> detect_layout(["The cat sat. The dog ran.\\nThe bird flew. It came back."])
    'prose'
    """
    paragraphs = [lines for text in texts for lines in _paragraphs(text)]
    if _is_wrapped(paragraphs):
        return "wrapped"
    together = total = 0
    for line in (line for lines in paragraphs for line in lines):
        total += len(line)
        if len(split_sentences(line)) > 1:
            together += len(line)
    return "prose" if together > 0.4 * total else "lines"


def sentences_of(text: str, layout: Layout) -> list[str]:
    """The sentences of one document, without the spaces around them, none empty.

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
    """The stripped lines of each part of a text between blank lines."""
    for part in _BLANK.split(text):
        lines = [line.strip() for line in part.split("\n") if line.strip()]
        if lines:
            yield lines


def _join(lines: list[str]) -> str:
    """The lines of a paragraph as one, with a space where words need one."""
    joined = lines[:1]
    for before, line in itertools.pairwise(lines):
        unspaced = _UNSPACED.match(before[-1]) and _UNSPACED.match(line[0])
        hyphened = _HYPHENED.search(before) and not _SECOND_PART.match(line)
        joined.append(line if unspaced or hyphened else " " + line)
    return "".join(joined)


def _is_wrapped(paragraphs: list[list[str]]) -> bool:
    """Whether lines end where the margin is rather than where the sentences are."""
    pairs = [pair for lines in paragraphs for pair in itertools.pairwise(lines)]
    lengths = sorted(len(line) for lines in paragraphs for line in lines)
    width = lengths[len(lengths) * 95 // 100] if lengths else 0
    if len(pairs) < 2 or not _NARROWEST <= width <= _WIDEST:
        return False
    full = sum(_is_full(line, after, width) for line, after in pairs)
    ended = sum(_ends_sentence(line) for line, _ in pairs)
    begun = sum(after[0].isupper() for line, after in pairs if not _ends_sentence(line))
    if full < 0.6 * len(pairs) or ended > 0.4 * len(pairs) or begun > 0.5 * (len(pairs) - ended):
        return False
    # Sentences must end somewhere, and as often within the lines as at the margin.
    inside = sum(len(split_sentences(line)) - 1 for lines in paragraphs for line in lines)
    return inside + sum(_ends_sentence(lines[-1]) for lines in paragraphs) >= max(1, ended)


def _is_full(line: str, after: str, width: int) -> bool:
    """Whether the first word of the next line would have gone beyond the margin."""
    if _UNSPACED.match(after):
        return len(line) + 3 > width
    return len(line) + 1 + len(after.split(maxsplit=1)[0]) > 0.9 * width  # indented text has a nearer margin


def _ends_sentence(line: str) -> bool:
    return _FINAL.search(line) is not None
