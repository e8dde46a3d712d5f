"""The bytes of a vector file, plain or packed, in blocks; and what to say when they are wrong."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, cast

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.arpa_source import AGAIN, Block
from firth.errors import ArtifactError
from firth.progress import progress

_BLOCK = 1 << 22
_LONGEST_LINE = 1 << 20
_PACKED = b"\x1f\x8b"
_ARCHIVE = b"PK\x03\x04"
_DEFLATE_MOST = 1032  # bytes that one byte of gzip can stand for
MOST_WORDS = (1 << 31) - 16
MOST_COLUMNS = 10_000


class Shape(NamedTuple):
    """How many rows a file has, and how many numbers each of them."""

    rows: int
    columns: int


class Source:
    """A file that is read once from its beginning to its end, in little memory however large it is."""

    def __init__(self, path: Path, file: BinaryIO, room: int, advance: Callable[[float], None]) -> None:
        self.path = path
        self.room = room
        """The file holds no more bytes than this."""
        self._file = file
        self._advance = advance
        self.start = self.read(_BLOCK)
        """The first bytes, which `blocks` and `chunks` give again."""

    def read(self, size: int) -> bytes:
        """The next bytes: so many, or fewer at the end of the file."""
        data = self._file.read(size)
        self._advance(len(data))
        return data

    def chunks(self, skip: int) -> Iterator[bytes]:
        """All bytes but the first ones, which must lie in `start`."""
        yield self.start[skip:]
        self.start = b""
        while chunk := self.read(_BLOCK):
            yield chunk

    def blocks(self, skip: int, line: int) -> Iterator[Block]:
        """All lines but the first ones, in blocks; `line` is the number of the first that is given."""
        rest = b""
        for chunk in self.chunks(skip):
            text = rest + chunk
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            if end:
                yield Block(line, text[:end])
                line += text.count(b"\n")
            if len(rest) > _LONGEST_LINE:
                self.wrong(f"line {line}", f"it is longer than {_LONGEST_LINE} bytes")
        if rest:
            yield Block(line, rest + b"\n")

    def wrong(self, place: str, reason: str, remedy: str = AGAIN) -> NoReturn:
        """Raises the error for a line or row."""
        raise ArtifactError(f"{self.path}, {place}: {reason}; {remedy}.")

    def check_shape(self, place: str, shape: Shape, row: int) -> None:
        """Raises unless the file can hold what it promises, rows of at least so many bytes, before memory is taken."""
        if shape.rows < 1 or shape.columns < 1:
            self.wrong(place, f"it promises {shape.rows} words of {shape.columns} numbers, which is nothing")
        if shape.columns > MOST_COLUMNS:
            self.wrong(place, f"Firth reads up to {MOST_COLUMNS} numbers a word, not {shape.columns}")
        if shape.rows > MOST_WORDS or shape.rows * row > self.room + 1:
            self.wrong(place, f"it promises {shape.rows} words of {shape.columns} numbers, more than the file can hold")


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The bytes of a file, unpacked where its first ones say so; what cannot be read is an `ArtifactError`."""
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(open(path, "rb"))
            start = plain.read(4)
            plain.seek(0)
            if start == _ARCHIVE:
                raise ArtifactError(f"{path} is a zip archive: unpack it and give the file that was in it.")
            packed = start.startswith(_PACKED)
            size = os.fstat(plain.fileno()).st_size
            file = stack.enter_context(gzip.open(plain)) if packed else plain
            advance = stack.enter_context(progress("reading", None if packed else size))
            yield Source(path, cast(BinaryIO, file), size * _DEFLATE_MOST if packed else size, advance)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArtifactError(f"{path} is a damaged gzip file ({error}): {AGAIN}.") from error
    except MemoryError as error:
        raise ArtifactError(
            f"{path} does not fit into memory: give a smaller file, or use a larger machine."
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"cannot read {path} ({reason}): check the path and whether you may read it.") from error


def first_infinite(values: npt.NDArray[np.float32]) -> int | None:
    """The first row that holds NaN or infinity."""
    finite = np.isfinite(values)
    return None if finite.all() else int(np.flatnonzero(~finite.all(axis=1))[0])
