"""Reading ARPA files strictly: every line is checked, and memory grows with what is read, not with what is promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _arpa_reading_kernels as kernels
from firth.artifact.formats.arpa_source import Block, Source, open_source
from firth.artifact.formats.arpa_writing import NAMES, UNKNOWN_AS_WELL
from firth.cores import in_order
from firth.counts.links import find_links
from firth.counts.trie import Trie
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK

HIGHEST_ORDER = 8
_MOST_WORDS = (1 << 31) - 16
_MOST_NODES = (1 << 32) - 2
_COUNT = re.compile(rb"ngram\s+(\d{1,3})\s*=\s*(\d{1,18})")
_SPECIAL = {name.encode(): number for number, name in NAMES.items()} | {UNKNOWN_AS_WELL.encode(): UNK}
_REASONS = {
    kernels.NOT_NUMBER: "{field} stands where a number should",
    kernels.ABOVE_ZERO: "{field} is no logarithm of a probability, since it is above 0",
    kernels.TOO_HEAVY: f"{{field}} as the logarithm of a back-off weight is above {kernels.MOST_WEIGHT:g}",
    kernels.NOT_LOWER: "the back-off weight {field} stands in the highest order, where nothing is backed off from",
    kernels.COLUMNS: "it does not have a number, {n} words and at most one more number",
    kernels.UNKNOWN: "the word {field} is not among the 1-grams",
    kernels.BAD_BYTE: "it holds a zero byte or a stray carriage return",
}
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Arpa(NamedTuple):
    """A back-off model as it stands in a file; logarithms are natural."""

    vocabulary: list[str]
    """The five special tokens, then the words in the order of the file."""
    trie: Trie
    """All counts are 0, since a file does not tell them."""
    logp: npt.NDArray[np.float32]
    bow: npt.NDArray[np.float64]
    """One for each node below the highest level."""
    sizes: list[int]
    """How many n-grams of each length the file lists."""


class _Rows(NamedTuple):
    """What a block of lines holds."""

    words: npt.NDArray[np.int32]
    """The ids of each n-gram; of a unigram where the word begins and ends in the block."""
    logp: npt.NDArray[np.float32]
    bow: npt.NDArray[np.float64]
    lines: npt.NDArray[np.int32]
    """The line of each, counted from the block's first."""


def read_arpa(path: Path) -> Arpa:
    """The model in an ARPA file, plain or packed with gzip; whatever is wrong in it is an `ArtifactError`.

    N-grams may come in any order within a section. A suffix of an n-gram may be missing, as in pruned models; a prefix
    may not. The probability of `<s>`, which is never predicted, is not read; -99 and less stands for zero.
    """
    with open_source(path) as source:
        reader = _Reader(source, _read_header(source))
        reader.read_unigrams()
        for n in range(2, len(reader.promised) + 1):
            reader.read_level(n)
        _expect(source, "\\end\\")
        if (found := source.next_line()) is not None:
            source.wrong(source.line - 1, f"{show(found)} follows after \\end\\")
    return reader.finish()


def _read_header(source: Source) -> list[int]:
    """The number of n-grams of each length that the file promises."""
    found = source.next_line()
    if found is None:
        source.wrong(1, "the file is empty")
    if found.removeprefix(b"\xef\xbb\xbf") != b"\\data\\":
        source.wrong(source.line - 1, f"{show(found)} stands where an ARPA file has \\data\\", "give an ARPA file")
    counts: list[int] = []
    for block in source.blocks():
        for line, text in enumerate(block.data.split(b"\n"), block.line):
            if text.strip():
                counts.append(_read_count(source, line, text.strip(), len(counts) + 1))
    if not counts or counts[0] == 0:
        source.wrong(source.line, "the header promises no 1-grams")
    if counts[0] > _MOST_WORDS or sum(counts) > _MOST_NODES:
        source.wrong(source.line, "the header promises more n-grams than Firth can hold", "prune the model")
    return counts


def _read_count(source: Source, line: int, text: bytes, n: int) -> int:
    match = _COUNT.fullmatch(text)
    if match is None or int(match[1]) != n:
        source.wrong(line, f"{show(text)} stands where ngram {n}=COUNT or \\1-grams: should")
    if n > HIGHEST_ORDER:
        source.wrong(line, f"Firth reads orders up to {HIGHEST_ORDER}", "have it written with a lower order")
    return int(match[2])


