"""Which words stand near which, and how often.

Where each word occurs is found by a counting sort; then every row of the table is added up by itself. So threads take
rows, need no locks, and give the same numbers however many they are. Long texts are counted in parts of a fixed size,
so that neither the threads nor the memory of the machine change a bit; the tables of the parts are added at the end.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError, RecipeError
from firth.files import cache_folder, writing
from firth.progress import progress
from firth.vectors import _cooccurrence_kernels as kernels
from firth.vectors.text import FIRST_WORD, TrainingText

Weighting = Literal["flat", "harmonic"]
Ints = npt.NDArray[np.int64]

_PART = 1 << 25  # tokens that are counted at once
_BLOCK = 1 << 21  # cells that a thread may write before it takes the next rows
_WAITING = 32  # blocks that are under way or wait to be appended


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """A symmetric table of words by words, row after row; columns ascend within a row.

    >>> text = "i love you but you love him i am sad".split()
    >>> words = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "[MASK]", *dict.fromkeys(text)]
    >>> ids = np.array([words.index(word) for word in text], dtype=np.uint16)
    >>> bounds = np.array([0, len(ids)], dtype=np.uint64)
    >>> table = count_pairs(TrainingText(ids, bounds, np.array([0, 1], dtype=np.uint64), words), window=2)
    >>> {words[column]: weight for column, weight in table.row(words.index("you")).items()}
    {'i': 1.0, 'love': 2.0, 'you': 2.0, 'but': 2.0, 'him': 1.0}
    """

    starts: Ints
    """Where the row of each word begins, and the end; special tokens have empty rows."""
    columns: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.float32]

    def row(self, word: int) -> dict[int, float]:
        """What stands near a word, and how often."""
        cells = slice(self.starts[word], self.starts[word + 1])
        return dict(zip(self.columns[cells].tolist(), self.weights[cells].tolist(), strict=True))

    def require_cells(self) -> None:
        """Raises `CorpusError` if no two words stand near each other."""
        if len(self.columns) == 0:
            raise CorpusError("no two words stand in one sentence: give text with longer sentences.")


def count_pairs(text: TrainingText, window: int, *, weighting: Weighting = "flat", threads: int = 1) -> Cooccurrence:
    """How often words stand at most `window` places from each other in a sentence.

    `harmonic` counts a pair at distance d as 1/d, as GloVe does. Special tokens, unknown words among them, are left out
    before distances are measured.
    """
    window = min(window, max(1, int(np.diff(text.sentences).max(initial=1)) - 1))  # no sentence is longer
    near = np.ones(window) if weighting == "flat" else 1.0 / np.arange(1, window + 1)
    size, parts = len(text.words), list(_parts(text.sentences))
    with ThreadPoolExecutor(threads) as pool:
        cells = _Cells(int(np.minimum(2 * window * text.counts, size * len(parts)).sum()))
        tables = [_count_part(text, begin, end, near, pool, cells) for begin, end in parts]
        if len(tables) == 1:
            return Cooccurrence(tables[0], *cells.whole())
        merged = _Cells(int(np.minimum(2 * window * text.counts, size).sum()))
        starts = _merge(np.array(tables).reshape(-1, size + 1), *cells.whole(), pool, merged)
        return Cooccurrence(starts, *merged.whole())


def _parts(sentences: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Runs of sentences of about `_PART` tokens."""
    begin, last = 0, len(sentences) - 1
    while begin < last:
        end = int(np.searchsorted(sentences, sentences[begin] + np.uint64(_PART), side="right")) - 1
        end = max(end, begin + 1)
        yield begin, end
        begin = end


def _count_part(
    text: TrainingText,
    begin: int,
    end: int,
    near: npt.NDArray[np.float64],
    pool: ThreadPoolExecutor,
    cells: _Cells,
) -> Ints:
    """Appends the cells of some sentences and returns where each row of them begins, and the end."""
    size = len(text.words)
    bounds = text.sentences[begin : end + 1].astype(np.int64)
    ids = np.asarray(text.ids[bounds[0] : bounds[-1]], dtype=np.uint32)
    words = np.empty(len(ids) + len(bounds), dtype=np.uint32)
    words = words[: kernels.drop_specials(ids, bounds - bounds[0], FIRST_WORD, words)]
    del ids
    counts = np.bincount(words, minlength=size)
    counts[kernels.BREAK] = 0
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.empty(starts[-1], dtype=np.uint32)
    kernels.find_places(words, starts[:-1].copy(), places)

    def count(first: int, last: int, *out: Any) -> int:
        return int(kernels.count_rows(words, places, starts, first, last, near, *_empty_row(size), *out))

    return _append_rows(np.minimum(2 * len(near) * counts, size), count, pool, cells)


