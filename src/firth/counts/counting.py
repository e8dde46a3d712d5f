"""Counting: from a token store to a trie of all its n-grams.

Text larger than memory is counted externally: the trie of each part is a sorted run on disk, and all runs are merged.
The files are unnamed, so they disappear with the arrays mapped to them, even if the process is killed.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores, in_order
from firth.counts import _count_kernels as kernels
from firth.counts.merge import NewSink, merge_tries
from firth.counts.trie import MAX_NODES, ROOT, Integers, Mask, Trie, WordIds
from firth.errors import RecipeError
from firth.files import writing
from firth.progress import progress
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, UNK

_PARALLEL_TOKENS = 1 << 14  # shorter texts are counted in one thread
_MAX_RUNS = 16  # merged at once; each has about eight files open
_MIN_SLOTS, _MAX_SLOTS = 1 << 10, 1 << 16  # nodes of each run in memory during a merge
_COUNTER_FRACTION = 0.75  # of the memory; malloc holds on to the rest after arrays are freed
_TOKEN_BYTES, _NODE_BYTES = 20, 21  # of the counter: five numbers per token, four and a bit per distinct n-gram


def count_store(
    store: TokenStore, vocab_size: int, order: int, begin: int = 0, end: int | None = None, threads: int | None = None
) -> Trie:
    """All n-grams of the store's sentences from `begin` to `end`, up to the given order."""
    end = store.info.sentences if end is None else end
    return count_text(join_sentences(store, np.arange(begin, end)), vocab_size, order, threads)


def count_selected(store: TokenStore, vocab_size: int, order: int, mask: Mask) -> Trie:
    """All n-grams of the store's sentences for which the mask is true."""
    return count_text(join_sentences(store, np.flatnonzero(mask)), vocab_size, order)


def join_sentences(store: TokenStore, selected: Integers) -> WordIds:
    """Sentences of a store as one text, each `<s> w1 ... wm </s>`."""
    lengths = store.sentences[selected + 1] - store.sentences[selected]
    text = np.empty(int(lengths.sum()) + 2 * selected.size, dtype=np.uint32)
    kernels.join_sentences(store.ids, store.sentences, selected, FIRST_WORD, BOS, EOS, UNK, text)
    return text


def count_sentences(sentences: Sequence[Sequence[int]], *, vocab_size: int, order: int) -> Trie:
    """All n-grams of sentences given as ids without `<s>` and `</s>`.

    >>> count_sentences([[5, 6, 5]], vocab_size=7, order=3).levels.tolist()
    [0, 7, 11, 14]
    """
    flat = [word for sentence in sentences for word in (BOS, *sentence, EOS)]
    return count_text(np.array(flat, dtype=np.uint32), vocab_size, order)


def count_text(text: WordIds, vocab_size: int, order: int, threads: int | None = None) -> Trie:
    """All n-grams of a text of sentences, each `<s> w1 ... wm </s>`."""
    if text.size >= MAX_NODES:
        raise RecipeError("more than four thousand million tokens cannot be counted at once: count parts and merge.")
    with progress("counting n-grams", total=order * text.size, unit="tokens") as advance:
        counter = _Counter(text, vocab_size, 1 if text.size < _PARALLEL_TOKENS else cores(threads))
        advance(text.size)
        for n in range(2, order + 1):
            counter.add_level(n, last=n == order)
            advance(text.size)
        return counter.trie()