def _expect(source: Source, wanted: str) -> None:
    found = source.next_line()
    if found is None:
        source.wrong(source.line, f"the file ends where {wanted} should stand")
    if found != wanted.encode():
        source.wrong(source.line - 1, f"{show(found)} stands where {wanted} should")


class _Reader:
    """A model that grows level by level."""

    def __init__(self, source: Source, promised: list[int]) -> None:
        self.promised = promised
        """The number of n-grams of each length."""
        self._source = source
        self._vocabulary = list(NAMES.values())
        self._lexicon = Lexicon([])
        self._levels = [0]
        self._words = np.empty(0, dtype=np.uint32)
        self._firsts: list[npt.NDArray[np.uint32]] = []  # by level
        self._logp: list[npt.NDArray[np.float32]] = []
        self._bow: list[npt.NDArray[np.float64]] = []

    def read_unigrams(self) -> None:
        """Reads the words; all other n-grams are made of them."""
        _expect(self._source, "\\1-grams:")
        seen: dict[bytes, int] = {}
        parts = []
        for block, rows in in_order(lambda block: (block, self._rows(block, 1)), self._source.blocks()):
            self._check_room(1, len(seen), block, rows)
            for (begin, end), line in zip(rows.words.tolist(), rows.lines.tolist(), strict=True):
                self._add_word(seen, block.data[begin:end], block.line + line)
            parts.append(rows)
        self._check_all(1, len(seen))
        for number in (BOS, EOS):
            if NAMES[number].encode() not in seen:
                self._source.wrong(self._source.line, f"{NAMES[number]} is not among the 1-grams")
        ids = np.fromiter(seen.values(), dtype=np.int64)
        logp = np.full(len(self._vocabulary), -np.inf, dtype=np.float32)
        bow = np.zeros(len(self._vocabulary))
        logp[ids] = np.concatenate([rows.logp for rows in parts])
        logp[BOS] = -np.inf
        bow[ids] = np.concatenate([rows.bow for rows in parts])
        self._lexicon = Lexicon(_spellings(seen, len(self._vocabulary)))
        self._add_level(np.arange(logp.size, dtype=np.uint32), logp, bow)

    def _add_word(self, seen: dict[bytes, int], word: bytes, line: int) -> None:
        number = _SPECIAL.get(word, len(self._vocabulary))
        if number in (PAD, MASK):
            self._source.wrong(line, f"{show(word)} is a name that Firth keeps for itself", "rename the word")
        if word in seen or (number == UNK and UNK in seen.values()):
            self._source.wrong(line, f"the word {show(word)} stands among the 1-grams a second time")
        if number == len(self._vocabulary):
            try:
                self._vocabulary.append(word.decode())
            except UnicodeDecodeError:
                self._source.wrong(line, f"the word {show(word)} is not in UTF-8", "turn the file into UTF-8")
        seen[word] = number

    def read_level(self, n: int) -> None:
        """Reads the n-grams of length `n` and sorts them into the order of a trie."""
        _expect(self._source, f"\\{n}-grams:")
        first = self._first()
        parts, found = [], 0

        def read(block: Block) -> tuple[Block, _Rows, npt.NDArray[np.uint64]]:
            rows = self._rows(block, n)
            return block, rows, self._keys(block, rows, n, first)

        for block, rows, keys in in_order(read, self._source.blocks()):
            self._check_room(n, found, block, rows)
            found += keys.size
            parts.append((keys, rows.logp, rows.bow))
        self._check_all(n, found)
        if not parts:
            parts.append((np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float32), np.empty(0)))
        keys, logp, bow = (np.concatenate(part) for part in zip(*parts, strict=True))
        parts.clear()
        if not np.all(keys[:-1] < keys[1:]):
            order = np.argsort(keys, kind="stable")
            keys, logp, bow = keys[order], logp[order], bow[order]
            self._check_different(n, keys)
        logp[keys & _LOW == BOS] = -np.inf
        begin, end = self._levels[-2:]
        children = np.bincount((keys >> _HALF).astype(np.int64) - begin, minlength=end - begin)
        self._firsts.append((np.cumsum(children) - children + end).astype(np.uint32))
        self._add_level((keys & _LOW).astype(np.uint32), logp, bow)

    def finish(self) -> Arpa:
        """The whole model."""
        levels = np.array(self._levels, dtype=np.int64)
        first = self._first()
        links = find_links(levels, self._words, first)
        counts = np.zeros(self._words.size, dtype=np.uint32)
        trie = Trie(levels, self._words, first, links, counts)
        bow = np.concatenate([np.empty(0), *self._bow[:-1]])
        return Arpa(self._vocabulary, trie, np.concatenate(self._logp), bow, self.promised)

    def _first(self) -> npt.NDArray[np.uint32]:
        """Where the children of all nodes below the highest level so far begin."""
        return np.concatenate([*self._firsts, np.array(self._levels[-1:], dtype=np.uint32)])

    def _add_level(self, words: npt.NDArray[np.uint32], logp: Any, bow: Any) -> None:
        self._words = np.concatenate([self._words, words])
        self._levels.append(self._words.size)
        self._logp.append(logp)
        self._bow.append(bow)

    def _rows(self, block: Block, n: int) -> _Rows:
        """The rows of a block."""
        data = np.frombuffer(block.data, dtype=np.uint8)
        most = min(block.data.count(b"\n"), data.size // (2 * n + 2) + 1)
        logp, bow = np.empty(most, dtype=np.float32), np.empty(most)
        words, lines = np.empty((most, max(n, 2)), dtype=np.int32), np.empty(most, dtype=np.int32)
        lexicon = self._lexicon
        rows, code, begin, end, line = kernels.read_rows(
            data, n, n == len(self.promised), lexicon.slots, lexicon.pool, lexicon.bounds, logp, bow, words, lines
        )
        if code != kernels.FINE:
            reason = _REASONS[code].format(field=show(block.data[begin:end]), n=n)
            self._source.wrong(block.line + line, reason)
        words[words == len(self._vocabulary)] = UNK  # by its other spelling
        return _Rows(words[:rows], logp[:rows], bow[:rows], lines[:rows])

    def _keys(self, block: Block, rows: _Rows, n: int, first: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
        """`parent << 32 | last word` of each n-gram."""
        keys = np.empty(rows.logp.size, dtype=np.uint64)
        lost = kernels.find_parents(rows.words, keys.size, n, self._words, first, keys)
        if lost < keys.size:
            prefix = self._spell(rows.words[lost, : n - 1].tolist())
            reason = f"the {n}-gram begins with {prefix}, which is not among the {n - 1}-grams"
            self._source.wrong(block.line + int(rows.lines[lost]), reason)
        return keys

    def _spell(self, words: list[int]) -> str:
        return repr(" ".join(self._vocabulary[word] for word in words))

    def _check_room(self, n: int, before: int, block: Block, rows: _Rows) -> None:
        """Raises if there are more n-grams than the header promises."""
        left = self.promised[n - 1] - before
        if rows.logp.size > left:
            line = block.line + int(rows.lines[left])
            self._source.wrong(
                line, f"this is one more {n}-gram than the {self.promised[n - 1]} that the header promises"
            )

    def _check_all(self, n: int, found: int) -> None:
        """Raises if there are fewer n-grams than the header promises."""
        if found < self.promised[n - 1]:
            reason = f"the {n}-grams end after {found} where the header promises {self.promised[n - 1]}"
            self._source.wrong(self._source.line, reason)

    def _check_different(self, n: int, keys: npt.NDArray[np.uint64]) -> None:
        twice = np.flatnonzero(keys[:-1] == keys[1:])
        if twice.size:
            parent, word = divmod(int(keys[twice[0]]), 1 << 32)
            partial = Trie(np.array(self._levels), self._words, self._first(), self._words, self._words)
            gram = self._spell([*partial.gram(parent), word])
            self._source.wrong(self._source.line - 1, f"the {n}-gram {gram} stands twice in the section that ends here")


class Lexicon:
    """Words by their bytes; an empty one is never found."""

    def __init__(self, words: list[bytes]) -> None:
        self.pool = np.frombuffer(b"".join(words), dtype=np.uint8)
        self.bounds = np.concatenate([[0], np.cumsum([len(word) for word in words], dtype=np.int64)])
        self.slots = np.full(1 << (2 * len(words) + 1).bit_length(), -1, dtype=np.int32)
        kernels.fill_slots(self.pool, self.bounds, self.slots)


def _spellings(seen: dict[bytes, int], size: int) -> list[bytes]:
    """The bytes of each id, empty if it is not in the file, and then the other spelling of `<unk>` if that is."""
    words = [b""] * (size + 1)
    for word, number in seen.items():
        words[number] = word
    if words[UNK]:
        words[UNK], words[size] = NAMES[UNK].encode(), UNKNOWN_AS_WELL.encode()
    return words


def show(text: bytes) -> str:
    """Bytes of a file as they can stand in a message."""
    return repr(text[:80].decode(errors="replace"))
