"""Writing fastText's .bin files, whole or not at all."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import BinaryIO

from firth.artifact.formats.fasttext_file import (
    DICTIONARY,
    ENTRY,
    LOSSES,
    MAGIC,
    MODELS,
    SHAPE,
    START,
    VERSION,
    FasttextFile,
    Matrix,
)
from firth.artifact.formats.vectors_writing import blocks, checked, new_packed_file
from firth.errors import OutputError
from firth.progress import progress

_AT_ONCE = 10_000  # entries that are written as one piece
_NOT_PRUNED = -1
_NOT_QUANTISED = b"\0"


def write_fasttext(path: Path, content: FasttextFile) -> None:
    """Writes a .bin file that fastText's `load_model` reads, packed if the name ends with .gz."""
    rows, columns = len(content.own) + len(content.ngrams), content.args.dimension
    size = content.own.nbytes + content.ngrams.nbytes + content.output.nbytes
    with new_packed_file(path) as file, progress("writing", size) as advance:

        def put(matrix: Matrix) -> None:
            for part in blocks(matrix):
                file.write(checked(path, matrix[part]).data)
                advance(matrix[part].nbytes)

        file.write(_start(content))
        _write_entries(file, path, content)
        file.write(_NOT_QUANTISED + SHAPE.pack(rows, columns))
        put(content.own)
        put(content.ngrams)
        file.write(_NOT_QUANTISED + SHAPE.pack(*content.output.shape))
        put(content.output)


def _start(content: FasttextFile) -> bytes:
    *numbers, subsample = astuple(content.args)
    numbers[6], numbers[7] = LOSSES.index(numbers[6]) + 1, MODELS.index(numbers[7]) + 1
    words, labels = len(content.words), len(content.labels)
    dictionary = DICTIONARY.pack(words + labels, words, labels, content.tokens, _NOT_PRUNED)
    return START.pack(MAGIC, VERSION, *numbers, subsample) + dictionary


def _write_entries(file: BinaryIO, path: Path, content: FasttextFile) -> None:
    entries = [
        *((word, count, 0) for word, count in zip(content.words, content.counts.tolist(), strict=True)),
        *((label, count, 1) for label, count in zip(content.labels, content.label_counts.tolist(), strict=True)),
    ]
    for begin in range(0, len(entries), _AT_ONCE):
        pieces = []
        for word, count, label in entries[begin : begin + _AT_ONCE]:
            if not word or "\0" in word:
                raise OutputError(f"cannot write {path}: fastText cannot hold the word {word!r}.")
            pieces += [word.encode(), b"\0", ENTRY.pack(count, label)]
        file.write(b"".join(pieces))