class _Counter:
    """Finds the n-grams of a text length by length; the arrays of each level are in lists."""

    def __init__(self, text: WordIds, vocab_size: int, threads: int) -> None:
        self.text = text
        self.threads = threads
        self.bits = max(1, int(vocab_size - 1).bit_length())
        counts = np.zeros(vocab_size, dtype=np.uint32)
        kernels.count_words(text, counts)
        self.words, self.counts = [np.arange(vocab_size, dtype=np.uint32)], [counts]
        self.links = [np.full(vocab_size, ROOT)]
        self.firsts: list[WordIds] = []
        self.size = vocab_size  # nodes so far
        self.begins = (np.cumsum(counts, dtype=np.int64) - counts).astype(np.uint32)
        self.positions = np.empty(text.size, dtype=np.uint32)
        kernels.sort_words(text, self.begins.copy(), self.positions)
        self.keys = np.empty(text.size, dtype=np.uint32)
        self.ranks = np.empty(0, dtype=np.uint32)

    def add_level(self, n: int, last: bool) -> None:
        """Finds the n-grams of length `n` from those one shorter."""
        groups = (self.begins, self.counts[-1], self.words[-1])
        children = np.empty(self.words[-1].size, dtype=np.uint32)
        parts = _split_evenly(self.counts[-1], self.threads)

        def sort(part: tuple[int, int]) -> None:
            kernels.sort_groups(self.text, n - 1, part, *groups, self.bits, EOS, self.positions, self.keys, children)

        list(in_order(sort, parts, self.threads))
        total = int(children.sum(dtype=np.int64))
        if self.size + total > MAX_NODES:
            raise RecipeError("there are more than four thousand million n-grams: lower the order or count less text.")
        first = np.cumsum(children, dtype=np.uint32) - children
        words, begins, counts, links = (np.empty(total, dtype=np.uint32) for _ in range(4))
        ranks = np.empty(0 if last else self.text.size, dtype=np.uint32)

        def fill(part: tuple[int, int]) -> None:
            new = (words, begins, counts, links, ranks)
            kernels.fill_level(part, *groups, EOS, self.positions, self.keys, first, self.ranks, *new, self.size)

        list(in_order(fill, parts, self.threads))
        first += np.uint32(self.size)
        self.firsts.append(first)
        self.words.append(words)
        self.counts.append(counts)
        self.links.append(links)
        self.begins, self.ranks = begins, ranks
        self.size += total

    def trie(self) -> Trie:
        """The trie; the arrays of the levels, most of the memory, are freed one kind at a time."""
        levels = np.cumsum([0, *(words.size for words in self.words)], dtype=np.int64)
        del self.text, self.positions, self.keys, self.ranks, self.begins
        joined = []
        for arrays in (self.words, self.links, self.counts):
            joined.append(np.concatenate(arrays))
            arrays.clear()
        words, links, counts = joined
        first = np.concatenate([*self.firsts, np.array([self.size], dtype=np.uint32)])
        return Trie(levels, words, first, links, counts)


def _split_evenly(counts: WordIds, threads: int) -> list[tuple[int, int]]:
    """Ranges of nodes with about the same number of positions each."""
    if threads == 1 or counts.size == 0:
        return [(0, counts.size)]
    sums = np.cumsum(counts, dtype=np.int64)
    cuts = np.searchsorted(sums, sums[-1] * np.arange(1, 2 * threads) / (2 * threads))
    bounds = [0, *cuts.tolist(), counts.size]
    return [(a, b) for a, b in pairwise(bounds) if a < b]


def estimate_bytes(tokens: int, order: int, vocab_size: int) -> int:
    """An upper bound of the memory for counting a number of tokens at once, `<s>` and `</s>` included.

    A text has at most as many distinct n-grams of each length above 1 as it has tokens.

    >>> estimate_bytes(1_000_000, order=3, vocab_size=50_000)
    63050000
    """
    return _TOKEN_BYTES * tokens + _NODE_BYTES * (vocab_size + tokens * (order - 1))


