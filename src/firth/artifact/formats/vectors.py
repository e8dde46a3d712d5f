"""Word vectors to the tables of word2vec, GloVe and fastText, text or binary, and back.

The reader is strict, and its memory grows with the content, not with the counts in the header.
"""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _text_kernels as kernels
from firth.artifact.formats.input_file import InputFile, LineBlock, open_input, quote
from firth.artifact.formats.words import encode_words, words_tokenizer
from firth.artifact.models import save_imported
from firth.cores import in_order
from firth.errors import AbilityError, OutputError
from firth.files import new_file
from firth.progress import progress
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.model import VectorModel
from firth.vectors.recipe import ImportedRecipe

FASTTEXT_MAGIC = 793712314
MAX_DIMENSION = 10_000
MAX_WORDS = (1 << 31) - 16
SPECIALS = frozenset(TokenizerRecipe(model="words").specials)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"\s*(\d{1,30})[ \t]+(\d{1,30})\s*")
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+|nan|inf)(?:e[-+]?\d+)?", re.IGNORECASE)
_CONTROL = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]")
_SAMPLE = 1 << 16
_REASONS = {
    kernels.NOT_NUMBER: "{field} is not a number, one of {dimension}",
    kernels.NOT_FINITE: "{field} is not a finite float32",
    kernels.TOO_FEW: "it must have a word and {dimension} numbers",
    kernels.TOO_MANY: "it has more than {dimension} numbers",
    kernels.BAD_BYTE: "it holds a zero byte or a stray carriage return",
    kernels.NO_WORD: "it has no word, or one with a zero byte or a line end",
    kernels.LONG_WORD: f"no word ends within {kernels.MAX_WORD} bytes",
}
_BLOCK = 1 << 19  # numbers written at once
_COMPRESSION = 1  # of 9: numbers hardly compress better with more effort

Matrix = npt.NDArray[Any]
Report = dict[str, Any]


class VectorTable(NamedTuple):
    """The words and vectors of a file."""

    words: list[str]  # in the order of the file, distinct and without special tokens
    vectors: npt.NDArray[np.float32]  # zeros for each special token, then one row per word
    duplicates: int  # rows skipped because their word had one before
    left_out: list[str]  # special tokens in the file, which have no vectors in Firth


class _TableRows(NamedTuple):
    """Some rows of a table."""

    words: list[bytes]
    vectors: npt.NDArray[np.float32]
    unit: str  # line or row
    numbers: Sequence[int] | npt.NDArray[np.int64]  # of each row in the file

    def position(self, row: int) -> str:
        return f"{self.unit} {self.numbers[row]}"


def export_word2vec(model: Any, path: Path) -> Report:
    """Write word2vec's format: binary if the name ends with .bin or .bin.gz, text otherwise."""
    return export_table(model, path, header=True, binary=has_binary_name(path))


def export_glove(model: Any, path: Path) -> Report:
    """Write GloVe's format: text without a header line."""
    return export_table(model, path, header=False, binary=False)


def import_word2vec(path: Path, out: Path) -> Report:
    """Make an artifact of a word2vec file, text or binary."""
    return import_table(path, out, "word2vec", header=True)


def import_glove(path: Path, out: Path) -> Report:
    """Make an artifact of a GloVe file."""
    return import_table(path, out, "glove", header=False)


def has_binary_name(path: Path) -> bool:
    """Whether a file's name asks for the binary format."""
    return path.name.lower().removesuffix(".gz").endswith(".bin")


def export_table(model: Any, path: Path, *, header: bool, binary: bool) -> Report:
    """Write one row per word in the order of the model, the most frequent first."""
    words, vectors = exported_words(model), model.vectors[FIRST_WORD:]
    encoded = encode_words(path, words)
    if binary:
        write_binary(path, encoded, vectors)
    else:
        write_text(path, encoded, vectors, header=header)
    return {"vocabulary": len(words), "dimension": vectors.shape[1], "binary": binary}


def exported_words(model: Any) -> list[str]:
    """The words of a model that have vectors; a model without raises `AbilityError`."""
    vectors = getattr(model, "vectors", None)
    if not isinstance(model, VectorModel) or not isinstance(vectors, np.ndarray) or vectors.ndim != 2:
        raise AbilityError("this format holds word vectors only: export a model such as skipgram.")
    if len(vectors) != len(model.words) or len(vectors) <= FIRST_WORD:
        raise AbilityError("the model has no word vectors to export: train one such as skipgram.")
    return model.words[FIRST_WORD:]


