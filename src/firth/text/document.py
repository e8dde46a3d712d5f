"""What a corpus is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as it was read, or one piece of a document too long to hold in memory at once.

    `text` holds its lines joined by "\\n", without blank lines at either end. A piece with `continues` set goes on
    with the document of the piece before it.
    """

    text: str
    source: str = ""
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """The sentences of one document, or of one piece of a very long one, and the file it came from.

    A piece with `continues` set goes on with the document of the piece before it.
    """

    sentences: tuple[str, ...]
    source: str = ""
    continues: bool = False
