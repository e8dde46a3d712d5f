"""Writing tables of word vectors, text or binary: block by block, whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _vector_file_kernels as kernels
from firth.artifact.formats.arpa_writing import SPACE_MARK
from firth.artifact.formats.vector_source import first_infinite
from firth.cores import in_order
from firth.errors import OutputError
from firth.files import new_file
from firth.progress import progress

_FORBIDDEN = "\0\t\n\v\f\r"
_BLOCK = 1 << 19  # numbers that are written as one piece
_PACKING = 1  # of 9: numbers hardly pack better with more effort

Matrix = npt.NDArray[Any]


def spell_words(path: Path, words: Sequence[str]) -> list[bytes]:
    """The words as files can hold them, in UTF-8: a space is written as ▁."""
    known: set[str] = set()
    for word in words:
        name = word.replace(" ", SPACE_MARK)
        if not name or any(character in name for character in _FORBIDDEN):
            raise OutputError(
                f"cannot write {path}: files of vectors cannot hold the word {word!r}; take such characters out of "
                "the text and train again."
            )
        if name in known:
            raise OutputError(
                f"cannot write {path}: two words would both be spelt {name!r}, since a space becomes {SPACE_MARK}: "
                "leave one of them out of the text and train again."
            )
        known.add(name)
    return [word.replace(" ", SPACE_MARK).encode() for word in words]


def write_text(path: Path, words: list[bytes], vectors: Matrix, *, header: bool) -> None:
    """Writes a line for each word, its numbers with the fewest digits that restore them as float32."""

    def lines(part: slice) -> bytes:
        spelt, values = words[part], checked(path, vectors[part])
        pool = np.frombuffer(b"".join(spelt), dtype=np.uint8)
        bounds = np.zeros(len(spelt) + 1, dtype=np.int64)
        np.cumsum([len(word) for word in spelt], out=bounds[1:])
        out = np.empty(pool.size + len(spelt) + values.size * kernels.NUMBER_ROOM, dtype=np.uint8)
        return out[: kernels.write_text(values, pool, bounds, out)].tobytes()

    _write(path, _header(vectors) if header else b"", in_order(lines, blocks(vectors)), vectors)


def write_binary(path: Path, words: list[bytes], vectors: Matrix) -> None:
    """Writes word2vec's binary format: each word, a space, the bytes of its numbers and an end of line."""

    def rows(part: slice) -> bytes:
        values = checked(path, vectors[part])
        return b"".join([b"%b %b\n" % (word, row.tobytes()) for word, row in zip(words[part], values, strict=True)])

    _write(path, _header(vectors), map(rows, blocks(vectors)), vectors)


def blocks(matrix: Matrix) -> Iterator[slice]:
    """The rows of a matrix in blocks."""
    height = max(_BLOCK // max(matrix.shape[1], 1), 1)
    return (slice(begin, min(begin + height, len(matrix))) for begin in range(0, len(matrix), height))


def checked(path: Path, values: Matrix) -> npt.NDArray[np.float32]:
    """The numbers as float32, all of them finite."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(values, dtype="<f4")
    if first_infinite(values) is not None:
        raise OutputError(f"cannot write {path}: a vector holds what is no finite number; train the model again.")
    return values


@contextmanager
def new_packed_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that appears whole or not at all, packed if its name ends with .gz, the same at any time."""
    with new_file(path) as plain:
        if not path.name.endswith(".gz"):
            yield plain
            return
        with gzip.GzipFile("", "wb", _PACKING, plain, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def _header(vectors: Matrix) -> bytes:
    return b"%d %d\n" % vectors.shape


def _write(path: Path, head: bytes, pieces: Iterator[bytes], vectors: Matrix) -> None:
    with new_packed_file(path) as file, progress("writing", vectors.nbytes) as advance:
        file.write(head)
        for part, piece in zip(blocks(vectors), pieces, strict=True):
            file.write(piece)
            advance(vectors[part].nbytes)
