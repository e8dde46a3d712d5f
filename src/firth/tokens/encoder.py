"""Encoder: sentences to ids, each distinct chunk encoded once.

A corpus has few distinct chunks, so a table of those met before does most of the work. It gives the ids that the
`tokenizers` library would, because every tokenizer here treats the two sides of a space (and, where `separable`, of a
Chinese character) apart; the sentences for which that fails are encoded whole.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from firth.text.segment import HAN
from firth.tokens import _kernels
from firth.tokens.chunks import ChunkTable
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer, token_starts, word_starts

_JOINERS = "'.,-"  # stand inside words: don't, e-mail, 3.14, 1,000
PLAIN_WORD = re.compile(r"[A-Za-z0-9]+|[\u3400-\u4dbf\u4e00-\u9fff]+")  # that no normalisation changes
_CHINESE_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
_MOST_BYTES = 1 << 26  # of distinct chunks held; then the table starts anew, which costs time and changes nothing


class Encoded(NamedTuple):
    """Tokens of many sentences, one after the other."""

    ids: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.bool_]
    """Whether each token begins a word."""
    lengths: npt.NDArray[np.int64]
    """Tokens of each sentence."""


class Encoder:
    """Encodes sentences as `tokenizer.encode` does, many times faster on real text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._uncut = uncut_lines(tokenizer.recipe)
        self._vocabulary: dict[str, int] = tokenizer.backend.get_vocab()
        self._clear()

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """The tokens of sentences, none of which may hold a line end or NUL."""
        if self._table.size > _MOST_BYTES:
            self._clear()
        text = "\n".join(sentences) + "\n"
        whole = whole_lines(text, self._uncut)
        marked = self.tokenizer.segmenter.mark(text) if self.tokenizer.recipe.separable else text
        if whole.any():
            lines = marked.split("\n")
            for line in np.flatnonzero(whole).tolist():
                lines[line] = sentences[line]
            marked = "\n".join(lines)
        chunks = self._table.look_up(marked.encode(), whole)
        self._encode_new({sentences[line] for line in np.flatnonzero(whole).tolist()})
        total = _kernels.count_tokens(chunks, self._bounds)
        encoded = Encoded(
            np.empty(total, dtype=np.uint32),
            np.empty(total, dtype=np.bool_),
            np.zeros(len(sentences), dtype=np.int64),
        )
        _kernels.emit(chunks, self._bounds, self._ids, self._starts, *encoded)
        return encoded

    def _clear(self) -> None:
        self._table = ChunkTable(kinds_of_bytes(self.tokenizer.recipe))
        self._bounds = np.zeros(1, dtype=np.int64)
        self._ids = np.zeros(0, dtype=np.uint32)
        self._starts = np.zeros(0, dtype=np.bool_)

    def _encode_new(self, whole: set[str]) -> None:
        """Encodes the chunks that the table has met since the last time; those in `whole` are sentences."""
        texts = self._table.texts(self._bounds.size - 1)
        if not texts:
            return
        known = [self._look_up_tokens(text) for text in texts]
        left = [text for text, ids in zip(texts, known, strict=True) if ids is None]
        encodings = iter(self.tokenizer.backend.encode_batch(left, add_special_tokens=False))
        ids: list[int] = []
        starts: list[bool] = []
        lengths: list[int] = []
        for text, found in zip(texts, known, strict=True):
            if found is not None:
                new, flags = found, [True, *[False] * (len(found) - 1)]
            else:
                new, flags = self._with_starts(text, next(encodings), text in whole)
            ids += new
            starts += flags
            lengths.append(len(new))
        self._ids = np.concatenate([self._ids, np.array(ids, dtype=np.uint32)])
        self._starts = np.concatenate([self._starts, np.array(starts, dtype=np.bool_)])
        self._bounds = np.concatenate([self._bounds, self._bounds[-1] + np.cumsum(lengths, dtype=np.int64)])

    def _look_up_tokens(self, chunk: str) -> list[int] | None:
        """The ids of a chunk that is plainly one token, or one Chinese word; None for any other."""
        model = self.tokenizer.recipe.model
        if model == "words":
            if PLAIN_WORD.fullmatch(chunk):
                return [self._vocabulary.get(chunk.lower() if self.tokenizer.recipe.lowercase else chunk, UNK)]
        elif model in ("wordpiece", "chars") and _CHINESE_WORD.fullmatch(chunk):
            return [self._vocabulary.get(character, UNK) for character in chunk]
        return None

    def _with_starts(self, chunk: str, found: tokenizers.Encoding, whole: bool) -> tuple[list[int], list[bool]]:
        """The ids of a chunk, and whether each begins a word."""
        if whole:
            tokens = self.tokenizer.encode(chunk)
            return tokens.ids, tokens.starts
        separable = self.tokenizer.recipe.separable
        if chunk.strip().isalnum() and (separable or not HAN.search(chunk)):
            return found.ids, [True, *[False] * (len(found) - 1)][: len(found)]
        marked = chunk if separable else self.tokenizer.segmenter.mark(chunk)
        return found.ids, token_starts(found.offsets, word_starts(marked))


def kinds_of_bytes(recipe: TokenizerRecipe) -> npt.NDArray[np.uint8]:
    """Which ASCII bytes a chunk may end beside, without changing tokens or word bounds.

    Not where white space alone separates words, nor where every chunk would get a space mark of its own.
    """
    kinds = np.full(256, _kernels.OTHER, dtype=np.uint8)
    if recipe.model in ("words", "wordpiece"):
        kinds[_kernels.SPACE] = _kernels.WORD  # no token holds a space, so it need not be kept
    if recipe.model in ("bpe", "pieces") or (recipe.model == "words" and recipe.split == "space"):
        return kinds
    kinds[[ord(character) for character in string.ascii_letters + string.digits]] = _kernels.WORD
    alone = recipe.model != "byte-bpe"  # it keeps runs of punctuation together
    marks = [ord(character) for character in string.punctuation]
    joiners = [ord(character) for character in _JOINERS]
    kinds[marks] = _kernels.LONE_MARK if alone else _kernels.MARK
    kinds[joiners] = _kernels.LONE_JOINER if alone else _kernels.JOINER
    kinds[ord("_")] = _kernels.OTHER  # a letter to some, punctuation to others
    if recipe.model == "byte-bpe":
        kinds[ord("'")] = _kernels.OTHER  # it has rules of its own: 's, 't, 're
    return kinds


def whole_lines(text: str, uncut: re.Pattern[str] | None) -> npt.NDArray[np.bool_]:
    """Which lines hold something that forbids cutting them."""
    whole = np.zeros(text.count("\n") + 1, dtype=np.bool_)
    line, seen = 0, 0
    for match in uncut.finditer(text) if uncut else ():
        line += text.count("\n", seen, match.start())
        seen = match.start()
        whole[line] = True
    return whole


def uncut_lines(recipe: TokenizerRecipe) -> re.Pattern[str] | None:
    """What a line must not hold if it is to be cut into chunks.

    That is a special token written out, where the punctuation in it would be cut off; and for byte-level BPE, which
    groups runs of white space, any but single ones.
    """
    if kinds_of_bytes(recipe)[ord(".")] == _kernels.OTHER:
        return None
    special = "|".join(map(re.escape, recipe.specials))
    return re.compile(special + (r"|[^\S\n]{2}" if recipe.model == "byte-bpe" else ""))
