"""Encoder: sentences to ids, each distinct chunk encoded once.

A corpus has few distinct chunks, so a table of those met before does most of the work. It gives the ids that the
`tokenizers` library would; the chunks that are not plainly one word are left to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from firth.text.segment import HAN
from firth.tokens import _kernels
from firth.tokens.cutting import Cutter
from firth.tokens.lines import Lines, lines_of
from firth.tokens.pipeline import WordCutter
from firth.tokens.tokenizer import UNK, Tokenizer, token_starts, word_starts

_CHINESE_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
_UNCERTAIN = re.compile(r"[^\u0021-\u02ff\u2010-\u2027]|[\u007f-\u00a0]")  # white space, or a script without spaces
_MOST_BYTES = 1 << 26  # of distinct chunks held; then the table starts anew, which costs time and changes nothing
_MOST_WORDS = 1 << 20  # of words that single sentences are made of, held likewise


class Encoded(NamedTuple):
    """Tokens of many sentences, one after the other."""

    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.bool_]
    """Whether each token begins a word."""
    lengths: npt.NDArray[np.int64]
    """Tokens of each sentence."""


class ChunkTokens(NamedTuple):
    """The tokens of numbered chunks: those of chunk c are `ids[bounds[c]:bounds[c + 1]]`."""

    bounds: npt.NDArray[np.int64]
    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.bool_]

    def emit(self, chunks: npt.NDArray[np.int32], lines: int) -> Encoded:
        """The tokens of so many lines of chunks."""
        total = _kernels.count_tokens(chunks, self.bounds)
        encoded = Encoded(
            np.empty(total, dtype=self.ids.dtype), np.empty(total, dtype=np.bool_), np.zeros(lines, dtype=np.int64)
        )
        _kernels.emit(chunks, self.bounds, self.ids, self.starts, *encoded)
        return encoded

    def and_then(
        self, lengths: npt.NDArray[np.int64], ids: npt.NDArray[Any], starts: npt.NDArray[np.bool_]
    ) -> ChunkTokens:
        """These and those of further chunks."""
        bounds = self.bounds[-1] + np.cumsum(lengths, dtype=np.int64)
        return ChunkTokens(
            np.concatenate([self.bounds, bounds]),
            np.concatenate([self.ids.astype(ids.dtype, copy=False), ids]),
            np.concatenate([self.starts, starts]),
        )


NO_TOKENS = ChunkTokens(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.bool_))


class Encoder:
    """Encodes sentences as `tokenizer.encode` does, many times faster on real text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._separable = tokenizer.recipe.separable
        self._tokens = NO_TOKENS
        self._clear()

    @property
    def pairs(self) -> bool:
        """Whether lines must tell where they hold two characters of white space in a row."""
        return self._cutter.pairs

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """The tokens of sentences, none of which may hold a line end or NUL."""
        return self.encode_lines(lines_of(sentences, self.pairs))

    def encode_lines(self, lines: Lines) -> Encoded:
        """The tokens of sentences that are lines already."""
        if self._cutter.table.size > _MOST_BYTES:
            self._clear()
        chunks = self._cutter.cut(lines)
        if len(self._cutter.table) >= self._tokens.bounds.size:
            texts = self._cutter.table.texts(self._tokens.bounds.size - 1)
            self._tokens = self._tokens.and_then(*self.encode_chunks(texts))
        return self._tokens.emit(chunks, len(lines))

    def encode_one(self, sentence: str) -> npt.NDArray[np.uint32]:
        """The ids of one sentence: in a few microseconds if it is made of words that such sentences had before."""
        first, *others = sentence.split(" ")
        try:
            return np.array(
                [*self._first[first], *chain.from_iterable(map(self._inner.__getitem__, others))], np.uint32
            )
        except KeyError:
            self._remember(first, others)
            return self.encode([sentence]).ids

    def encode_chunks(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """The number of tokens of each chunk, their ids one after the other, and which of them begin words."""
        single = self._single_tokens(texts)
        others = np.flatnonzero(single < 0)
        found, flags = self._tokens_of([texts[place] for place in others.tolist()])
        lengths = np.ones(len(texts), dtype=np.int64)
        lengths[others] = [len(ids) for ids in found]
        begins = np.cumsum(lengths) - lengths
        ids = np.empty(int(lengths.sum()), dtype=np.uint32)
        in_others = np.repeat(single < 0, lengths)
        ids[~in_others] = single[single >= 0]
        ids[in_others] = list(chain.from_iterable(found))
        starts = np.zeros(ids.size, dtype=np.bool_)
        starts[begins[lengths > 0]] = True
        for place, several in flags.items():
            begin = begins[others[place]]
            starts[begin : begin + len(several)] = several
        return lengths, ids, starts

    def _clear(self) -> None:
        self._cutter = Cutter(self.tokenizer.recipe, self.tokenizer.segmenter)
        self._tokens = NO_TOKENS
        self._forget()

    def _forget(self) -> None:
        """Starts the words of single sentences anew; the space before a word is a part of it if spaces are kept."""
        self._inner: dict[str, list[int]] = {}
        self._first = self._inner if self.tokenizer.recipe.model in ("words", "wordpiece") else {}

    def _remember(self, first: str, others: Sequence[str]) -> None:
        """Takes down the ids of the words of a sentence, if they are the same in every sentence."""
        if len(self._inner) + len(self._first) > _MOST_WORDS:
            self._forget()
        self._remember_words(self._first, [first], "")
        self._remember_words(self._inner, others, "" if self._first is self._inner else " ")

    def _remember_words(self, known: dict[str, list[int]], words: Iterable[str], before: str) -> None:
        uncut = self._cutter.uncut
        new = [word for word in set(words) - known.keys() if word and not _UNCERTAIN.search(word)]
        new = [word for word in new if uncut is None or not uncut.search(word)]
        encoded = self.encode([before + word for word in new])
        ends = np.cumsum(encoded.lengths)[:-1]
        known.update(zip(new, map(np.ndarray.tolist, np.split(encoded.ids, ends)), strict=True) if new else ())

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: place for place, token in enumerate(self.tokenizer.vocabulary)}

    @cached_property
    def _words(self) -> WordCutter:
        return WordCutter(self.tokenizer.recipe)

    def _single_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The id of each chunk that is a word of a word-level tokenizer, -1 for any other."""
        if self.tokenizer.recipe.model != "words":
            return np.full(len(texts), -1, dtype=np.int64)
        found: list[int | None] = [None] * len(texts)
        if self._words.repeats:
            found = [*map(self._ids.get, texts)]
        for place, text in enumerate(texts):
            if found[place] is None:
                word = text if self._words.is_plain(text) else self._words.word(text)
                found[place] = -1 if word is None else self._ids.get(word, UNK)
        return np.array(found, dtype=np.int64)

    def _tokens_of(self, texts: Sequence[str]) -> tuple[list[list[int]], dict[int, list[bool]]]:
        """The ids of each chunk; and for those that may hold several words, which tokens begin one."""
        found: list[list[int]] = [self._chinese_tokens(text) for text in texts]
        left = [place for place, ids in enumerate(found) if not ids]
        flags: dict[int, list[bool]] = {}
        if not left:
            return found, flags
        encodings = self.tokenizer.backend.encode_batch([texts[place] for place in left], add_special_tokens=False)
        for place, encoding in zip(left, encodings, strict=True):
            found[place] = encoding.ids
            if not self._is_word(texts[place]):
                found[place], flags[place] = self._with_starts(texts[place], encoding)
        return found, flags

    def _is_word(self, chunk: str) -> bool:
        """Whether a chunk is plainly one word, so that only its first token begins one."""
        return chunk.strip().isalnum() and (self._separable or not HAN.search(chunk))

    def _chinese_tokens(self, chunk: str) -> list[int]:
        """The ids of a Chinese word of which each character is a token; nothing for any other chunk."""
        if self.tokenizer.recipe.model in ("wordpiece", "chars") and _CHINESE_WORD.fullmatch(chunk):
            return [self._ids.get(character, UNK) for character in chunk]
        return []

    def _with_starts(self, chunk: str, found: tokenizers.Encoding) -> tuple[list[int], list[bool]]:
        if self._cutter.uncut and self._cutter.uncut.search(chunk):  # a whole line
            tokens = self.tokenizer.encode(chunk)
            return tokens.ids, tokens.starts
        marked = chunk if self._separable else self.tokenizer.segmenter.mark(chunk)
        return found.ids, token_starts(found.offsets, word_starts(marked))
