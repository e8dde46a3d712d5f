"""Counting text larger than memory: part by part, each part's trie a sorted run on disk, and a merge of all runs.

The files have no names, so they vanish with the arrays that are mapped to them, even if the process is killed.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from firth.counts.merge import bytes_of_buffers, merge_tries
from firth.counts.trie import Trie
from firth.files import writing
from firth.progress import progress
from firth.tokens.store import TokenStore

_MOST_RUNS = 16  # merged at once; each has about eight files open
_FEWEST_SLOTS, _MOST_SLOTS = 1 << 10, 1 << 16  # nodes of each run in memory while they are merged
_COUNTER_SHARE = 0.75  # of the memory; the rest is for what the allocator keeps of arrays that were freed
_TOKEN_BYTES, _NODE_BYTES = 20, 21  # of the counter in memory: five numbers a token, four and a bit a distinct n-gram


def estimate_bytes(tokens: int, order: int, vocabulary: int) -> int:
    """An upper estimate of the memory for counting so many tokens at once, the ends of sentences among them.

    A text has at most as many distinct n-grams of each length as it has tokens; of words alone, the vocabulary.

    >>> estimate_bytes(1_000_000, order=3, vocabulary=50_000)
    63050000
    """
    return _TOKEN_BYTES * tokens + _NODE_BYTES * (vocabulary + tokens * (order - 1))


def count_in_runs(
    count_part: Callable[[int, int], Trie],
    store: TokenStore,
    order: int,
    vocabulary: int,
    memory_bytes: int,
    folder: Path,
    last: int | None = None,
) -> Trie:
    """The trie of the store's sentences up to `last`, equal to that of counting them at once.

    Its arrays are files in `folder`. `count_part(begin, end)` counts the sentences from `begin` to `end`; it is given
    no more of them than `memory_bytes` allow (but at least one). The disk needs room for about twice the runs.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    runs = _Runs(folder, vocabulary, memory_bytes)
    sentences = store.facts.sentences if last is None else last
    with progress("counting", total=sentences, unit="sentences") as advance:
        for begin, end in parts(
            store.sentences[: sentences + 1], order, vocabulary, int(_COUNTER_SHARE * memory_bytes)
        ):
            part = count_part(begin, end)
            if (part.order, part.vocabulary) != (order, vocabulary):
                raise ValueError("a part was counted with another order or vocabulary")
            with writing(folder):
                run = _write_run(part, folder)
                del part  # its memory is for merging, and for the next part
                runs.add(run)
            advance(end - begin)
    with writing(folder):
        return runs.merged()


def parts(
    sentences: npt.NDArray[np.uint64], order: int, vocabulary: int, memory_bytes: int
) -> Iterator[tuple[int, int]]:
    """Ranges of sentences that can each be counted in so much memory; `sentences` says where each begins.

    >>> list(parts(np.array([0, 4, 8, 12]), order=1, vocabulary=10, memory_bytes=210 + 240))
    [(0, 2), (2, 3)]
    """
    fixed = estimate_bytes(0, order, vocabulary)
    tokens = (memory_bytes - fixed) // (estimate_bytes(1, order, vocabulary) - fixed)
    last = sentences.size - 1

    def place(sentence: int) -> int:
        return int(sentences[sentence]) + 2 * sentence  # each has a beginning and an end

    begin = 0
    while True:
        end = bisect_right(range(last + 1), place(begin) + tokens, key=place) - 1
        end = min(max(end, begin + 1), last)
        yield begin, end
        if end == last:
            return
        begin = end


class _Runs:
    """The runs so far; as many as are merged at once become one, so that never many files are open."""

    def __init__(self, folder: Path, vocabulary: int, memory_bytes: int) -> None:
        self._folder, self._vocabulary, self._memory_bytes = folder, vocabulary, memory_bytes
        self._rounds: list[list[Trie]] = []  # by how often they were merged

    def add(self, run: Trie) -> None:
        for waiting in self._rounds:
            waiting.append(run)
            if len(waiting) < _MOST_RUNS:
                return
            run = self._merge(waiting)
            waiting.clear()
        self._rounds.append([run])

    def merged(self) -> Trie:
        """One run of all."""
        runs = [run for waiting in self._rounds for run in waiting]
        self._rounds.clear()
        while len(runs) > 1:
            runs = [*runs[_MOST_RUNS:], self._merge(runs[:_MOST_RUNS])]
        return runs[0]

    def _merge(self, runs: Sequence[Trie]) -> Trie:
        slots = self._memory_bytes // bytes_of_buffers(len(runs), 1)
        slots = min(max(slots, _FEWEST_SLOTS), _MOST_SLOTS)
        with _Files(self._folder) as files:
            return merge_tries(runs, [1] * len(runs), self._vocabulary, files.sink, slots)


def _write_run(trie: Trie, folder: Path) -> Trie:
    """The same trie, with its arrays on disk."""
    with _Files(folder) as files:
        arrays = []
        for array in (trie.words, trie.first, trie.links, trie.counts):
            sink = files.sink(array.dtype)
            sink.write(array)
            arrays.append(sink.array())
        return Trie(trie.levels, *arrays)


class _FileSink:
    """A nameless file that becomes a mapped array."""

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
        self._file.close()  # the map keeps its own hold on the file
        return mapped


class _Files:
    """Makes sinks in a folder, and closes at the end those that no array was made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def sink(self, dtype: npt.DTypeLike) -> _FileSink:
        return _FileSink(self._open.enter_context(tempfile.TemporaryFile(dir=self._folder)), dtype)


def memory_available(root: Path = Path("/")) -> int:
    """The bytes that this process may still take: what the machine has free, or less where a control group says so."""
    free = [_machine_free(root), *_group_free(root)]
    return max(0, min(free))


def _machine_free(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_free(root: Path) -> Iterator[int]:
    """What is left in each control group that this process is in, of version 2 or 1.

    A limit is in force for all groups below, so the parents count too. Pages of files that were not used lately are
    given up when memory runs short, so they do not count as taken.
    """
    for line in _lines(root / "proc/self/cgroup"):
        if line.count(":") < 2:
            continue
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            limit, used = (_number(_lines(folder / name)) for name in names[:2])
            if limit is not None:
                stat = dict(line.split()[:2] for line in _lines(folder / "memory.stat"))
                yield limit - (used or 0) + int(stat.get(names[2], 0))
            if folder == base:
                break


def _lines(path: Path) -> Sequence[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(lines: Sequence[str]) -> int | None:
    """The number in a file of one line, unless it says `max`."""
    return int(lines[0]) if lines and lines[0].isdecimal() else None
