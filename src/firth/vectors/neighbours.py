"""ExactIndex: exhaustive nearest-neighbour search by cosine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.vectors import _neighbour_kernels as kernels

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Method = Literal["add", "mul"]

_MIN_ROWS = 20_000  # rows for each thread
_QUERIES = 64  # compared at once
_TILE = 4096  # rows compared at once: their scores stay in the CPU cache
_NO_ROW = np.iinfo(np.int64).max


class ExactIndex:
    """Exhaustive cosine search over the rows of a matrix.

    The matrix may be memory-mapped; only the inverse norm of each row is kept beside it.

    >>> near = ExactIndex(np.array([[1, 0], [3, 4], [0, 2], [0, 0]], dtype=np.float32))
    >>> [(row, round(score, 3)) for row, score in near.nearest(np.array([1, 1]), 2)]
    [(1, 0.99), (0, 0.707)]
    """

    def __init__(self, vectors: Floats, first: int = 0, threads: int | None = None) -> None:
        """Rows before `first` are never returned."""
        self.vectors = np.ascontiguousarray(vectors).view()
        self.vectors.flags.writeable = False  # as a memory map is, so that kernels compile once
        self.first = first
        self.threads = max(1, min(cores(threads), len(vectors) // _MIN_ROWS))
        self.inverse = np.zeros(len(vectors), dtype=np.float32)  # one over the norm of each row; 0 for rows of zeros
        self.parallel(lambda begin, end: kernels.inverse_norms(self.vectors, self.inverse, begin, end))

    def cosines(self, query: npt.ArrayLike) -> Floats:
        """The cosine of each row with a vector."""
        target = unit(query)
        found = np.empty(len(self.vectors), dtype=np.float32)
        self.parallel(lambda begin, end: kernels.cosines(self.vectors, self.inverse, target, found, begin, end))
        return found

    def nearest(self, query: npt.ArrayLike, count: int, exclude: Sequence[int] = ()) -> list[tuple[int, float]]:
        """The rows nearest to a vector and their cosines, nearest first."""
        return self.best(self.cosines(query), count, exclude)

    def best(self, scores: Floats, count: int, exclude: Sequence[int] = ()) -> list[tuple[int, float]]:
        """The rows with the highest scores, highest first; ties go to the earlier row. Overwrites `scores`."""
        scores[: self.first] = -np.inf
        scores[list(exclude)] = -np.inf
        best, rows = empty_heaps(1, min(count, len(scores)))
        kernels.heap_push_tile(scores[None], 0, best, rows)
        best, rows = ordered(best, rows)
        return [(row, score) for row, score in zip(rows[0].tolist(), best[0].tolist(), strict=True) if score > -np.inf]

    def nearest_to_rows(self, rows: Rows, count: int) -> Rows:
        """(rows, count): the nearest other rows of each row, nearest first."""
        best, found = empty_heaps(len(rows), min(count, len(self.vectors)))

        def search(begin: int, end: int) -> None:
            queries = self.unit_rows(rows[begin:end])
            for low in range(self.first, len(self.vectors), _TILE):
                high = min(low + _TILE, len(self.vectors))
                scores = queries @ self.vectors[low:high].T * self.inverse[low:high]
                inside = np.flatnonzero((rows[begin:end] >= low) & (rows[begin:end] < high))
                scores[inside, rows[begin:end][inside] - low] = -np.inf
                kernels.heap_push_tile(scores, low, best[begin:end], found[begin:end])

        with one_blas_thread():
            self.parallel(search, len(rows), _QUERIES)
        return ordered(best, found)[1]

    def unit_rows(self, rows: Rows) -> Floats:
        """Rows scaled to unit norm."""
        return self.vectors[rows] * self.inverse[rows, None]

    def analogies(self, questions: Rows, groups: Rows, among: Rows, method: Method) -> Rows:
        """For each question (a, b, c), the row of `among` that is to c as b is to a; -1 where there is none.

        Rows of one group are spellings of one word: no row of a group in the question is an answer to it.
        """
        used, positions = np.unique(questions, return_inverse=True)
        terms, positions = self.unit_rows(used), positions.reshape(questions.shape).astype(np.int64)
        banned = groups[questions]
        best = np.full(len(questions), -np.inf, dtype=np.float32)
        answers = np.full(len(questions), -1, dtype=np.int64)
        tile = max(64, (1 << 20) // max(len(used), 1))
        multiply = method == "mul"
        among_groups = np.ascontiguousarray(groups[among])
        with one_blas_thread():
            for low in range(0, len(among), tile):
                others = self.unit_rows(among[low : low + tile]).T
                scores = np.empty((len(used), others.shape[1]), dtype=np.float32)

                def fill(begin: int, end: int, others: Floats = others, scores: Floats = scores) -> None:
                    np.matmul(terms[begin:end], others, out=scores[begin:end])
                    if multiply:  # cosines are shifted to [0, 1]
                        scores[begin:end] += 1
                        scores[begin:end] /= 2

                def answer(begin: int, end: int, low: int = low, scores: Floats = scores) -> None:
                    part = slice(begin, end)
                    kernels.best_analogies(
                        scores, among_groups, low, positions[part], banned[part], multiply, best[part], answers[part]
                    )

                self.parallel(fill, len(used), 1024)
                self.parallel(answer, len(questions), 1024)
        return np.where(answers < 0, answers, among[answers])

    def parallel(self, work: Callable[[int, int], None], total: int | None = None, size: int | None = None) -> None:
        """Calls `work(begin, end)` in threads for slices of all rows, or of `total` items `size` at a time."""
        if total is None:
            total = len(self.vectors)
            size = -(-total // self.threads) if total else 1
        assert size is not None
        begins = range(0, total, size)
        ends = [min(begin + size, total) for begin in begins]
        if len(begins) <= 1 or self.threads == 1:
            list(map(work, begins, ends))
            return
        with ThreadPoolExecutor(self.threads) as executor:
            list(executor.map(work, begins, ends))


def unit(vector: npt.ArrayLike) -> Floats:
    """The vector scaled to unit norm; zeros stay zeros."""
    given = np.asarray(vector, dtype=np.float32)
    length = np.linalg.norm(given)
    return np.ascontiguousarray(given / length if length > 0 else given, dtype=np.float32)


def empty_heaps(lines: int, count: int) -> tuple[Floats, Rows]:
    """Bounded heaps of scores and rows, filled with placeholders."""
    return np.full((lines, count), -np.inf, dtype=np.float32), np.full((lines, count), _NO_ROW, dtype=np.int64)


def ordered(best: Floats, rows: Rows) -> tuple[Floats, Rows]:
    """The heaps sorted by descending score."""
    order = np.lexsort((rows, -best), axis=-1)
    return np.take_along_axis(best, order, -1), np.take_along_axis(rows, order, -1)


def one_blas_thread() -> Any:
    """A context with one BLAS thread: our threads run side by side, and results do not depend on their number."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    return threadpool_limits(limits=1, user_api="blas")
