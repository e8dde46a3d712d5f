"""One pass over a corpus: its sentences as numbers of distinct chunks, and how often each chunk occurs.

Whatever is done with a corpus, its text is read, split into sentences and cut once. Vocabularies are learnt from the
counts; a store is written by putting the tokens of each chunk in place of its number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from firth.progress import progress
from firth.text.corpus import Corpus
from firth.text.readers import whole_lines
from firth.text.segment import Segmenter, make_segmenter
from firth.tokens import _kernels
from firth.tokens.chunks import ChunkTable
from firth.tokens.cutting import uncut_lines
from firth.tokens.jobs import Reply, Setup
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.workers import run_job, told


class TextFacts:
    """What is said of a text whatever becomes of it: its digest, its bytes, and where its documents begin.

    The digest is that of all sentences, each closed by a line end, and of the numbers of the sentences that begin
    documents; so it does not depend on the file that the text came from, nor on the way in which it was read.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._sentences = 0
        self._text, self._documents = hashlib.sha256(), hashlib.sha256()
        self._parted = True

    def add(self, reply: Reply) -> npt.NDArray[np.bool_]:
        """Takes down the sentences of the next block; returns which of them begin a document."""
        text = reply.arrays[0]
        opens = np.array(np.frombuffer(reply.arrays[1], dtype=np.bool_))
        if opens.size:
            opens[0] |= self._parted
            self._parted = False
        self._parted |= reply.facts["parted"]
        self._text.update(text)
        self._documents.update((self._sentences + np.flatnonzero(opens)).astype(np.uint64).data)
        self._sentences += opens.size
        self.bytes += len(text) - opens.size
        return opens

    @property
    def digest(self) -> str:
        return hashlib.sha256(self._text.digest() + self._documents.digest()).hexdigest()


class Numbering:
    """The distinct chunks of a text and their counts, gathered from workers that each have numbers of their own."""

    def __init__(self, recipe: TokenizerRecipe) -> None:
        self._uncut = uncut_lines(recipe) if recipe.separable else None
        self._table = ChunkTable()
        self._counts = np.zeros(0, dtype=np.int64)
        self._numbers: dict[int, npt.NDArray[np.int32]] = {}  # of each worker's chunks

    def __len__(self) -> int:
        return len(self._table)

    def add(self, reply: Reply) -> npt.NDArray[np.int32]:
        """Takes down the chunks of the next block; returns their numbers here, and -1 at each line end."""
        chunks = np.frombuffer(reply.arrays[2], dtype=np.int32)
        chunks.flags.writeable = False
        known = self._numbers.get(reply.facts["worker"], np.zeros(0, dtype=np.int32))
        numbers = np.concatenate([known[: reply.facts["first"]], self._table.number(reply.arrays[3])])
        self._numbers[reply.facts["worker"]] = numbers
        new = len(self._table) - self._counts.size
        if new:
            self._counts = np.concatenate([self._counts, np.zeros(new, dtype=np.int64)])
        out = np.empty(chunks.size, dtype=np.int32)
        _kernels.renumber(chunks, numbers, self._counts, out)
        return out

    @cached_property
    def texts(self) -> list[str]:
        """The chunks in the order of their numbers; to be asked for when all are there."""
        return self._table.texts()

    def blocks(self, size: int) -> Iterator[bytes]:
        """The chunks in the order of their numbers, one a line, in blocks of about so many bytes."""
        lines = self._table.lines()
        return whole_lines((lines[begin : begin + size].tobytes() for begin in range(0, lines.size, size)), size)

    def counts(self, segmenter: Segmenter) -> dict[str, int]:
        """Chunk -> count; lines that could not be cut get their word breaks here."""
        texts = self.texts
        if self._uncut is not None:
            texts = [segmenter.mark(text) if self._uncut.search(text) else text for text in texts]
        return dict(zip(texts, self._counts.tolist(), strict=True))


def cut_corpus(
    corpus: Corpus, recipe: TokenizerRecipe, dictionary: Path | None = None, threads: int | None = None
) -> Iterator[Reply]:
    """What the workers make of each block of the corpus, in order: see `CutJob`."""
    setup = Setup("cut", recipe, corpus.layout, dictionary=str(dictionary) if dictionary else None)
    with progress("counting words", corpus.size()) as advance:
        yield from run_job(setup, told(corpus.blocks(), advance), threads)


def count_chunks(
    corpus: Corpus, recipe: TokenizerRecipe, dictionary: Path | None = None, threads: int | None = None
) -> dict[str, int]:
    """Chunk -> count, over all sentences of the corpus, segmented where the writing has no spaces."""
    numbering = Numbering(recipe)
    for reply in cut_corpus(corpus, recipe, dictionary, threads):
        numbering.add(reply)
    return numbering.counts(make_segmenter(recipe.segmenter, dictionary))
