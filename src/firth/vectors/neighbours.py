"""Neighbours: the rows of a matrix that point most nearly the same way as a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.vectors import _neighbour_kernels as kernels

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Method = Literal["add", "mul"]

_ALONE = 20_000  # rows that one thread is given at least
_QUERIES = 64  # that are compared at once
_TILE = 4096  # rows likewise: their scores stay in the processor's cache
_NOWHERE = np.iinfo(np.int64).max


class Neighbours:
    """The rows of a matrix, to be compared by the cosine of the angle between them.

    The matrix is read where it lies, a memory map for instance; beside it there is only the length of each row.

    >>> near = Neighbours(np.array([[1, 0], [3, 4], [0, 2], [0, 0]], dtype=np.float32))
    >>> [(row, round(score, 3)) for row, score in near.nearest(np.array([1, 1]), 2)]
    [(1, 0.99), (0, 0.707)]
    """

    def __init__(self, vectors: Floats, first: int = 0, threads: int | None = None) -> None:
        """Rows before `first` are never anyone's neighbours."""
        self.vectors = np.ascontiguousarray(vectors).view()
        self.vectors.flags.writeable = False  # a memory map is so as well, and kernels compile once
        self.first = first
        self.threads = max(1, min(cores(threads), len(vectors) // _ALONE))
        self.inverse = np.zeros(len(vectors), dtype=np.float32)
        """One over the length of each row; 0 for rows of zeros."""
        self.in_parts(lambda begin, end: kernels.measure_rows(self.vectors, self.inverse, begin, end))

    def scores(self, query: npt.ArrayLike) -> Floats:
        """The cosine of each row with a vector."""
        target = unit(query)
        found = np.empty(len(self.vectors), dtype=np.float32)
        self.in_parts(lambda begin, end: kernels.score_rows(self.vectors, self.inverse, target, found, begin, end))
        return found

    def nearest(self, query: npt.ArrayLike, count: int, leave_out: Sequence[int] = ()) -> list[tuple[int, float]]:
        """The rows that are nearest to a vector and their cosines, nearest first."""
        return self.best(self.scores(query), count, leave_out)

    def best(self, scores: Floats, count: int, leave_out: Sequence[int] = ()) -> list[tuple[int, float]]:
        """The rows with the highest scores, highest first; of equal ones the earlier. Takes `scores` for its own."""
        scores[: self.first] = -np.inf
        scores[list(leave_out)] = -np.inf
        best, rows = empty_heaps(1, min(count, len(scores)))
        kernels.push_tile(scores[None], 0, best, rows)
        best, rows = ordered(best, rows)
        return [(row, score) for row, score in zip(rows[0].tolist(), best[0].tolist(), strict=True) if score > -np.inf]

    def nearest_to_rows(self, rows: Rows, count: int) -> Rows:
        """The nearest rows to each of some rows, nearest first, itself left out; a line for each."""
        best, found = empty_heaps(len(rows), min(count, len(self.vectors)))

        def search(begin: int, end: int) -> None:
            queries = self.units(rows[begin:end])
            for low in range(self.first, len(self.vectors), _TILE):
                high = min(low + _TILE, len(self.vectors))
                scores = queries @ self.vectors[low:high].T * self.inverse[low:high]
                inside = np.flatnonzero((rows[begin:end] >= low) & (rows[begin:end] < high))
                scores[inside, rows[begin:end][inside] - low] = -np.inf
                kernels.push_tile(scores, low, best[begin:end], found[begin:end])

        with one_blas_thread():
            self.in_parts(search, len(rows), _QUERIES)
        return ordered(best, found)[1]

    def units(self, rows: Rows) -> Floats:
        """Rows, each of length 1."""
        return self.vectors[rows] * self.inverse[rows, None]

    def analogies(self, questions: Rows, kinds: Rows, among: Rows, method: Method) -> Rows:
        """For each question (a, b, c), the row of `among` that is to c as b is to a; -1 where there is none.

        `kinds` says which rows are the same word in another spelling: no kind of the question is an answer to it.
        """
        asked, places = np.unique(questions, return_inverse=True)
        terms, places = self.units(asked), places.reshape(questions.shape).astype(np.int64)
        banned = kinds[questions]
        best = np.full(len(questions), -np.inf, dtype=np.float32)
        answers = np.full(len(questions), -1, dtype=np.int64)
        tile = max(64, (1 << 20) // max(len(asked), 1))
        multiply = method == "mul"
        among_kinds = np.ascontiguousarray(kinds[among])
        with one_blas_thread():
            for low in range(0, len(among), tile):
                scores = np.empty((len(asked), len(among[low : low + tile])), dtype=np.float32)
                self.in_parts(self._fill(terms, among[low : low + tile], scores, multiply), len(asked), 1024)

                def answer(begin: int, end: int, low: int = low, scores: Floats = scores) -> None:
                    part = slice(begin, end)
                    kernels.answer_tile(
                        scores, among_kinds, low, places[part], banned[part], multiply, best[part], answers[part]
                    )

                self.in_parts(answer, len(questions), 1024)
        return np.where(answers < 0, answers, among[answers])

    def _fill(self, terms: Floats, rows: Rows, scores: Floats, shifted: bool) -> Callable[[int, int], None]:
        """What writes the cosines of terms and rows, or those moved to 0 to 1, for a part of the terms."""
        others = self.units(rows).T

        def fill(begin: int, end: int) -> None:
            np.matmul(terms[begin:end], others, out=scores[begin:end])
            if shifted:
                scores[begin:end] += 1
                scores[begin:end] /= 2

        return fill

    def in_parts(self, work: Callable[[int, int], None], total: int | None = None, step: int | None = None) -> None:
        """Calls `work(begin, end)` for parts of all rows, or of `total` things `step` at a time, in several threads."""
        if total is None:
            total = len(self.vectors)
            step = -(-total // self.threads) if total else 1
        assert step is not None
        begins = range(0, total, step)
        if len(begins) <= 1 or self.threads == 1:
            for begin in begins:
                work(begin, min(begin + step, total))
            return
        with ThreadPoolExecutor(self.threads) as executor:
            for _ in executor.map(lambda begin: work(begin, min(begin + step, total)), begins):
                pass


def unit(vector: npt.ArrayLike) -> Floats:
    """A vector of length 1 in the same direction; zeros stay as they are."""
    given = np.asarray(vector, dtype=np.float32)
    length = np.linalg.norm(given)
    return np.ascontiguousarray(given / length if length > 0 else given, dtype=np.float32)


def empty_heaps(lines: int, count: int) -> tuple[Floats, Rows]:
    """Heaps of scores and rows that anything is better than."""
    return np.full((lines, count), -np.inf, dtype=np.float32), np.full((lines, count), _NOWHERE, dtype=np.int64)


def ordered(best: Floats, rows: Rows) -> tuple[Floats, Rows]:
    """The same heaps with the highest score first in each line."""
    order = np.lexsort((rows, -best), axis=-1)
    return np.take_along_axis(best, order, -1), np.take_along_axis(rows, order, -1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products of matrices by one thread each: several work side by side, and their number decides no bit."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: Any = threadpool_limits(limits=1, user_api="blas")
    with limits:
        yield
