"""What workers do with blocks of documents: count their chunks, or encode them.

A job handles one block after the other and may hold something back until it is told to finish. What it gives is a
reply: a small JSON object and arrays of bytes, so that it can cross a pipe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from firth.text.document import RawDocument
from firth.text.layout import Layout, sentences_of
from firth.text.segment import make_segmenter
from firth.tokens.chunks import ChunkTable
from firth.tokens.encoder import Encoder, kinds_of_bytes, uncut_lines, whole_lines
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer

_MOST_CHUNKS = 1 << 26  # bytes of distinct chunks that a count holds before it hands them on


class Reply(NamedTuple):
    """What comes back from a job."""

    facts: dict[str, Any]
    arrays: list[bytes]


class Setup(NamedTuple):
    """All that a worker needs to know to do its job."""

    job: str
    recipe: TokenizerRecipe
    layout: Layout
    tokenizer: bytes = b""
    dictionary: str | None = None

    def to_reply(self) -> Reply:
        facts = {"job": self.job, "recipe": asdict(self.recipe), "layout": self.layout, "dictionary": self.dictionary}
        return Reply(facts, [self.tokenizer])

    @classmethod
    def from_reply(cls, reply: Reply) -> Setup:
        facts = reply.facts
        recipe = TokenizerRecipe(**facts["recipe"])
        return cls(facts["job"], recipe, facts["layout"], reply.arrays[0], facts["dictionary"])


class Job(Protocol):
    def block(self, documents: Sequence[RawDocument]) -> Reply: ...

    def finish(self) -> Reply | None: ...


class CountJob:
    """Counts the distinct chunks of all blocks."""

    def __init__(self, setup: Setup) -> None:
        self.layout = setup.layout
        # Where words may not be cut at word breaks, text is counted as it stands.
        name = setup.recipe.segmenter if setup.recipe.separable else "space"
        self.segmenter = make_segmenter(name, _path(setup.dictionary))
        self.table = ChunkTable(kinds_of_bytes(setup.recipe))
        self.uncut = uncut_lines(setup.recipe)
        self.counts = np.zeros(0, dtype=np.int64)

    def block(self, documents: Sequence[RawDocument]) -> Reply:
        sentences = [sentence for document in documents for sentence in sentences_of(document.text, self.layout)]
        text = self.segmenter.mark("\n".join(sentences)) + "\n"
        chunks = self.table.look_up(text.encode(), whole_lines(text, self.uncut))
        counts = np.bincount(chunks[chunks >= 0], minlength=len(self.table))
        counts[: self.counts.size] += self.counts
        self.counts = counts
        return self._hand_over() if self.table.size > _MOST_CHUNKS else Reply({}, [])

    def finish(self) -> Reply | None:
        return self._hand_over()

    def _hand_over(self) -> Reply:
        reply = Reply({}, ["\n".join(self.table.texts()).encode(), self.counts.tobytes()])
        self.table.clear()
        self.counts = np.zeros(0, dtype=np.int64)
        return reply


class EncodeJob:
    """Encodes blocks; the reply holds ids, word starts, sentence lengths and document lengths."""

    def __init__(self, setup: Setup) -> None:
        self.layout = setup.layout
        tokenizer = Tokenizer(setup.tokenizer, setup.recipe, _path(setup.dictionary))
        self.encoder = Encoder(tokenizer)
        self.dtype = id_type(len(tokenizer))

    def block(self, documents: Sequence[RawDocument]) -> Reply:
        split = [sentences_of(document.text, self.layout) for document in documents]
        sentences = [sentence for document in split for sentence in document]
        encoded = self.encoder.encode(sentences)
        # Which document each sentence is of; sentences without a token (control characters, say) are left out.
        owner = np.repeat(np.arange(len(split)), [len(document) for document in split])
        kept = encoded.lengths > 0
        text = "\n".join(sentences).encode()
        continues = [document.continues for document in documents]
        facts = {
            "bytes": len(text) - max(len(sentences) - 1, 0),
            "digest": hashlib.sha256(text + repr((owner.tolist(), continues)).encode()).hexdigest(),
            "unknown": int(np.count_nonzero(encoded.ids == UNK)),
            "words": int(np.count_nonzero(encoded.starts)),
        }
        arrays = [
            encoded.ids.astype(self.dtype),
            encoded.starts,
            encoded.lengths[kept].astype(np.uint32),
            np.bincount(owner[kept], minlength=len(split)).astype(np.uint32),
            np.array(continues),
        ]
        return Reply(facts, [array.tobytes() for array in arrays])

    def finish(self) -> Reply | None:
        return None


JOBS: dict[str, Callable[[Setup], Job]] = {"count": CountJob, "encode": EncodeJob}


def id_type(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest type of a store's ids."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None
