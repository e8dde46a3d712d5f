"""The .bin files of fastText: content, strict reader and writer."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.input_file import InputFile, open_input, quote
from firth.artifact.formats.vectors import (
    FASTTEXT_MAGIC,
    MAX_DIMENSION,
    finite_float32,
    first_nonfinite_row,
    new_gzip_file,
    row_blocks,
)
from firth.errors import OutputError
from firth.progress import progress

VERSION = 12
_ARGS = struct.Struct("<ii12id")  # magic number, version, and training arguments
_DICTIONARY = struct.Struct("<iiiqq")
"""Numbers of entries, of words and of labels among them, of tokens of text, and of n-grams left by pruning or -1."""
_ENTRY = struct.Struct("<qb")  # count, and whether the entry is a label; follows a word and a zero byte
_FLAG = struct.Struct("<B")  # whether the matrix that follows is quantised
_SHAPE = struct.Struct("<qq")  # rows and columns of the matrix that follows
_LOSSES: tuple[Any, ...] = ("hierarchical", "negative", "softmax", "one-versus-all")
_MODELS: tuple[Any, ...] = ("cbow", "skipgram", "supervised")
"""Their numbers in the file are the positions here, counted from 1."""
_NOT_PRUNED = -1
_NOT_QUANTISED = b"\0"
_MAX_WORD = 1 << 16  # bytes
_CHECKED_ROWS = 1 << 12  # checked for NaN at once
_WRITTEN_ENTRIES = 10_000  # at once
_TOO_SHORT = "the file ends too early"

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class FasttextArgs:
    """The training arguments of a model, in the order of the file."""

    dimension: int
    window: int = 5
    epochs: int = 5
    min_count: int = 1
    negatives: int = 5
    word_ngrams: int = 1
    loss: Literal["hierarchical", "negative", "softmax", "one-versus-all"] = "negative"
    model: Literal["cbow", "skipgram", "supervised"] = "skipgram"
    buckets: int = 0
    min_n: int = 0
    max_n: int = 0
    update_rate: int = 100
    subsample: float = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class FasttextFile:
    """The content of a .bin file: words, labels, and the input and output matrices."""

    args: FasttextArgs
    words: list[str]
    counts: npt.NDArray[np.int64]
    word_input: Matrix  # one row per word: the first part of the input matrix
    ngram_input: Matrix  # one row per hash bucket of n-grams: the rest of the input matrix
    output: Matrix  # one row per word, or per label of a classifier
    labels: list[str] = field(default_factory=list)
    label_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    tokens: int  # number of tokens of the training text


def is_fasttext(path: Path) -> bool:
    """Whether a file is a fastText .bin or .ftz, plain or gzip, by its first bytes."""
    with open_input(path) as file:
        return file.start[:4] == FASTTEXT_MAGIC.to_bytes(4, "little")


def read_fasttext(path: Path) -> FasttextFile:
    """The content of a fastText .bin file, plain or gzip; an invalid file raises `ArtifactError` with the byte.

    Sizes are compared with the file before memory is allocated.
    """
    with open_input(path) as file:
        reader = _FasttextReader(file)
        args = reader.read_args()
        entries, words, labels, tokens, pruned = reader.unpack(_DICTIONARY)
        if pruned != _NOT_PRUNED:
            reader.refuse_quantised()
        if min(words, labels) < 0 or words + labels != entries or words == 0 or tokens < 0:
            reader.fail(f"{entries} entries, {words} words, {labels} labels and {tokens} tokens are inconsistent")
        reader.check_size(entries, 2 + _ENTRY.size, "dictionary entries")
        names, counts = reader.read_entries(words, entries)
        word_input, ngram_input = reader.read_matrix("input", [words, args.buckets], args.dimension)
        (output,) = reader.read_matrix("output", [labels if args.model == "supervised" else words], args.dimension)
        reader.expect_end()
    return FasttextFile(
        args=args,
        words=names[:words],
        counts=counts[:words],
        word_input=word_input,
        ngram_input=ngram_input,
        output=output,
        labels=names[words:],
        label_counts=counts[words:],
        tokens=tokens,
    )


class _FasttextReader:
    """Reads the parts of a .bin file in order."""

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self._data = file.start
        self._at = 0
        self._before = 0  # bytes of the file before `_data`

    @property
    def offset(self) -> int:
        return self._before + self._at

    def fail(self, reason: str, **remedy: str) -> NoReturn:
        self._file.fail(f"byte {self.offset}", reason, **remedy)

    def refuse_quantised(self) -> NoReturn:
        self.fail(
            "this is a quantised model (.ftz), whose vectors are only approximations",
            remedy="give the .bin file that it was made from",
        )

    def check_size(self, count: int, size: int, what: str) -> None:
        """Fail unless the rest of the file can hold `count` items of `size` bytes."""
        if count * size > self._file.max_size - self.offset:
            self.fail(f"it declares {count} {what}, more than the file can hold")

    def _load(self, size: int) -> bool:
        """Load the next `size` bytes; False if the file ends before."""
        while len(self._data) - self._at < size:
            chunk = self._file.read(size)
            if not chunk:
                return False
            self._before += self._at
            self._data, self._at = self._data[self._at :] + chunk, 0
        return True

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next numbers in that layout."""
        if not self._load(layout.size):
            self.fail(_TOO_SHORT)
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def read_args(self) -> FasttextArgs:
        """The training arguments at the start of the file."""
        magic, version, *numbers, subsample = self.unpack(_ARGS)
        if magic != FASTTEXT_MAGIC:
            self._at = 0
            self.fail("this is no fastText .bin file", remedy="give one that save_model wrote")
        if not 11 <= version <= VERSION:
            self.fail(f"version {version} of the format is unknown", remedy=f"write it in version {VERSION}")
        if not (1 <= numbers[6] <= len(_LOSSES) and 1 <= numbers[7] <= len(_MODELS)):
            self.fail(f"there is no loss {numbers[6]} or no model {numbers[7]}")
        numbers[6], numbers[7] = _LOSSES[numbers[6] - 1], _MODELS[numbers[7] - 1]
        args = FasttextArgs(**dict(zip(FasttextArgs.__dataclass_fields__, [*numbers, subsample], strict=True)))
        if not 1 <= args.dimension <= MAX_DIMENSION:
            self.fail(f"Firth reads 1 to {MAX_DIMENSION} dimensions, not {args.dimension}")
        if args.buckets < 0 or args.min_n < 0 or not 0 <= args.max_n <= 50 or (args.max_n and not args.buckets):
            self.fail(f"n-grams of {args.min_n} to {args.max_n} characters in {args.buckets} buckets are impossible")
        # Classifiers of version 11 used no character n-grams, whatever their arguments say.
        return replace(args, max_n=0) if version == 11 and args.model == "supervised" else args

    def read_entries(self, words: int, entries: int) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The words and labels of the dictionary, and their counts."""
        names: list[str] = []
        counts = np.empty(entries, dtype=np.int64)
        for entry in range(entries):
            self._load(_MAX_WORD + _ENTRY.size + 1)  # the last entries may have fewer bytes after them
            end = self._data.find(b"\0", self._at, self._at + _MAX_WORD)
            if end < 0:
                self.fail(f"dictionary entry {entry + 1} does not end")
            word = self._data[self._at : end]
            try:
                names.append(word.decode())
            except UnicodeDecodeError:
                self.fail(f"the word {quote(word)} is not UTF-8", remedy="train it again on UTF-8 text")
            self._at = end + 1
            counts[entry], is_label = self.unpack(_ENTRY)
            if not word or counts[entry] < 0 or is_label != (entry >= words):
                self.fail(f"dictionary entry {entry + 1}, {quote(word)}, is damaged")
        if len(set(names)) < entries:
            self.fail("a word is in the dictionary twice")
        return names, counts

    def read_matrix(self, name: str, heights: list[int], columns: int) -> list[Matrix]:
        """The next matrix, split into parts with `heights` rows."""
        (flag,) = self.unpack(_FLAG)
        if flag == 1:
            self.refuse_quantised()
        if flag:
            self.fail(f"the flag of the {name} matrix is {flag}, not 0 or 1")
        rows, found = sum(heights), self.unpack(_SHAPE)
        if found != (rows, columns):
            self.fail(f"the {name} matrix is {found[0]} x {found[1]} where it should be {rows} x {columns}")
        self.check_size(rows * columns, 4, f"numbers in the {name} matrix")
        return [self._read_rows(height, columns) for height in heights]

    def _read_rows(self, rows: int, columns: int) -> Matrix:
        matrix = np.empty((rows, columns), dtype="<f4")
        flat = matrix.reshape(-1).view(np.uint8)
        at = 0
        while at < flat.size:
            if not self._load(1):
                self.fail(_TOO_SHORT)
            size = min(len(self._data) - self._at, flat.size - at)
            flat[at : at + size] = np.frombuffer(self._data, np.uint8, size, self._at)
            at, self._at = at + size, self._at + size
        for begin in range(0, rows, _CHECKED_ROWS):
            if first_nonfinite_row(matrix[begin : begin + _CHECKED_ROWS]) is not None:
                self.fail("the matrix that ends here holds NaN or infinity")
        return matrix

    def expect_end(self) -> None:
        if self._load(1):
            self.fail("other bytes follow where the file should end")


def write_fasttext(path: Path, content: FasttextFile) -> None:
    """Write a .bin file that fastText's `load_model` reads, gzip if the name ends with .gz."""
    rows, columns = len(content.word_input) + len(content.ngram_input), content.args.dimension
    size = content.word_input.nbytes + content.ngram_input.nbytes + content.output.nbytes
    with new_gzip_file(path) as file, progress("writing", size) as advance:

        def write(matrix: Matrix) -> None:
            for part in row_blocks(matrix):
                file.write(finite_float32(path, matrix[part]).data)
                advance(matrix[part].nbytes)

        file.write(_pack_start(content))
        _write_entries(file, path, content)
        file.write(_NOT_QUANTISED + _SHAPE.pack(rows, columns))
        write(content.word_input)
        write(content.ngram_input)
        file.write(_NOT_QUANTISED + _SHAPE.pack(*content.output.shape))
        write(content.output)


def _pack_start(content: FasttextFile) -> bytes:
    *numbers, subsample = astuple(content.args)
    numbers[6], numbers[7] = _LOSSES.index(numbers[6]) + 1, _MODELS.index(numbers[7]) + 1
    words, labels = len(content.words), len(content.labels)
    dictionary = _DICTIONARY.pack(words + labels, words, labels, content.tokens, _NOT_PRUNED)
    return _ARGS.pack(FASTTEXT_MAGIC, VERSION, *numbers, subsample) + dictionary


def _write_entries(file: BinaryIO, path: Path, content: FasttextFile) -> None:
    entries = [
        *((word, count, 0) for word, count in zip(content.words, content.counts.tolist(), strict=True)),
        *((label, count, 1) for label, count in zip(content.labels, content.label_counts.tolist(), strict=True)),
    ]
    for begin in range(0, len(entries), _WRITTEN_ENTRIES):
        pieces = []
        for word, count, is_label in entries[begin : begin + _WRITTEN_ENTRIES]:
            if not word or "\0" in word:
                raise OutputError(f"cannot write {path}: fastText cannot hold the word {word!r}; train without it.")
            pieces += [word.encode(), b"\0", _ENTRY.pack(count, is_label)]
        file.write(b"".join(pieces))