def _merge(
    tables: Ints,
    columns: npt.NDArray[np.uint32],
    weights: npt.NDArray[np.float32],
    pool: ThreadPoolExecutor,
    cells: _Cells,
) -> Ints:
    """Appends the sum of tables, whose rows begin at `tables[t]`, and returns where each row of it begins."""
    size = tables.shape[1] - 1

    def merge(first: int, last: int, *out: Any) -> int:
        return int(kernels.merge_rows(tables, columns, weights, first, last, *_empty_row(size), *out))

    return _append_rows(np.minimum(np.diff(tables, axis=1).sum(axis=0), size), merge, pool, cells)


def _empty_row(size: int) -> tuple[npt.NDArray[Any], ...]:
    """The sums of all columns, a list of those in use, and two levels of bits to put them in order."""
    bits = np.zeros((size >> 6) + 1, np.uint64), np.zeros((size >> 12) + 1, np.uint64)
    return np.zeros(size), np.empty(size + 1, np.int64), *bits


def _append_rows(most: Ints, fill: Callable[..., int], pool: ThreadPoolExecutor, cells: _Cells) -> Ints:
    """Appends all rows, of at most so many cells each, as `fill` writes them, and returns where each begins."""

    def work(first: int, last: int) -> tuple[npt.NDArray[Any], ...]:
        room = int(most[first:last].sum())
        columns, weights = np.empty(room, np.uint32), np.empty(room, np.float32)
        ends = np.empty(last - first, np.int64)
        length = fill(first, last, columns, weights, ends)
        return columns[:length], weights[:length], ends

    starts = [np.array([cells.length])]
    with progress("counting pairs", total=len(most), unit="words") as advance:
        for columns, weights, ends in _in_order(pool, work, _blocks(most)):
            starts.append(cells.length + ends)
            cells.append(columns, weights)
            advance(len(ends))
    return np.concatenate(starts)


def _blocks(most: Ints) -> Iterator[tuple[int, int]]:
    """Runs of rows with at most about `_BLOCK` cells."""
    ends = np.concatenate([[0], np.cumsum(most)])
    first, last = 0, len(most)
    while first < last:
        after = max(int(np.searchsorted(ends, ends[first] + _BLOCK, side="right")) - 1, first + 1)
        yield first, after
        first = after


def _in_order(pool: ThreadPoolExecutor, work: Callable[..., Any], tasks: Iterator[Any]) -> Iterator[Any]:
    """What `work` gives for each of the tasks; only a few results wait to be taken."""
    waiting: deque[Future[Any]] = deque()
    for task in tasks:
        waiting.append(pool.submit(work, *task))
        if len(waiting) > _WAITING:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Cells:
    """Columns and weights that are appended; what is never written takes neither memory nor disk."""

    def __init__(self, most: int) -> None:
        self.length = 0
        self.columns, self.weights = make_room(most, np.uint32, np.float32)

    def append(self, columns: npt.NDArray[np.uint32], weights: npt.NDArray[np.float32]) -> None:
        end = self.length + len(columns)
        self.columns[self.length : end] = columns
        self.weights[self.length : end] = weights
        self.length = end

    def whole(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
        """All columns and all weights."""
        return self.columns[: self.length], self.weights[: self.length]


def make_room(size: int, *dtypes: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    """New arrays of that size, on disk if together they might not fit into memory.

    Half of the machine's memory is counted on, or `$FIRTH_MEMORY` in megabytes. The files have no names, so they vanish
    with the arrays, even if the process is killed.
    """
    given = os.environ.get("FIRTH_MEMORY", "")
    if given and not given.isdecimal():
        raise RecipeError(f"FIRTH_MEMORY={given!r} must be a whole number of megabytes, such as 4000.")
    memory = int(given) << 20 if given else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    if size == 0 or size * sum(np.dtype(dtype).itemsize for dtype in dtypes) <= memory:
        return [np.empty(size, dtype) for dtype in dtypes]
    folder = cache_folder() / "pairs"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return [_file_array(folder, size, dtype) for dtype in dtypes]


def _file_array(folder: Path, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size * np.dtype(dtype).itemsize)
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+"))