def count_in_runs(
    count_part: Callable[[int, int], Trie],
    store: TokenStore,
    order: int,
    vocab_size: int,
    memory_bytes: int,
    folder: Path,
    last: int | None = None,
) -> Trie:
    """The trie of the store's sentences up to `last`, equal to that of counting them at once.

    Its arrays are files in `folder`. `count_part(begin, end)` counts the sentences from `begin` to `end`: as many as
    fit into `memory_bytes`, but at least one. The disk needs space for about twice the runs.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    runs = _Runs(folder, vocab_size, memory_bytes)
    sentences = store.info.sentences if last is None else last
    with progress("counting", total=sentences, unit="sentences") as advance:
        for begin, end in split_sentences(
            store.sentences[: sentences + 1], order, vocab_size, int(_COUNTER_FRACTION * memory_bytes)
        ):
            part = count_part(begin, end)
            if (part.order, part.vocab_size) != (order, vocab_size):
                raise ValueError("a part was counted with another order or vocabulary")
            with writing(folder):
                run = _write_run(part, folder)
                del part  # frees memory for merging and the next part
                runs.add(run)
            advance(end - begin)
    with writing(folder):
        return runs.merged()


def split_sentences(
    sentences: npt.NDArray[np.uint64], order: int, vocab_size: int, memory_bytes: int
) -> Iterator[tuple[int, int]]:
    """Ranges of sentences that can each be counted in `memory_bytes`; `sentences` holds the offset of each.

    >>> list(split_sentences(np.array([0, 4, 8, 12]), order=1, vocab_size=10, memory_bytes=210 + 240))
    [(0, 2), (2, 3)]
    """
    fixed = estimate_bytes(0, order, vocab_size)
    tokens = (memory_bytes - fixed) // (estimate_bytes(1, order, vocab_size) - fixed)
    last = sentences.size - 1

    def offset(sentence: int) -> int:
        return int(sentences[sentence]) + 2 * sentence  # each has a <s> and a </s>

    begin = 0
    while True:
        end = bisect_right(range(last + 1), offset(begin) + tokens, key=offset) - 1
        end = min(max(end, begin + 1), last)
        yield begin, end
        if end == last:
            return
        begin = end


class _Runs:
    """The runs so far; every `_MAX_RUNS` of them are merged into one, which bounds the number of open files."""

    def __init__(self, folder: Path, vocab_size: int, memory_bytes: int) -> None:
        self._folder, self._vocab_size, self._memory_bytes = folder, vocab_size, memory_bytes
        self._rounds: list[list[Trie]] = []  # by the number of merges

    def add(self, run: Trie) -> None:
        for pending in self._rounds:
            pending.append(run)
            if len(pending) < _MAX_RUNS:
                return
            run = self._merge(pending)
            pending.clear()
        self._rounds.append([run])

    def merged(self) -> Trie:
        runs = [run for pending in self._rounds for run in pending]
        self._rounds.clear()
        while len(runs) > 1:
            runs = [*runs[_MAX_RUNS:], self._merge(runs[:_MAX_RUNS])]
        return runs[0]

    def _merge(self, runs: Sequence[Trie]) -> Trie:
        slots = self._memory_bytes // (24 * len(runs) + 64)  # the bytes of one slot of all buffers
        slots = min(max(slots, _MIN_SLOTS), _MAX_SLOTS)
        with ExitStack() as files:
            return merge_tries(runs, [1] * len(runs), self._vocab_size, _file_sinks(files, self._folder), slots)


def _write_run(trie: Trie, folder: Path) -> Trie:
    with ExitStack() as files:
        arrays, new_sink = [], _file_sinks(files, folder)
        for array in (trie.words, trie.first, trie.links, trie.counts):
            sink = new_sink(array.dtype)
            sink.write(array)
            arrays.append(sink.array())
        return Trie(trie.levels, *arrays)


class _FileSink:
    """An unnamed file that becomes a memory-mapped array."""

    def __init__(self, file: IO[bytes], dtype: npt.DTypeLike) -> None:
        self._file = file
        self._dtype = np.dtype(dtype)

    def write(self, part: npt.NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(part, dtype=self._dtype).data)

    def array(self) -> npt.NDArray[Any]:
        self._file.flush()
        if self._file.tell() == 0:
            return np.zeros(0, dtype=self._dtype)
        mapped = np.asarray(np.memmap(self._file, dtype=self._dtype, mode="r"))
        self._file.close()  # the map has its own reference to the file
        return mapped


def _file_sinks(files: ExitStack, folder: Path) -> NewSink:
    """Creates sinks in a folder; `files` closes those without an array."""
    return lambda dtype: _FileSink(files.enter_context(tempfile.TemporaryFile(dir=folder)), dtype)
