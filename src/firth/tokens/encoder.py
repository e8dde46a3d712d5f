"""TextEncoder: sentences to ids, each distinct chunk encoded once.

Chunks are the parts of a text that a tokenizer treats independently: the two sides of a space (and, where `separable`,
of a Chinese character), and mostly punctuation too. A line for which that fails is one chunk. A corpus has few distinct
chunks, so a cache of encoded chunks does most of the work. The ids are those of the `tokenizers` library, which encodes
all chunks that are not plainly one word.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from firth.text.segment import HAN, Segmenter
from firth.tokens import _kernels
from firth.tokens.capitals import chunk_capitals
from firth.tokens.lines import HAS_DOUBLE_SPACE, MAY_HOLD_HAN, Bytes, Lines, as_array, lines_of
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer, WordSplitter, find_word_starts, flag_word_starts
from firth.tokens.word_counts import SentenceCounts, WordCounter

_CAPACITY = 1 << 14  # initial number of entries
_CHUNK_BYTES = 12  # initial bytes per entry
_JOINERS = "'.,-"  # occur inside words: don't, e-mail, 3.14, 1,000


class ChunkTable:
    """A growing table that numbers the distinct chunks of a text in order of first occurrence.

    >>> table = ChunkTable()
    >>> table.look_up(b"to be or\\nnot to be\\n").tolist()
    [0, 1, 2, -1, 3, 4, 1, -1]
    >>> table.texts(2)
    [' or', 'not', ' to']
    """

    def __init__(self, byte_kinds: npt.NDArray[np.uint8] | None = None) -> None:
        """`byte_kinds` gives the kind of each byte where punctuation is a chunk of its own; see the kernel."""
        self._kinds = np.zeros(256, dtype=np.uint8) if byte_kinds is None else byte_kinds
        self._splits_punctuation = bool((self._kinds >= _kernels.PUNCTUATION).any())
        self._out = np.empty(0, dtype=np.int32)
        self.clear()

    def clear(self) -> None:
        self._entries = 0
        self._slots = np.zeros(2 * _CAPACITY, dtype=np.uint64)
        self._hashes = np.zeros(_CAPACITY, dtype=np.uint64)
        self._bounds = np.zeros(_CAPACITY + 1, dtype=np.int64)
        self._pool = np.zeros(_CHUNK_BYTES * _CAPACITY, dtype=np.uint8)

    def __len__(self) -> int:
        return self._entries

    @property
    def size(self) -> int:
        return int(self._bounds[self._entries])

    def look_up(self, data: Bytes, whole: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int32]:
        """The entry of each chunk of `data`, and -1 at each newline; lines flagged `whole` are a single chunk."""
        array = as_array(data)
        if whole is None:
            whole = np.zeros(np.count_nonzero(array == _kernels.LINE_END) + 1, dtype=np.bool_)
        if self._out.size < array.size:
            self._out = np.empty(array.size, dtype=np.int32)  # each chunk or newline has at least one byte
        begin = line = written = 0
        while True:
            self._entries, begin, line, written = _kernels.look_up(
                array, whole, self._kinds, self._splits_punctuation, self._slots, self._hashes, self._bounds,
                self._pool, self._entries, begin, line, written, self._out,
            )  # fmt: skip
            if begin == array.size:
                return self._out[:written].copy()
            self._grow(array.size - begin)

    def look_up_lines(self, chunks: Bytes) -> npt.NDArray[np.int32]:
        lines = int(np.count_nonzero(as_array(chunks) == _kernels.LINE_END))
        return self.look_up(chunks, np.ones(lines + 1, dtype=np.bool_))[::2]

    def lines(self, first: int = 0) -> npt.NDArray[np.uint8]:
        """The chunks from entry `first` on, one per line."""
        return self._pool[self._bounds[first] : self._bounds[self._entries]]

    def texts(self, first: int = 0) -> list[str]:
        return self.lines(first).tobytes().decode().split("\n")[:-1]

    def _grow(self, max_bytes: int) -> None:
        """Increase the capacity for more chunks, or for a chunk of `max_bytes`."""
        if self._entries < self._hashes.size:
            self._pool = np.resize(self._pool, 2 * self._pool.size + max_bytes)
            return
        capacity = 2 * self._entries
        self._hashes = np.resize(self._hashes, capacity)
        self._bounds = np.resize(self._bounds, capacity + 1)
        self._slots = np.zeros(2 * capacity, dtype=np.uint64)
        _kernels.refill(self._slots, self._hashes, self._entries)


class Chunker:
    """Splits sentences into chunks and numbers the distinct ones.

    >>> from firth.text.segment import make_segmenter
    >>> from firth.tokens.lines import lines_of
    >>> chunker = Chunker(TokenizerRecipe(model="words", split="punctuation"), make_segmenter())
    >>> chunker.split(lines_of(["to be, or", "not to be"])).tolist()
    [0, 1, 2, 3, -1, 4, 0, 1, -1]
    """

    def __init__(self, recipe: TokenizerRecipe, segmenter: Segmenter) -> None:
        self.table = ChunkTable(byte_kinds(recipe))
        self.unsplittable = unsplittable_regex(recipe)
        self.flags_double_space = recipe.model == "byte-bpe"  # lines must flag consecutive white-space characters
        self._special = re.compile(_specials_pattern(recipe).encode()) if self.unsplittable else None
        self._segmenter = segmenter if recipe.separable and segmenter.name != "space" else None
        self.segments = self._segmenter is not None

    def split(self, lines: Lines) -> npt.NDArray[np.int32]:
        """The chunk numbers of all lines, and -1 at each newline."""
        text, whole = lines.text, self.whole_lines(lines)
        if self._segmenter is not None:
            chinese = np.flatnonzero((lines.flags & MAY_HOLD_HAN > 0) & ~whole)
            if chinese.size:
                text = _segment_lines(lines, chinese, self._segmenter)
        return self.table.look_up(text, whole)

    def whole_lines(self, lines: Lines) -> npt.NDArray[np.bool_]:
        """Whether each line is one chunk."""
        whole = lines.flags & HAS_DOUBLE_SPACE > 0
        if self._special is not None:
            for match in self._special.finditer(lines.text.data):
                whole[np.searchsorted(lines.bounds, match.start(), side="right") - 1] = True
        return whole


def _segment_lines(lines: Lines, chosen: npt.NDArray[np.intp], segmenter: Segmenter) -> npt.NDArray[np.uint8]:
    texts = b"\n".join(map(lines.line, chosen.tolist()))
    segmented = segmenter.mark(texts.decode()).encode().split(b"\n")
    text = lines.text.tobytes()
    parts, done = [], 0
    bounds = zip(lines.bounds[chosen].tolist(), lines.bounds[chosen + 1].tolist(), segmented, strict=True)
    for begin, end, line in bounds:
        parts += [text[done:begin], line]
        done = end - 1
    return np.frombuffer(b"".join([*parts, text[done:]]), dtype=np.uint8)


def byte_kinds(recipe: TokenizerRecipe) -> npt.NDArray[np.uint8]:
    """The kind of each byte: beside which ASCII bytes a chunk may end without changing tokens or word bounds."""
    kinds = np.full(256, _kernels.OTHER, dtype=np.uint8)
    if recipe.model in ("words", "wordpiece"):
        kinds[_kernels.SPACE] = _kernels.WORD  # no token contains a space, so it is dropped
    if recipe.model in ("bpe", "pieces") or (recipe.model == "words" and recipe.split == "space"):
        return kinds
    kinds[[ord(character) for character in string.ascii_letters + string.digits]] = _kernels.WORD
    alone = recipe.model != "byte-bpe"  # it keeps runs of punctuation together
    punctuation = [ord(character) for character in string.punctuation]
    joiners = [ord(character) for character in _JOINERS]
    kinds[punctuation] = _kernels.LONE_PUNCTUATION if alone else _kernels.PUNCTUATION
    kinds[joiners] = _kernels.LONE_JOINER if alone else _kernels.JOINER
    kinds[ord("_")] = _kernels.OTHER  # a word character in some tokenizers, punctuation in others
    if recipe.model == "byte-bpe":
        kinds[ord("'")] = _kernels.OTHER  # it has rules of its own: 's, 't, 're
    return kinds


def unsplittable_regex(recipe: TokenizerRecipe) -> re.Pattern[str] | None:
    """Matches where a line must stay one chunk: at special tokens, and at two spaces in byte-level BPE."""
    if byte_kinds(recipe)[ord(".")] == _kernels.OTHER:
        return None
    return re.compile(_specials_pattern(recipe) + (r"|[^\S\n]{2}" if recipe.model == "byte-bpe" else ""))


def _specials_pattern(recipe: TokenizerRecipe) -> str:
    return "|".join(map(re.escape, (*recipe.specials, *recipe.sentinel_tokens)))


_CHINESE_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
_UNCERTAIN = re.compile(r"[^\u0021-\u02ff\u2010-\u2027]|[\u007f-\u00a0]")  # white space, or a script without spaces
_MAX_CHUNK_BYTES = 1 << 26  # of distinct chunks; then the cache is cleared, which changes no ids
_MAX_WORDS = 1 << 20  # of single sentences, cached likewise


NO_CAPITALS = np.zeros(0, dtype=np.uint8)


class EncodedSentences(NamedTuple):
    """The concatenated tokens of sentences, with the number of tokens of each."""

    ids: npt.NDArray[Any]
    word_starts: npt.NDArray[np.bool_]
    lengths: npt.NDArray[np.int64]
    capitals: npt.NDArray[np.uint8] = NO_CAPITALS  # if asked for: whether a token's word begins with a capital letter


class ChunkTokens(NamedTuple):
    """The tokens of numbered chunks: those of chunk c are `ids[bounds[c]:bounds[c + 1]]`."""

    bounds: npt.NDArray[np.int64]
    ids: npt.NDArray[Any]
    word_starts: npt.NDArray[np.bool_]
    capitals: npt.NDArray[np.uint8] | None = None

    def emit(self, chunks: npt.NDArray[np.int32], lines: int) -> EncodedSentences:
        total = _kernels.count_tokens(chunks, self.bounds)
        encoded = EncodedSentences(
            np.empty(total, dtype=self.ids.dtype), np.empty(total, dtype=np.bool_), np.zeros(lines, dtype=np.int64)
        )
        arrays = encoded[:3]
        _kernels.emit(chunks, self.bounds, self.ids, self.word_starts, *arrays)
        if self.capitals is None:
            return encoded
        capitals, starts, lengths = np.empty(total, np.uint8), np.empty(total, np.bool_), np.zeros(lines, np.int64)
        _kernels.emit(chunks, self.bounds, self.capitals, self.word_starts, capitals, starts, lengths)
        return encoded._replace(capitals=capitals)

    def append(
        self, lengths: npt.NDArray[np.int64], ids: npt.NDArray[Any], word_starts: npt.NDArray[np.bool_]
    ) -> ChunkTokens:
        bounds = self.bounds[-1] + np.cumsum(lengths, dtype=np.int64)
        return ChunkTokens(
            np.concatenate([self.bounds, bounds]),
            np.concatenate([self.ids.astype(ids.dtype, copy=False), ids]),
            np.concatenate([self.word_starts, word_starts]),
        )


NO_TOKENS = ChunkTokens(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.bool_))


class TextEncoder:
    """Encodes sentences like `tokenizer.encode`, many times faster on real text; threads may share it."""

    def __init__(self, tokenizer: Tokenizer, capitals: bool = False) -> None:
        """`capitals`: also tell which tokens are of words that begin with a capital letter."""
        self.tokenizer = tokenizer
        self._capitals = capitals
        self._separable = tokenizer.recipe.separable
        self._tokens = NO_TOKENS
        self._lock = RLock()  # of the tables of chunks
        self._clear()

    def encode(self, sentences: Sequence[str]) -> EncodedSentences:
        """The tokens of sentences, none of which may contain a newline or NUL."""
        return self.encode_lines(lines_of(sentences, self.chunker.flags_double_space))

    def encode_lines(self, lines: Lines) -> EncodedSentences:
        with self._lock:
            return self._tokens_of_chunks(self._chunks(lines), lines)

    def encode_counted(self, sentences: Sequence[str]) -> tuple[EncodedSentences, SentenceCounts]:
        """The tokens of sentences, as by `encode`, and the words and bytes of each."""
        return self.encode_lines_counted(lines_of(sentences, self.chunker.flags_double_space))

    def encode_lines_counted(self, lines: Lines) -> tuple[EncodedSentences, SentenceCounts]:
        with self._lock:
            chunks = self._chunks(lines)
            counts = SentenceCounts(self._words.count(lines, chunks), np.diff(lines.bounds) - 1)
            return self._tokens_of_chunks(chunks, lines), counts

    def _chunks(self, lines: Lines) -> npt.NDArray[np.int32]:
        if self.chunker.table.size > _MAX_CHUNK_BYTES:
            self._clear()
        return self.chunker.split(lines)

    def _tokens_of_chunks(self, chunks: npt.NDArray[np.int32], lines: Lines) -> EncodedSentences:
        if len(self.chunker.table) >= self._tokens.bounds.size:
            texts, before = self.chunker.table.texts(self._tokens.bounds.size - 1), self._tokens.capitals
            lengths, ids, starts = self.encode_chunks(texts)
            self._tokens = self._tokens.append(lengths, ids, starts)
            if self._capitals:
                found = chunk_capitals(self.tokenizer, texts, lengths)
                self._tokens = self._tokens._replace(
                    capitals=found if before is None else np.concatenate([before, found])
                )
        return self._tokens.emit(chunks, len(lines))

    def encode_one(self, sentence: str) -> npt.NDArray[np.uint32]:
        """The ids of one sentence, in a few microseconds if its words are cached."""
        first, *others = sentence.split(" ")
        try:
            return np.array(
                [*self._first[first], *chain.from_iterable(map(self._inner.__getitem__, others))], np.uint32
            )
        except KeyError:
            with self._lock:
                self._cache_words(first, others)
                return self.encode([sentence]).ids

    def encode_chunks(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """The number of tokens of each chunk, their concatenated ids, and which of them start words."""
        single = self._single_tokens(texts)
        others = np.flatnonzero(single < 0)
        found, flags = self._tokens_of([texts[index] for index in others.tolist()])
        lengths = np.ones(len(texts), dtype=np.int64)
        lengths[others] = [len(ids) for ids in found]
        begins = np.cumsum(lengths) - lengths
        ids = np.empty(int(lengths.sum()), dtype=np.uint32)
        in_others = np.repeat(single < 0, lengths)
        ids[~in_others] = single[single >= 0]
        ids[in_others] = list(chain.from_iterable(found))
        word_starts = np.zeros(ids.size, dtype=np.bool_)
        word_starts[begins[lengths > 0]] = True
        for index, chunk_starts in flags.items():
            begin = begins[others[index]]
            word_starts[begin : begin + len(chunk_starts)] = chunk_starts
        return lengths, ids, word_starts

    def _clear(self) -> None:
        self.chunker = Chunker(self.tokenizer.recipe, self.tokenizer.segmenter)
        self._words = WordCounter(self.chunker, self.tokenizer.segmenter)
        self._tokens = NO_TOKENS
        self._clear_words()

    def _clear_words(self) -> None:
        """Clear the word cache; a word includes the space before it if the tokenizer encodes spaces."""
        self._inner: dict[str, list[int]] = {}
        self._first = self._inner if self.tokenizer.recipe.model in ("words", "wordpiece") else {}

    def _cache_words(self, first: str, others: Sequence[str]) -> None:
        """Cache the ids of those words of a sentence that are encoded alike in every sentence."""
        if len(self._inner) + len(self._first) > _MAX_WORDS:
            self._clear_words()
        unsplittable = self.chunker.unsplittable
        space = "" if self._first is self._inner else " "
        for known, words, before in ((self._first, [first], ""), (self._inner, others, space)):
            new = [word for word in set(words) - known.keys() if word and not _UNCERTAIN.search(word)]
            new = [word for word in new if unsplittable is None or not unsplittable.search(word)]
            if new:
                encoded = self.encode([before + word for word in new])
                ids = np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])
                known.update(zip(new, map(np.ndarray.tolist, ids), strict=True))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokenizer.vocabulary)}

    @cached_property
    def _splitter(self) -> WordSplitter:
        return WordSplitter(self.tokenizer.recipe)

    def _single_tokens(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The id of each chunk that is a single word of a word-level tokenizer, -1 for any other."""
        if self.tokenizer.recipe.model != "words":
            return np.full(len(texts), -1, dtype=np.int64)
        found: list[int | None] = [None] * len(texts)
        if self._splitter.is_identity:
            found = [*map(self._ids.get, texts)]
        for index, text in enumerate(texts):
            if found[index] is None:
                word = text if self._splitter.is_plain(text) else self._splitter.word(text)
                found[index] = -1 if word is None else self._ids.get(word, UNK)
        return np.array(found, dtype=np.int64)

    def _tokens_of(self, texts: Sequence[str]) -> tuple[list[list[int]], dict[int, list[bool]]]:
        """The ids of each chunk; and for chunks that may contain several words, which tokens start one."""
        found: list[list[int]] = [self._chinese_tokens(text) for text in texts]
        left = [index for index, ids in enumerate(found) if not ids]
        flags: dict[int, list[bool]] = {}
        if not left:
            return found, flags
        encodings = self.tokenizer.backend.encode_batch([texts[index] for index in left], add_special_tokens=False)
        for index, encoding in zip(left, encodings, strict=True):
            found[index], text = encoding.ids, texts[index]
            is_word = text.strip().isalnum() and (self._separable or not HAN.search(text))
            if not is_word:  # of one word only the first token starts a word
                found[index], flags[index] = self._with_word_starts(text, encoding)
        return found, flags

    def _chinese_tokens(self, chunk: str) -> list[int]:
        """The ids of a Chinese word whose characters are tokens; empty for any other chunk."""
        if self.tokenizer.recipe.model in ("wordpiece", "chars") and _CHINESE_WORD.fullmatch(chunk):
            return [self._ids.get(character, UNK) for character in chunk]
        return []

    def _with_word_starts(self, chunk: str, found: tokenizers.Encoding) -> tuple[list[int], list[bool]]:
        if self.chunker.unsplittable and self.chunker.unsplittable.search(chunk):  # a whole line
            tokens = self.tokenizer.encode(chunk)
            return tokens.ids, tokens.word_starts
        marked = chunk if self._separable else self.tokenizer.segmenter.mark(chunk)
        return found.ids, flag_word_starts(found.offsets, find_word_starts(marked))
