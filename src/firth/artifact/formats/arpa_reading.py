"""Strict reader of ARPA files: every line is checked, and memory grows with the content, not with declared counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _arpa_kernels as kernels
from firth.artifact.formats.input_file import GET_AGAIN, InputFile, LineBlock, open_input, quote
from firth.cores import in_order
from firth.counts.trie import Trie, find_links
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK

SPECIAL_NAMES = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>", MASK: "<mask>"}
"""Names of the special tokens in ARPA files, which never contain `<pad>` and `<mask>`."""
UNKNOWN_ALIAS = "<UNK>"  # another name of `<unk>`, which some programs write and all read
MAX_ORDER = 8
_MAX_WORDS = (1 << 31) - 16
_MAX_NODES = (1 << 32) - 2
_COUNT = re.compile(rb"ngram\s+(\d{1,3})\s*=\s*(\d{1,18})")
_SPECIAL_IDS = {name.encode(): number for number, name in SPECIAL_NAMES.items()} | {UNKNOWN_ALIAS.encode(): UNK}
_OTHER_FORMATS = {
    b"mmap lm http://kheafield.com/code": "is a KenLM binary: give the ARPA file that it was made from",
    b"iARPA": "is an IRSTLM file: convert it to ARPA with `compile-lm --text yes`",
    b"blmt": "is an IRSTLM binary: convert it to ARPA with `compile-lm --text yes`",
}
_REASONS = {
    kernels.NOT_NUMBER: "{field} is not a number",
    kernels.POSITIVE_LOGPROB: "the log-probability {field} is above 0",
    kernels.LARGE_BACKOFF: f"the log back-off weight {{field}} is above {kernels.MAX_BACKOFF:g}",
    kernels.TOP_ORDER_BACKOFF: "the back-off weight {field} is in the highest order, which has none",
    kernels.WRONG_FIELDS: "it must have a log-probability, {n} words and at most one back-off weight",
    kernels.UNKNOWN_WORD: "the word {field} is not among the 1-grams",
    kernels.BAD_BYTE: "it holds a zero byte or a stray carriage return",
}
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Arpa(NamedTuple):
    """The back-off model of a file, with natural logarithms."""

    vocabulary: list[str]  # the five special tokens, then the words in the order of the file
    trie: Trie  # all counts are 0, since an ARPA file has none
    logp: npt.NDArray[np.float32]
    bow: npt.NDArray[np.float64]  # back-off weight of each node below the highest order
    sizes: list[int]  # number of n-grams of each order


class _NgramRows(NamedTuple):
    """The parsed n-grams of a block of lines."""

    words: npt.NDArray[np.int32]  # word ids; for unigrams begin and end of the word in the block
    logp: npt.NDArray[np.float32]
    bow: npt.NDArray[np.float64]
    lines: npt.NDArray[np.int32]  # line numbers, counted from the first line of the block


def read_arpa(path: Path) -> Arpa:
    """The model of an ARPA file, plain or gzip; an invalid file raises `ArtifactError` with the line.

    N-grams may come in any order within a section. A suffix of an n-gram may be missing, as in pruned models; a prefix
    may not. The probability of `<s>`, which is never predicted, is ignored; -99 and lower values mean zero.
    """
    with open_input(path, _OTHER_FORMATS) as file:
        lines = _ArpaLines(file)
        reader = _ArpaReader(lines, _read_header(lines))
        reader.read_unigrams()
        for n in range(2, len(reader.declared) + 1):
            reader.read_order(n)
        lines.expect("\\end\\")
        if (found := lines.next_line()) is not None:
            lines.fail(lines.number - 1, f"{quote(found)} follows after \\end\\")
    return reader.finish()


class _ArpaLines:
    """The lines of an ARPA file, one by one or section by section."""

    def __init__(self, file: InputFile) -> None:
        self.number = 1  # number of the next line
        self._file = file
        self._blocks = file.line_blocks(0, 1)
        self._data = b""
        self._at = 0

    def next_line(self) -> bytes | None:
        """The next line that is not blank, stripped; None at the end of the file."""
        while self._at < len(self._data) or self._load():
            end = self._data.index(b"\n", self._at)
            found = self._data[self._at : end].strip(b" \t\r")
            self._at = end + 1
            self.number += 1
            if found:
                return found
        return None

    def section(self) -> Iterator[LineBlock]:
        r"""All lines up to the next one that begins with a backslash."""
        while self._at < len(self._data) or self._load():
            if self._data.startswith(b"\\", self._at):
                return
            begin, line = self._at, self.number
            stop = self._data.find(b"\n\\", begin)
            self._at = stop + 1 if stop >= 0 else len(self._data)
            data = self._data[begin : self._at]
            self.number += data.count(b"\n")
            yield LineBlock(line, data)

    def expect(self, wanted: str) -> None:
        found = self.next_line()
        if found is None:
            self.fail(self.number, f"expected {wanted}, found the end of the file")
        if found != wanted.encode():
            self.fail(self.number - 1, f"expected {wanted}, found {quote(found)}")

    def fail(self, line: int, reason: str, remedy: str = GET_AGAIN) -> NoReturn:
        self._file.fail(f"line {line}", reason, remedy)

    def _load(self) -> bool:
        block = next(self._blocks, None)
        self._data, self._at = block.data if block else b"", 0
        return block is not None


def _read_header(lines: _ArpaLines) -> list[int]:
    found = lines.next_line()
    if found is None:
        lines.fail(1, "the file is empty")
    if found.removeprefix(b"\xef\xbb\xbf") != b"\\data\\":
        lines.fail(lines.number - 1, f"expected \\data\\, found {quote(found)}", "give an ARPA file")
    counts: list[int] = []
    for block in lines.section():
        for line, text in enumerate(block.data.split(b"\n"), block.line):
            if text.strip():
                counts.append(_parse_count(lines, line, text.strip(), len(counts) + 1))
    if not counts or counts[0] == 0:
        lines.fail(lines.number, "the header declares no 1-grams")
    if counts[0] > _MAX_WORDS or sum(counts) > _MAX_NODES:
        lines.fail(lines.number, "the header declares more n-grams than Firth can hold", "prune the model")
    return counts


def _parse_count(lines: _ArpaLines, line: int, text: bytes, n: int) -> int:
    match = _COUNT.fullmatch(text)
    if match is None or int(match[1]) != n:
        lines.fail(line, f"expected ngram {n}=COUNT or \\1-grams:, found {quote(text)}")
    if n > MAX_ORDER:
        lines.fail(line, f"Firth reads orders up to {MAX_ORDER}", "write the model with a lower order")
    return int(match[2])


class _ArpaReader:
    """Builds the trie of a model order by order."""

    def __init__(self, lines: _ArpaLines, declared: list[int]) -> None:
        self.declared = declared  # number of n-grams of each order in the header
        self._lines = lines
        self._vocabulary = list(SPECIAL_NAMES.values())
        self._index = WordIndex([])
        self._levels = [0]
        self._words = np.empty(0, dtype=np.uint32)
        self._firsts: list[npt.NDArray[np.uint32]] = []  # by order
        self._logp: list[npt.NDArray[np.float32]] = []
        self._bow: list[npt.NDArray[np.float64]] = []

    def read_unigrams(self) -> None:
        """Read the 1-grams, which define the vocabulary."""
        self._lines.expect("\\1-grams:")
        seen: dict[bytes, int] = {}
        parts = []
        for block, rows in in_order(lambda block: (block, self._parse(block, 1)), self._lines.section()):
            self._check_not_more(1, len(seen), block, rows)
            for (begin, end), line in zip(rows.words.tolist(), rows.lines.tolist(), strict=True):
                self._add_word(seen, block.data[begin:end], block.line + line)
            parts.append(rows)
        self._check_not_fewer(1, len(seen))
        for number in (BOS, EOS):
            if SPECIAL_NAMES[number].encode() not in seen:
                self._lines.fail(self._lines.number, f"{SPECIAL_NAMES[number]} is not among the 1-grams")
        ids = np.fromiter(seen.values(), dtype=np.int64)
        logp = np.full(len(self._vocabulary), -np.inf, dtype=np.float32)
        bow = np.zeros(len(self._vocabulary))
        logp[ids] = np.concatenate([rows.logp for rows in parts])
        logp[BOS] = -np.inf
        bow[ids] = np.concatenate([rows.bow for rows in parts])
        self._index = WordIndex(_words_by_id(seen, len(self._vocabulary)))
        self._add_order(np.arange(logp.size, dtype=np.uint32), logp, bow)

    def _add_word(self, seen: dict[bytes, int], word: bytes, line: int) -> None:
        number = _SPECIAL_IDS.get(word, len(self._vocabulary))
        if number in (PAD, MASK):
            self._lines.fail(line, f"{quote(word)} is reserved by Firth", "rename the word")
        if word in seen or (number == UNK and UNK in seen.values()):
            self._lines.fail(line, f"the word {quote(word)} is among the 1-grams twice")
        if number == len(self._vocabulary):
            try:
                self._vocabulary.append(word.decode())
            except UnicodeDecodeError:
                self._lines.fail(line, f"the word {quote(word)} is not UTF-8", "convert the file to UTF-8")
        seen[word] = number

    def read_order(self, n: int) -> None:
        """Read the n-grams of order `n` and sort them into trie order."""
        self._lines.expect(f"\\{n}-grams:")
        first = self._first()
        parts, found = [], 0

        def read(block: LineBlock) -> tuple[LineBlock, _NgramRows, npt.NDArray[np.uint64]]:
            rows = self._parse(block, n)
            return block, rows, self._trie_keys(block, rows, n, first)

        for block, rows, keys in in_order(read, self._lines.section()):
            self._check_not_more(n, found, block, rows)
            found += keys.size
            parts.append((keys, rows.logp, rows.bow))
        self._check_not_fewer(n, found)
        if not parts:
            parts.append((np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float32), np.empty(0)))
        keys, logp, bow = (np.concatenate(part) for part in zip(*parts, strict=True))
        parts.clear()
        if not np.all(keys[:-1] < keys[1:]):
            order = np.argsort(keys, kind="stable")
            keys, logp, bow = keys[order], logp[order], bow[order]
            self._check_distinct(n, keys)
        logp[keys & _LOW == BOS] = -np.inf
        begin, end = self._levels[-2:]
        children = np.bincount((keys >> _HALF).astype(np.int64) - begin, minlength=end - begin)
        self._firsts.append((np.cumsum(children) - children + end).astype(np.uint32))
        self._add_order((keys & _LOW).astype(np.uint32), logp, bow)

    def finish(self) -> Arpa:
        levels = np.array(self._levels, dtype=np.int64)
        first = self._first()
        links = find_links(levels, self._words, first)
        trie = Trie(levels, self._words, first, links, np.zeros(self._words.size, dtype=np.uint32))
        bow = np.concatenate([np.empty(0), *self._bow[:-1]])
        return Arpa(self._vocabulary, trie, np.concatenate(self._logp), bow, self.declared)

    def _first(self) -> npt.NDArray[np.uint32]:
        """The first child of each node below the highest order so far."""
        return np.concatenate([*self._firsts, np.array(self._levels[-1:], dtype=np.uint32)])

    def _add_order(self, words: npt.NDArray[np.uint32], logp: Any, bow: Any) -> None:
        self._words = np.concatenate([self._words, words])
        self._levels.append(self._words.size)
        self._logp.append(logp)
        self._bow.append(bow)

    def _parse(self, block: LineBlock, n: int) -> _NgramRows:
        data = np.frombuffer(block.data, dtype=np.uint8)
        most = min(block.data.count(b"\n"), data.size // (2 * n + 2) + 1)
        logp, bow = np.empty(most, dtype=np.float32), np.empty(most)
        words, lines = np.empty((most, max(n, 2)), dtype=np.int32), np.empty(most, dtype=np.int32)
        index = self._index
        rows, code, begin, end, line = kernels.read_rows(
            data, n, n == len(self.declared), index.slots, index.pool, index.bounds, logp, bow, words, lines
        )
        if code != kernels.OK:
            reason = _REASONS[code].format(field=quote(block.data[begin:end]), n=n)
            self._lines.fail(block.line + line, reason)
        words[words == len(self._vocabulary)] = UNK  # written as its alias
        return _NgramRows(words[:rows], logp[:rows], bow[:rows], lines[:rows])

    def _trie_keys(
        self, block: LineBlock, rows: _NgramRows, n: int, first: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint64]:
        """`parent << 32 | last word` of each n-gram."""
        keys = np.empty(rows.logp.size, dtype=np.uint64)
        orphan = kernels.find_parents(rows.words, keys.size, n, self._words, first, keys)
        if orphan < keys.size:
            prefix = self._text(rows.words[orphan, : n - 1].tolist())
            reason = f"the {n}-gram begins with {prefix}, which is not among the {n - 1}-grams"
            self._lines.fail(block.line + int(rows.lines[orphan]), reason)
        return keys

    def _text(self, words: list[int]) -> str:
        return repr(" ".join(self._vocabulary[word] for word in words))

    def _check_not_more(self, n: int, before: int, block: LineBlock, rows: _NgramRows) -> None:
        left = self.declared[n - 1] - before
        if rows.logp.size > left:
            line = block.line + int(rows.lines[left])
            self._lines.fail(line, f"this is one {n}-gram more than the {self.declared[n - 1]} of the header")

    def _check_not_fewer(self, n: int, found: int) -> None:
        if found < self.declared[n - 1]:
            reason = f"the {n}-grams end after {found} where the header declares {self.declared[n - 1]}"
            self._lines.fail(self._lines.number, reason)

    def _check_distinct(self, n: int, keys: npt.NDArray[np.uint64]) -> None:
        repeated = np.flatnonzero(keys[:-1] == keys[1:])
        if repeated.size:
            parent, word = divmod(int(keys[repeated[0]]), 1 << 32)
            partial = Trie(np.array(self._levels), self._words, self._first(), self._words, self._words)
            ngram = self._text([*partial.ngram(parent), word])
            self._lines.fail(self._lines.number - 1, f"the {n}-gram {ngram} is twice in the section that ends here")


class WordIndex:
    """Hash table from the bytes of words to their ids; empty words are never found."""

    def __init__(self, words: list[bytes]) -> None:
        self.pool = np.frombuffer(b"".join(words), dtype=np.uint8)
        self.bounds = np.concatenate([[0], np.cumsum([len(word) for word in words], dtype=np.int64)])
        self.slots = np.full(1 << (2 * len(words) + 1).bit_length(), -1, dtype=np.int32)
        kernels.fill_slots(self.pool, self.bounds, self.slots)


def _words_by_id(seen: dict[bytes, int], size: int) -> list[bytes]:
    """The bytes of each id, empty if the file lacks it; one more id for the alias of `<unk>` if the file has that."""
    words = [b""] * (size + 1)
    for word, number in seen.items():
        words[number] = word
    if words[UNK]:
        words[UNK], words[size] = SPECIAL_NAMES[UNK].encode(), UNKNOWN_ALIAS.encode()
    return words
