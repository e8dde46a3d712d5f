"""TrainingText: a token store as trainers of vectors see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.tokens.memory import let_go
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import MASK, Tokenizer

FIRST_WORD = MASK + 1
"""Ids below are special tokens; trainers leave them out, unknown words among them."""
_CHUNK = 1 << 20  # ids that are counted at once


@dataclass(frozen=True, eq=False)
class TrainingText:
    """The ids of a text, memory-mapped, and how often each word occurs."""

    ids: npt.NDArray[Any]
    """uint16 or uint32, all tokens in a row; those below `FIRST_WORD` have no vectors."""
    sentences: npt.NDArray[np.uint64]
    """Where each sentence begins, and the end."""
    documents: npt.NDArray[np.uint64]
    """The first sentence of each document, and the end."""
    words: list[str]
    """The word of each id."""

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each word occurs; special tokens count nothing."""
        counts = np.zeros(len(self.words), dtype=np.int64)
        for begin in range(0, len(self.ids), _CHUNK):
            counts += np.bincount(self.ids[begin : begin + _CHUNK], minlength=len(self.words))
            self.let_go()
        counts[:FIRST_WORD] = 0
        return counts

    @cached_property
    def total(self) -> int:
        """Words that have vectors."""
        return int(self.counts.sum())

    def cut(self, block: int, longest: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Blocks of about `block` tokens, and the pieces that they are made of, as two arrays of bounds.

        A piece is a sentence, or a part of one that is longer than `longest`: piece p is the tokens from `pieces[p]`
        to `pieces[p + 1]`, and block b the pieces from `blocks[b]` to `blocks[b + 1]`.
        """
        pieces = np.asarray(self.sentences).astype(np.int64)
        let_go(self.sentences)
        lengths = np.diff(pieces)
        if lengths.size and int(lengths.max()) > longest:
            parts = np.maximum(-(-lengths // longest), 1)
            within = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
            pieces = np.append(np.repeat(pieces[:-1], parts) + within * longest, pieces[-1])
        begins = np.searchsorted(pieces, np.arange(0, int(pieces[-1]), block))
        return np.append(np.unique(begins[begins < pieces.size - 1]), pieces.size - 1), pieces

    def let_go(self) -> None:
        """Gives the memory of ids that were read back: they are on the disk."""
        let_go(self.ids)

    def require(self, words: int) -> None:
        """Raises `CorpusError` unless there are two different words and `words` in all."""
        kinds = int(np.count_nonzero(self.counts))
        if kinds < 2:
            raise CorpusError(
                f"the text has {kinds} word that is frequent enough for a vector: give more text, "
                "or lower tokenizer.min_count."
            )
        if self.total < words:
            raise CorpusError(f"the text has only {self.total} words for windows of {words}: give more text.")


def training_text(store: TokenStore, tokenizer: Tokenizer) -> TrainingText:
    """The text of a store."""
    return TrainingText(store.ids, store.sentences, store.documents, tokenizer.vocabulary)
