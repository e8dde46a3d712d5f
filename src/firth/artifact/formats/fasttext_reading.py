"""Reading fastText's .bin files strictly: sizes are compared with the file before memory is taken for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from firth.artifact.formats.arpa_reading import show
from firth.artifact.formats.fasttext_file import (
    DICTIONARY,
    ENTRY,
    LOSSES,
    MAGIC,
    MODELS,
    SHAPE,
    START,
    VERSION,
    FasttextArgs,
    FasttextFile,
    Matrix,
)
from firth.artifact.formats.vector_source import MOST_COLUMNS, Source, first_infinite, open_source

_LONGEST_WORD = 1 << 16
_BLOCK = 1 << 22
_ROWS = 1 << 12  # checked for NaN at once


def is_fasttext(path: Path) -> bool:
    """Whether a file is a fastText .bin or .ftz, by its first bytes; it may be packed."""
    with open_source(path) as source:
        return source.start[:4] == MAGIC.to_bytes(4, "little")


def read_fasttext(path: Path) -> FasttextFile:
    """All that is in a fastText .bin file, plain or packed; whatever is wrong in it is an `ArtifactError`."""
    with open_source(path) as source:
        reader = _Reader(source)
        args = reader.read_args()
        entries, words, labels, tokens, pruned = reader.unpack(DICTIONARY)
        if pruned != -1:
            reader.refuse_quantised()
        rows = (words, labels)
        if min(rows) < 0 or sum(rows) != entries or words == 0 or tokens < 0:
            reader.wrong(f"{entries} entries, {words} words, {labels} labels and {tokens} tokens do not fit together")
        reader.check_room(entries, 2 + ENTRY.size, "entries of the dictionary")
        spelt, counts = reader.read_entries(words, entries)
        own, ngrams = reader.read_input(args, words)
        output = reader.read_output(args, labels if args.model == "supervised" else words)
        reader.expect_end()
    return FasttextFile(
        args=args,
        words=spelt[:words],
        counts=counts[:words],
        own=own,
        ngrams=ngrams,
        output=output,
        labels=spelt[words:],
        label_counts=counts[words:],
        tokens=tokens,
    )


class _Reader:
    """A place in a file, and what can be read there."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data = source.start
        self._at = 0
        self._before = 0  # bytes of the file before `_data`

    @property
    def place(self) -> int:
        """The next byte's place in the file."""
        return self._before + self._at

    def wrong(self, reason: str, **remedy: str) -> NoReturn:
        """Raises the error for this place."""
        self._source.wrong(f"byte {self.place}", reason, **remedy)

    def refuse_quantised(self) -> NoReturn:
        """Raises the error for compressed models."""
        self.wrong(
            "this is a quantised model (.ftz), whose vectors are only approximations",
            remedy="give the .bin file that it was made from",
        )

    def check_room(self, count: int, size: int, what: str) -> None:
        """Raises unless so many things of that size can still be in the file."""
        if count * size > self._source.room - self.place:
            self.wrong(f"it promises {count} {what}, more than the file can hold")

    def _fill(self, size: int) -> bool:
        """Makes sure that the next `size` bytes are at hand; False if the file ends before."""
        while len(self._data) - self._at < size:
            chunk = self._source.read(max(_BLOCK, size))
            if not chunk:
                return False
            self._before += self._at
            self._data, self._at = self._data[self._at :] + chunk, 0
        return True

    def unpack(self, layout: Any) -> tuple[Any, ...]:
        """The numbers that lie here in that layout."""
        if not self._fill(layout.size):
            self.wrong("the file ends too early")
        found: tuple[Any, ...] = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def read_args(self) -> FasttextArgs:
        """The arguments at the beginning of the file."""
        magic, version, *numbers, subsample = self.unpack(START)
        if magic != MAGIC:
            self._at = 0
            self.wrong("this is no fastText .bin file", remedy="give one that save_model wrote")
        if not 11 <= version <= VERSION:
            self.wrong(f"version {version} of the format is not known", remedy=f"have it written in version {VERSION}")
        if not (1 <= numbers[6] <= len(LOSSES) and 1 <= numbers[7] <= len(MODELS)):
            self.wrong(f"there is no loss {numbers[6]} or no model {numbers[7]}")
        numbers[6], numbers[7] = LOSSES[numbers[6] - 1], MODELS[numbers[7] - 1]
        args = FasttextArgs(**dict(zip(FasttextArgs.__dataclass_fields__, [*numbers, subsample], strict=True)))
        if not 1 <= args.dimension <= MOST_COLUMNS:
            self.wrong(f"Firth reads vectors of 1 to {MOST_COLUMNS} numbers, not {args.dimension}")
        if args.buckets < 0 or args.min_n < 0 or not 0 <= args.max_n <= 50 or (args.max_n and not args.buckets):
            self.wrong(f"n-grams of {args.min_n} to {args.max_n} characters in {args.buckets} buckets cannot be")
        # Classifiers of that version took no n-grams of characters, whatever they say.
        return replace(args, max_n=0) if version == 11 and args.model == "supervised" else args

    def read_entries(self, words: int, entries: int) -> tuple[list[str], Any]:
        """The words and labels of the dictionary, and their counts."""
        spelt: list[str] = []
        counts = np.empty(entries, dtype=np.int64)
        for entry in range(entries):
            self._fill(_LONGEST_WORD + ENTRY.size + 1)  # the last ones may have less behind them
            end = self._data.find(b"\0", self._at, self._at + _LONGEST_WORD)
            if end < 0:
                self.wrong(f"entry {entry + 1} of the dictionary does not end")
            word = self._data[self._at : end]
            try:
                spelt.append(word.decode())
            except UnicodeDecodeError:
                self.wrong(f"the word {show(word)} is not in UTF-8", remedy="train it again on text in UTF-8")
            self._at = end + 1
            counts[entry], label = self.unpack(ENTRY)
            if not word or counts[entry] < 0 or label != (entry >= words):
                self.wrong(f"entry {entry + 1} of the dictionary, {show(word)}, is damaged")
        if len(set(spelt)) < entries:
            self.wrong("a word stands in the dictionary twice")
        return spelt, counts

    def read_input(self, args: FasttextArgs, words: int) -> tuple[Matrix, Matrix]:
        """The rows of words and those of buckets."""
        self._read_flag()
        self._check_shape("input", words + args.buckets, args.dimension)
        return self._read_rows(words, args.dimension), self._read_rows(args.buckets, args.dimension)

    def read_output(self, args: FasttextArgs, rows: int) -> Matrix:
        """The rows of words or labels that are predicted."""
        self._read_flag()
        self._check_shape("output", rows, args.dimension)
        return self._read_rows(rows, args.dimension)

    def expect_end(self) -> None:
        """Raises unless the file ends here."""
        if self._fill(1):
            self.wrong("other bytes follow where the file should end")

    def _read_flag(self) -> None:
        """Whether the next matrix is quantised, which must not be."""
        if not self._fill(1):
            self.wrong("the file ends too early")
        flag = self._data[self._at]
        self._at += 1
        if flag == 1:
            self.refuse_quantised()
        if flag:
            self.wrong(f"{flag} stands where 0 or 1 should")

    def _check_shape(self, name: str, rows: int, columns: int) -> None:
        found = self.unpack(SHAPE)
        if found != (rows, columns):
            self.wrong(f"the {name} matrix is {found[0]} x {found[1]} where it should be {rows} x {columns}")
        self.check_room(rows * columns, 4, f"numbers in the {name} matrix")

    def _read_rows(self, rows: int, columns: int) -> Matrix:
        """The next numbers of a matrix, which `_check_shape` has found room for."""
        matrix = np.empty((rows, columns), dtype="<f4")
        flat = matrix.reshape(-1).view(np.uint8)
        at = 0
        while at < flat.size:
            if not self._fill(1):
                self.wrong("the file ends too early")
            size = min(len(self._data) - self._at, flat.size - at)
            flat[at : at + size] = np.frombuffer(self._data, np.uint8, size, self._at)
            at, self._at = at + size, self._at + size
        for begin in range(0, rows, _ROWS):
            if first_infinite(matrix[begin : begin + _ROWS]) is not None:
                self.wrong("the matrix that ends here holds what is no finite number")
        return matrix
