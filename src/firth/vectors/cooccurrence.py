"""Co-occurrence counts in windows.

The positions of each word are found by a counting sort; then every row of the matrix is summed independently, so that
threads need no locks and any number of them gives the same bits. Long texts are counted in chunks of a fixed size whose
matrices are added at the end.
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
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _cooccurrence_kernels as kernels
from firth.vectors.text import TrainingText, bounds_of, runs_of

Weighting = Literal["flat", "harmonic"]
Ints = npt.NDArray[np.int64]

_CHUNK = 1 << 25  # tokens counted at once
_BLOCK = 1 << 21  # cells of a task
_MAX_PENDING = 32  # tasks running or waiting to be appended


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """A symmetric sparse matrix of words by words; columns ascend within a row.

    >>> text = "i love you but you love him i am sad".split()
    >>> words = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "[MASK]", *dict.fromkeys(text)]
    >>> ids = np.array([words.index(word) for word in text], dtype=np.uint16)
    >>> bounds = np.array([0, len(ids)], dtype=np.uint64)
    >>> table = count_pairs(TrainingText(ids, bounds, np.array([0, 1], dtype=np.uint64), words), window=2)
    >>> {words[column]: weight for column, weight in table.row(words.index("you")).items()}
    {'i': 1.0, 'love': 2.0, 'you': 2.0, 'but': 2.0, 'him': 1.0}
    """

    starts: Ints  # bounds of the rows; special tokens have empty rows
    columns: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.float32]

    def row(self, word: int) -> dict[int, float]:
        """The context words of a word and their counts."""
        cells = slice(self.starts[word], self.starts[word + 1])
        return dict(zip(self.columns[cells].tolist(), self.weights[cells].tolist(), strict=True))

    def require_cells(self) -> None:
        """Raises `CorpusError` if no two words occur in one window."""
        if len(self.columns) == 0:
            raise CorpusError("no two words occur in one sentence: give text with longer sentences.")


def count_pairs(text: TrainingText, window: int, *, weighting: Weighting = "flat", threads: int = 1) -> Cooccurrence:
    """Co-occurrence counts of words at most `window` positions apart in a sentence.

    `harmonic` counts a pair at distance d as 1/d, as GloVe does. Special tokens, including unknown words, are dropped
    before distances are measured.
    """
    window = min(window, max(1, int(np.diff(text.sentences).max(initial=1)) - 1))  # no sentence is longer
    distance_weights = np.ones(window) if weighting == "flat" else 1.0 / np.arange(1, window + 1)
    size, chunks = len(text.words), list(runs_of(text.sentences, _CHUNK))
    with ThreadPoolExecutor(threads) as pool:
        cells = _CellBuffer(int(np.minimum(2 * window * text.counts, size * len(chunks)).sum()))
        tables = [_count_chunk(text, begin, end, distance_weights, pool, cells) for begin, end in chunks]
        if len(tables) == 1:
            return Cooccurrence(tables[0], *cells.filled())
        merged = _CellBuffer(int(np.minimum(2 * window * text.counts, size).sum()))
        starts = _merge(np.array(tables).reshape(-1, size + 1), *cells.filled(), pool, merged)
        return Cooccurrence(starts, *merged.filled())


def _count_chunk(
    text: TrainingText, begin: int, end: int, distance_weights: Any, pool: ThreadPoolExecutor, cells: _CellBuffer
) -> Ints:
    """Appends the cells of some sentences and returns the bounds of each row."""
    size = len(text.words)
    bounds = text.sentences[begin : end + 1].astype(np.int64)
    ids = np.asarray(text.ids[bounds[0] : bounds[-1]], dtype=np.uint32)
    words = np.empty(len(ids) + len(bounds), dtype=np.uint32)
    words = words[: kernels.drop_specials(ids, bounds - bounds[0], FIRST_WORD, words)]
    del ids
    counts = np.bincount(words, minlength=size)
    counts[kernels.BREAK] = 0
    starts = bounds_of(counts)
    positions = np.empty(starts[-1], dtype=np.uint32)
    kernels.find_positions(words, starts[:-1].copy(), positions)

    def count(first: int, last: int, *out: Any) -> int:
        buffers = _row_buffers(size)
        return int(kernels.count_rows(words, positions, starts, first, last, distance_weights, *buffers, *out))

    return _append_rows(np.minimum(2 * len(distance_weights) * counts, size), count, pool, cells)


def _merge(
    tables: Ints, columns: npt.NDArray[np.uint32], weights: npt.NDArray[np.float32], pool: ThreadPoolExecutor,
    cells: _CellBuffer,
) -> Ints:  # fmt: skip
    """Appends the sum of several matrices with the row bounds `tables[t]`, and returns its row bounds."""
    size = tables.shape[1] - 1

    def merge(first: int, last: int, *out: Any) -> int:
        return int(kernels.merge_rows(tables, columns, weights, first, last, *_row_buffers(size), *out))

    return _append_rows(np.minimum(np.diff(tables, axis=1).sum(axis=0), size), merge, pool, cells)


def _row_buffers(size: int) -> tuple[npt.NDArray[Any], ...]:
    """The sums of all columns, a list of those in use, and two levels of bits to sort them."""
    bits = np.zeros((size >> 6) + 1, np.uint64), np.zeros((size >> 12) + 1, np.uint64)
    return np.zeros(size), np.empty(size + 1, np.int64), *bits


def _append_rows(max_cells: Ints, fill: Callable[..., int], pool: ThreadPoolExecutor, cells: _CellBuffer) -> Ints:
    """Appends all rows, of at most that many cells each, as `fill` writes them, and returns their bounds."""

    def write_rows(first: int, last: int) -> tuple[npt.NDArray[Any], ...]:
        size = int(max_cells[first:last].sum())
        columns, weights = np.empty(size, np.uint32), np.empty(size, np.float32)
        ends = np.empty(last - first, np.int64)
        length = fill(first, last, columns, weights, ends)
        return columns[:length], weights[:length], ends

    starts = [np.array([cells.length])]
    with progress("counting pairs", total=len(max_cells), unit="words") as advance:
        for columns, weights, ends in map_in_order(pool, write_rows, runs_of(bounds_of(max_cells), _BLOCK)):
            starts.append(cells.length + ends)
            cells.append(columns, weights)
            advance(len(ends))
    return np.concatenate(starts)


def map_in_order(
    pool: ThreadPoolExecutor, work: Callable[..., Any], tasks: Iterator[Any], max_pending: int = _MAX_PENDING
) -> Iterator[Any]:
    """The results of `work` in the order of the tasks; only a few are pending at a time."""
    pending: deque[Future[Any]] = deque()
    for task in tasks:
        pending.append(pool.submit(work, *task))
        if len(pending) > max_pending:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


class _CellBuffer:
    """Growing columns and weights; pages that are never written take neither memory nor disk."""

    def __init__(self, max_cells: int) -> None:
        self.length = 0
        self.columns, self.weights = allocate_arrays(max_cells, np.uint32, np.float32)

    def append(self, columns: npt.NDArray[np.uint32], weights: npt.NDArray[np.float32]) -> None:
        end = self.length + len(columns)
        self.columns[self.length : end] = columns
        self.weights[self.length : end] = weights
        self.length = end

    def filled(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
        return self.columns[: self.length], self.weights[: self.length]


def allocate_arrays(size: int, *dtypes: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    """New arrays of that size, on disk if together they might not fit into memory.

    The limit is half of the machine's memory, or `$FIRTH_MEMORY` in megabytes. The files are anonymous, so they vanish
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