def import_table(path: Path, out: Path, source: Literal["word2vec", "glove", "fasttext"], *, header: bool) -> Report:
    """Make an artifact of a table of vectors, for space-separated text."""
    started = time.monotonic()
    table = read_vectors(path, header=header)
    tokenizer = words_tokenizer([*TokenizerRecipe(model="words").specials, *table.words])
    recipe = ImportedRecipe(tokenizer=tokenizer.recipe, source=source)
    skipped = {"duplicates": table.duplicates, "left_out": table.left_out}
    facts = {name: value for name, value in skipped.items() if value}
    return save_vectors(path, out, VectorModel(recipe, tokenizer, "lines", table.vectors), started, facts)


def save_vectors(path: Path, out: Path, model: VectorModel, started: float, facts: Report) -> Report:
    """Save a model that was read from `path`; returns the report of the import."""
    report = {"vocabulary": len(model.words) - FIRST_WORD, "dimension": model.vectors.shape[1], **facts}
    save_imported(out, model, path, started, report)
    return report


def read_vectors(path: Path, *, header: bool) -> VectorTable:
    """The table of a file, text or binary by its content, plain or gzip.

    `header` says whether the file must begin with the numbers of words and dimensions, as word2vec and fastText files
    do; a GloVe file has no header, but one is understood.
    """
    with open_input(path) as file:
        if not file.start.strip():
            file.fail("line 1", "the file is empty")
        if file.start.startswith(FASTTEXT_MAGIC.to_bytes(4, "little")):
            file.fail("byte 0", "this is a fastText model", "import it with firth import fasttext")
        skip, words, dimension = _read_header(file, header)
        if words is None:
            return _read_text(file, 0, 1, None, dimension)
        is_text = _is_text(file.start[skip : skip + _SAMPLE])
        _check_shape(file, words, dimension, (2 if is_text else 4) * dimension + 2)
        return _read_text(file, skip, 2, words, dimension) if is_text else _read_binary(file, skip, words, dimension)


def _read_header(file: InputFile, required: bool) -> tuple[int, int | None, int]:
    """The offset of the first row, and the numbers of words, None without a header, and of dimensions."""
    first, _, rest = file.start.partition(b"\n")
    found = _HEADER.fullmatch(first.removeprefix(_BYTE_ORDER_MARK))
    second = rest.partition(b"\n")[0].split()
    # In a table of dimension 1 the first row may look like a header: then the next one has as many fields.
    if found is not None and (required or len(second) != 2 or int(found[2]) == 1):
        return len(first) + 1, int(found[1]), int(found[2])
    if required:
        reason = f"expected the numbers of words and dimensions, found {quote(first.strip())}"
        file.fail("line 1", reason, "if the file has no header by design, import it with firth import glove")
    if not _is_text(file.start[:_SAMPLE]):
        file.fail("line 1", "this is not text", "give a text file, or a binary one with firth import word2vec")
    dimension = len(file.start.lstrip().partition(b"\n")[0].split()) - 1
    if not 1 <= dimension <= MAX_DIMENSION:
        file.fail("line 1", f"it has {dimension} numbers after the word, not 1 to {MAX_DIMENSION}")
    return 0, None, dimension


def _check_shape(file: InputFile, words: int, dimension: int, row_bytes: int) -> None:
    """Fail unless the file can hold what its header declares, before memory is allocated."""
    declared = f"it declares {words} words of {dimension} numbers"
    if words < 1 or dimension < 1:
        file.fail("line 1", f"{declared}, an empty table")
    if dimension > MAX_DIMENSION:
        file.fail("line 1", f"Firth reads up to {MAX_DIMENSION} dimensions, not {dimension}")
    if words > MAX_WORDS or words * row_bytes > file.max_size + 1:
        file.fail("line 1", f"{declared}, more than the file can hold")


def _is_text(sample: bytes) -> bool:
    """Whether rows are text: hardly any control character, and a number after the first word."""
    if len(_CONTROL.findall(sample)) > 1 + len(sample) // 50:
        return False
    fields = sample.lstrip().partition(b"\n")[0].split()
    return any(_NUMBER.fullmatch(field) for field in fields[1:])


