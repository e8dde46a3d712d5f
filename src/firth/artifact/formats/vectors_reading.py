"""Reading tables of word vectors, text or binary: memory grows with what is read, not with what is promised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _vector_file_kernels as kernels
from firth.artifact.formats.arpa_reading import show
from firth.artifact.formats.arpa_source import Block
from firth.artifact.formats.fasttext_file import MAGIC
from firth.artifact.formats.vector_source import MOST_COLUMNS, MOST_WORDS, Shape, Source, first_infinite, open_source
from firth.cores import in_order
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.text import FIRST_WORD

_MARK = b"\xef\xbb\xbf"  # of byte order
_HEADER = re.compile(rb"\s*(\d{1,30})[ \t]+(\d{1,30})\s*")
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+|nan|inf)(?:e[-+]?\d+)?", re.IGNORECASE)
_CONTROL = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]")
_SAMPLE = 1 << 16
SPECIALS = frozenset(TokenizerRecipe(model="words").specials)
_REASONS = {
    kernels.NOT_NUMBER: "{field} stands where a number should, one of {columns}",
    kernels.NOT_FINITE: "{field} is no finite number in 32 bits",
    kernels.TOO_FEW: "it does not have a word and {columns} numbers",
    kernels.TOO_MANY: "it has more than {columns} numbers",
    kernels.BAD_BYTE: "it holds a zero byte or a stray carriage return",
    kernels.NO_WORD: "it has no word, or one with a zero byte or an end of line",
    kernels.LONG_WORD: f"no word ends within {kernels.LONGEST_WORD} bytes",
}


@dataclass(frozen=True)
class VectorTable:
    """What a file of vectors holds."""

    words: list[str]
    """In the order of the file; no two are the same and none is a special token."""
    vectors: npt.NDArray[np.float32]
    """A row of zeros for each special token, then one for each word."""
    duplicates: int
    """Rows that were passed over because their word had one before."""
    left_out: list[str]
    """Special tokens in the file, which in Firth have no vectors."""


class _Part(NamedTuple):
    """Some rows."""

    words: list[bytes]
    values: npt.NDArray[np.float32]
    places: npt.NDArray[np.int64]
    """The line or row of each, as a message names it."""


def read_vectors(path: Path, *, header: bool) -> VectorTable:
    """The words and vectors of a file in word2vec format, text or binary as its content says, plain or packed.

    `header` says whether a first line with the numbers of words and columns must be there, as in word2vec and fastText
    files; GloVe's have none, but if one has, it is taken for what it is.
    """
    with open_source(path) as source:
        if not source.start.strip():
            source.wrong("line 1", "the file is empty")
        if source.start.startswith(MAGIC.to_bytes(4, "little")):
            source.wrong("byte 0", "this is a whole fastText model", "bring it in with firth import fasttext")
        skip, shape = _find_header(source, header)
        if shape is None:
            return _read_text(source, 0, 1, None, Shape(0, _count_columns(source)))
        if not _is_text(source.start[skip : skip + _SAMPLE]):
            source.check_shape("line 1", shape, 4 * shape.columns + 2)
            return _read_binary(source, skip, shape)
        source.check_shape("line 1", shape, 2 * shape.columns + 2)
        return _read_text(source, skip, 2, shape.rows, shape)


def _find_header(source: Source, required: bool) -> tuple[int, Shape | None]:
    """Where the rows begin, and the shape that the first line tells."""
    first, _, rest = source.start.partition(b"\n")
    found = _HEADER.fullmatch(first.removeprefix(_MARK))
    second = rest.partition(b"\n")[0].split()
    # In a table of single numbers the first row may look like a header: then the next one has as many fields.
    if found is not None and (required or len(second) != 2 or int(found[2]) == 1):
        return len(first) + 1, Shape(int(found[1]), int(found[2]))
    if required:
        source.wrong(
            "line 1",
            f"{show(first.strip())} stands where the numbers of words and columns should",
            "if the file has no such line by design, bring it in with firth import glove",
        )
    if not _is_text(source.start[:_SAMPLE]):
        source.wrong("line 1", "this is no text", "give a text file, or a binary one with firth import word2vec")
    return 0, None


def _is_text(sample: bytes) -> bool:
    """Whether rows are text: hardly a control character, and a number behind the first word."""
    if len(_CONTROL.findall(sample)) > 1 + len(sample) // 50:
        return False
    fields = sample.lstrip().partition(b"\n")[0].split()
    return any(_NUMBER.fullmatch(field) for field in fields[1:])


def _count_columns(source: Source) -> int:
    first = source.start.lstrip().partition(b"\n")[0]
    columns = len(first.split()) - 1
    if not 1 <= columns <= MOST_COLUMNS:
        source.wrong("line 1", f"it has {columns} numbers after the word, not 1 to {MOST_COLUMNS}")
    return columns


def _read_text(source: Source, skip: int, line: int, promised: int | None, shape: Shape) -> VectorTable:
    most = MOST_WORDS if promised is None else promised
    table = _Table(source, shape.columns)
    if skip == 0 and source.start.startswith(_MARK):
        skip = len(_MARK)
    for part in in_order(lambda block: _parse(source, block, shape.columns), source.blocks(skip, line)):
        if table.rows + len(part.words) > most:
            place = f"line {part.places[most - table.rows]}"
            source.wrong(place, f"this is one more word than the {most} that the first line promises")
        table.add(part, "line")
    if promised is not None and table.rows < promised:
        source.wrong("last line", f"the file ends after {table.rows} words where the first line promises {promised}")
    return table.finish()


def _parse(source: Source, block: Block, columns: int) -> _Part:
    """The rows of a block of lines."""
    data = np.frombuffer(block.data, dtype=np.uint8)
    most = min(block.data.count(b"\n"), data.size // (2 * columns + 2) + 1)
    values, lines = np.empty((most, columns), dtype=np.float32), np.empty(most, dtype=np.int64)
    bounds = np.empty((most, 2), dtype=np.int64)
    hard = np.empty((data.size // 6 + 1, 3), dtype=np.int64)
    rows, hards, code, begin, end, line = kernels.read_text(data, columns, values, bounds, lines, hard)
    if code != kernels.FINE:
        reason = _REASONS[code].format(field=show(block.data[begin:end]), columns=columns)
        source.wrong(f"line {block.line + line}", reason)
    for place, begin, end in hard[:hards].tolist():
        values.reshape(-1)[place] = nearest_float32(block.data[begin:end].decode())
    words = [block.data[begin:end] for begin, end in bounds[:rows].tolist()]
    return _Part(words, values[:rows], block.line + lines[:rows])


def nearest_float32(text: str) -> np.float32:
    """The float32 nearest to the number that `text` spells, the even one of two.

    Through a float64 it would be rounded twice, and now and then to the wrong side.

    >>> nearest_float32("1.00000017881393432617187499")
    np.float32(1.0000001)
    >>> np.float32(float("1.00000017881393432617187499"))
    np.float32(1.0000002)
    """
    exact = Fraction(text)
    with np.errstate(over="ignore"):
        near = np.float32(float(text))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(
        (one for one in around if np.isfinite(one)),
        key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1),
    )


def _read_binary(source: Source, skip: int, shape: Shape) -> VectorTable:
    table, data = _Table(source, shape.columns), b""
    for chunk in source.chunks(skip):
        data += chunk
        if table.rows < shape.rows:
            part, used = _unpack(source, data, shape, table.rows)
            table.add(part, "row")
            data = data[used:]
        if table.rows == shape.rows:
            if data.strip(b"\n"):
                reason = f"other bytes follow after the {shape.rows} words that the first line promises"
                source.wrong(f"row {shape.rows + 1}", reason)
            data = b""
    if table.rows < shape.rows:
        source.wrong(f"row {table.rows + 1}", f"the file ends here where the first line promises {shape.rows} words")
    return table.finish()


def _unpack(source: Source, data: bytes, shape: Shape, before: int) -> tuple[_Part, int]:
    """The rows that `data` holds whole, and how many bytes they take."""
    most = min(shape.rows - before, len(data) // (4 * shape.columns + 2))
    values = np.empty((most, shape.columns), dtype=np.float32)
    bounds = np.empty((most, 2), dtype=np.int64)
    rows, used, code = kernels.read_binary(np.frombuffer(data, dtype=np.uint8), most, values.view(np.uint8), bounds)
    if code != kernels.FINE:
        source.wrong(f"row {before + rows + 1}", _REASONS[code])
    words = [data[begin:end] for begin, end in bounds[:rows].tolist()]
    infinite = first_infinite(values[:rows])
    if infinite is not None:
        reason = f"the vector of {show(words[infinite])} holds what is no finite number"
        source.wrong(f"row {before + infinite + 1}", reason)
    return _Part(words, values[:rows], before + 1 + np.arange(rows)), int(used)


class _Table:
    """Words and their vectors as they are read."""

    def __init__(self, source: Source, columns: int) -> None:
        self.rows = 0
        """How many were read, those that are passed over included."""
        self._source = source
        self._columns = columns
        self._words: dict[str, None] = {}
        self._parts: list[npt.NDArray[np.float32]] = []
        self._left_out: dict[str, None] = {}
        self._duplicates = 0

    def add(self, part: _Part, unit: str) -> None:
        """Takes some rows; the first one of a word counts."""
        kept = []
        for row, word in enumerate(self._decode(part, unit)):
            if word in SPECIALS:
                self._left_out[word] = None
            elif word in self._words:
                self._duplicates += 1
            else:
                self._words[word] = None
                kept.append(row)
        self.rows += len(part.words)
        self._parts.append(part.values if len(kept) == len(part.words) else part.values[kept])

    def _decode(self, part: _Part, unit: str) -> list[str]:
        words: list[str] = []
        try:
            words.extend(spelt.decode() for spelt in part.words)
        except UnicodeDecodeError:
            place, spelt = f"{unit} {part.places[len(words)]}", part.words[len(words)]
            self._source.wrong(place, f"the word {show(spelt)} is not in UTF-8", "turn the file into UTF-8")
        return words

    def finish(self) -> VectorTable:
        """All of it; each part is let go of as soon as it is copied."""
        if not self._words:
            self._source.wrong("last line", "the file has no words beside special tokens")
        vectors = np.zeros((FIRST_WORD + len(self._words), self._columns), dtype=np.float32)
        at = FIRST_WORD
        self._parts.reverse()
        while self._parts:
            part = self._parts.pop()
            vectors[at : at + len(part)] = part
            at += len(part)
        return VectorTable(list(self._words), vectors, self._duplicates, list(self._left_out))
