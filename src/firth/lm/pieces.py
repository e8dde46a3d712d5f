"""Texts of any length in pieces: batches of bounded size, and documents that continue from one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Score, Scores, TextPiece, total
from firth.text.layout import Document

_PIECES = 100_000  # of a batch, at most
_CHARACTERS = 1 << 22  # of a batch, or a single piece


class PieceBatch(NamedTuple):
    """Pieces that are scored at once."""

    pieces: list[TextPiece]
    continues: bool
    """Whether the next batch continues the last document."""


def piece_batches(pieces: Iterable[TextPiece]) -> Iterator[PieceBatch]:
    """The pieces in batches that fit into memory; a batch may end within a document.

    >>> [batch.continues for batch in piece_batches([TextPiece(["a"]), TextPiece(["b"], False)])]
    [False]
    """
    batch: list[TextPiece] = []
    characters = 0
    for piece in pieces:
        if batch and (len(batch) >= _PIECES or characters >= _CHARACTERS):
            yield PieceBatch(batch, not piece.starts_document)
            batch, characters = [], 0
        batch.append(piece)
        characters += sum(map(len, piece.sentences))
    if batch:
        yield PieceBatch(batch, False)


def document_sizes(sizes: npt.NDArray[np.int64], starts: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The numbers of sentences of documents, from those of their pieces; the first piece always starts one.

    >>> document_sizes(np.array([2, 1, 0, 4]), np.array([False, False, True, False])).tolist()
    [3, 4]
    """
    if starts[1:].all():
        return sizes
    return np.add.reduceat(sizes, np.flatnonzero(np.append(True, starts[1:])))


def document_pieces(documents: Iterable[Document]) -> Iterator[TextPiece]:
    """The documents of a corpus as pieces."""
    return (TextPiece(document.sentences, not document.continues) for document in documents)


def score_documents(model: Scores, documents: Iterable[Document]) -> Score:
    """The total score of documents; context is carried within each."""
    return total(model.score_pieces(document_pieces(documents)))