def _read_text(file: InputFile, skip: int, line: int, declared: int | None, dimension: int) -> VectorTable:
    most = MAX_WORDS if declared is None else declared
    table = _TableBuilder(file, dimension)
    if skip == 0 and file.start.startswith(_BYTE_ORDER_MARK):
        skip = len(_BYTE_ORDER_MARK)
    for rows in in_order(lambda block: _parse_lines(file, block, dimension), file.line_blocks(skip, line)):
        if table.rows + len(rows.words) > most:
            file.fail(rows.position(most - table.rows), f"this is one word more than the {most} that line 1 declares")
        table.add(rows)
    if declared is not None and table.rows < declared:
        file.fail("last line", f"the file ends after {table.rows} words where line 1 declares {declared}")
    return table.finish()


def _parse_lines(file: InputFile, block: LineBlock, dimension: int) -> _TableRows:
    data = np.frombuffer(block.data, dtype=np.uint8)
    most = min(block.data.count(b"\n"), data.size // (2 * dimension + 2) + 1)
    values, lines = np.empty((most, dimension), dtype=np.float32), np.empty(most, dtype=np.int64)
    bounds = np.empty((most, 2), dtype=np.int64)
    ambiguous = np.empty((data.size // 6 + 1, 3), dtype=np.int64)
    rows, ambiguous_count, code, begin, end, line = kernels.read_text(data, dimension, values, bounds, lines, ambiguous)
    if code != kernels.OK:
        reason = _REASONS[code].format(field=quote(block.data[begin:end]), dimension=dimension)
        file.fail(f"line {block.line + line}", reason)
    for index, begin, end in ambiguous[:ambiguous_count].tolist():
        values.reshape(-1)[index] = nearest_float32(block.data[begin:end].decode())
    words = [block.data[begin:end] for begin, end in bounds[:rows].tolist()]
    return _TableRows(words, values[:rows], "line", block.line + lines[:rows])


def nearest_float32(text: str) -> np.float32:
    """The float32 nearest to a decimal number, ties to even.

    Conversion by way of float64 would round twice, and sometimes to the wrong side.

    >>> nearest_float32("1.00000017881393432617187499")
    np.float32(1.0000001)
    >>> np.float32(float("1.00000017881393432617187499"))
    np.float32(1.0000002)
    """
    exact = Fraction(text)
    with np.errstate(over="ignore"):
        near = np.float32(float(text))
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(
        (one for one in candidates if np.isfinite(one)),
        key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1),
    )


def _read_binary(file: InputFile, skip: int, words: int, dimension: int) -> VectorTable:
    table, data = _TableBuilder(file, dimension), b""
    for chunk in file.chunks(skip):
        data += chunk
        if table.rows < words:
            rows, used = _parse_binary(file, data, words - table.rows, dimension, table.rows)
            table.add(rows)
            data = data[used:]
        if table.rows == words:
            if data.strip(b"\n"):
                reason = f"other bytes follow after the {words} words that line 1 declares"
                file.fail(f"row {words + 1}", reason)
            data = b""
    if table.rows < words:
        file.fail(f"row {table.rows + 1}", f"the file ends here where line 1 declares {words} words")
    return table.finish()


def _parse_binary(file: InputFile, data: bytes, left: int, dimension: int, before: int) -> tuple[_TableRows, int]:
    """The complete rows in `data`, at most `left`, and their size in bytes; `before` rows were read."""
    most = min(left, len(data) // (4 * dimension + 2))
    values = np.empty((most, dimension), dtype=np.float32)
    bounds = np.empty((most, 2), dtype=np.int64)
    rows, used, code = kernels.read_binary(np.frombuffer(data, dtype=np.uint8), most, values.view(np.uint8), bounds)
    if code != kernels.OK:
        file.fail(f"row {before + rows + 1}", _REASONS[code])
    words = [data[begin:end] for begin, end in bounds[:rows].tolist()]
    bad = first_nonfinite_row(values[:rows])
    if bad is not None:
        file.fail(f"row {before + bad + 1}", f"the vector of {quote(words[bad])} holds NaN or infinity")
    return _TableRows(words, values[:rows], "row", range(before + 1, before + rows + 1)), int(used)


class _TableBuilder:
    def __init__(self, file: InputFile, dimension: int) -> None:
        self.rows = 0  # number of rows read, skipped ones included
        self._file = file
        self._dimension = dimension
        self._words: dict[str, None] = {}
        self._parts: list[npt.NDArray[np.float32]] = []
        self._left_out: dict[str, None] = {}
        self._duplicates = 0

    def add(self, rows: _TableRows) -> None:
        """Add rows; the first one of a word counts."""
        kept = []
        for row, word in enumerate(self._decode(rows)):
            if word in SPECIALS:
                self._left_out[word] = None
            elif word in self._words:
                self._duplicates += 1
            else:
                self._words[word] = None
                kept.append(row)
        self.rows += len(rows.words)
        self._parts.append(rows.vectors if len(kept) == len(rows.words) else rows.vectors[kept])

    def _decode(self, rows: _TableRows) -> list[str]:
        words: list[str] = []
        try:
            words.extend(word.decode() for word in rows.words)
        except UnicodeDecodeError:
            bad = len(words)
            reason = f"the word {quote(rows.words[bad])} is not UTF-8"
            self._file.fail(rows.position(bad), reason, "convert the file to UTF-8")
        return words

    def finish(self) -> VectorTable:
        """The whole table; each part is freed as soon as it is copied."""
        if not self._words:
            self._file.fail("last line", "the file has no words besides special tokens")
        vectors = np.zeros((FIRST_WORD + len(self._words), self._dimension), dtype=np.float32)
        at = FIRST_WORD
        self._parts.reverse()
        while self._parts:
            part = self._parts.pop()
            vectors[at : at + len(part)] = part
            at += len(part)
        return VectorTable(list(self._words), vectors, self._duplicates, list(self._left_out))


def write_text(path: Path, words: list[bytes], vectors: Matrix, *, header: bool) -> None:
    """Write one line per word, its numbers with the fewest digits that restore them as float32."""

    def lines(part: slice) -> bytes:
        block, values = words[part], finite_float32(path, vectors[part])
        pool = np.frombuffer(b"".join(block), dtype=np.uint8)
        bounds = np.zeros(len(block) + 1, dtype=np.int64)
        np.cumsum([len(word) for word in block], out=bounds[1:])
        out = np.empty(pool.size + len(block) + values.size * kernels.MAX_NUMBER_BYTES, dtype=np.uint8)
        return out[: kernels.write_text(values, pool, bounds, out)].tobytes()

    _write(path, in_order(lines, row_blocks(vectors)), vectors, header=header)


def write_binary(path: Path, words: list[bytes], vectors: Matrix) -> None:
    """Write word2vec's binary format: each word, a space, the bytes of its vector and a line end."""

    def rows(part: slice) -> bytes:
        values = finite_float32(path, vectors[part])
        return b"".join([b"%b %b\n" % (word, row.tobytes()) for word, row in zip(words[part], values, strict=True)])

    _write(path, map(rows, row_blocks(vectors)), vectors, header=True)


def _write(path: Path, pieces: Iterator[bytes], vectors: Matrix, *, header: bool) -> None:
    with new_gzip_file(path) as file, progress("writing", vectors.nbytes) as advance:
        file.write(b"%d %d\n" % vectors.shape if header else b"")
        for part, piece in zip(row_blocks(vectors), pieces, strict=True):
            file.write(piece)
            advance(vectors[part].nbytes)


def row_blocks(matrix: Matrix) -> Iterator[slice]:
    """The rows of a matrix in blocks of bounded size."""
    height = max(_BLOCK // max(matrix.shape[1], 1), 1)
    return (slice(begin, min(begin + height, len(matrix))) for begin in range(0, len(matrix), height))


def finite_float32(path: Path, values: Matrix) -> npt.NDArray[np.float32]:
    """The numbers as float32; NaN and infinity raise `OutputError`."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(values, dtype="<f4")
    if first_nonfinite_row(values) is not None:
        raise OutputError(f"cannot write {path}: a vector holds NaN or infinity; train the model again.")
    return values


def first_nonfinite_row(values: npt.NDArray[np.float32]) -> int | None:
    """The first row that holds NaN or infinity."""
    is_finite = np.isfinite(values)
    return None if is_finite.all() else int(np.flatnonzero(~is_finite.all(axis=1))[0])


@contextmanager
def new_gzip_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that appears completely or not at all, gzip without a time stamp if its name ends with .gz."""
    with new_file(path) as plain:
        if not path.name.endswith(".gz"):
            yield plain
            return
        with gzip.GzipFile("", "wb", _COMPRESSION, plain, mtime=0) as compressed:
            yield cast(BinaryIO, compressed)
