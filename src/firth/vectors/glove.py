"""GloVe (Pennington et al. 2014): dot products fitted to the logarithms of co-occurrence counts.

The co-occurrence matrix is split into a grid of tiles by groups of rows and columns. The tiles of a diagonal share
neither rows nor columns, so threads train them in parallel without changing a bit, and a group fits into the CPU
caches.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError, RecipeError, reading
from firth.progress import progress
from firth.vectors import _glove_kernels as kernels
from firth.vectors.cooccurrence import Cooccurrence, allocate_arrays, count_pairs
from firth.vectors.job import Arrays, VectorJob, VectorResult
from firth.vectors.model import VectorModel
from firth.vectors.recipe import GloveRecipe

Floats = npt.NDArray[np.float32]

_MIN_GROUPS, _MAX_GROUPS = 16, 1 << 12
_GROUP_BYTES = 4 << 20  # size of the rows of a group: two for each thread should fit into the caches
_MAX_SLOTS = 1 << 16  # a cell has 16 bits for each slot
_SIMD = 8  # floats that rows are padded to a multiple of
_MIN_FLOAT = 1e-30
_FLOPS = 14  # for each cell and dimension


def train_glove(recipe: GloveRecipe, job: VectorJob) -> VectorResult:
    """Sums of word and context vectors; the context vectors are stored beside them."""
    started = time.monotonic()
    job.text.require_words(recipe.window)
    table = count_pairs(job.text, recipe.window, weighting="harmonic", threads=job.threads)
    table.require_cells()
    with ThreadPoolExecutor(job.threads) as pool:
        grid = TileGrid.of(np.diff(table.starts), recipe.dimension)
        tiles = split_tiles(table, grid, job.seed, pool)
        del table
        fit = _GloveFit(recipe, job, grid, tiles, pool)
        losses = fit.run(_num_epochs(recipe, job, len(tiles)), started)
    words, contexts = (grid.vectors(rows, recipe.dimension) for rows in (fit.words, fit.contexts))
    model = job.build(VectorModel, recipe, words + contexts, outputs=contexts)
    metrics = {"pairs": len(tiles), "epochs": len(losses), "losses": losses}
    return VectorResult(model, len(losses) * job.text.total, metrics)


@dataclass(frozen=True, eq=False)
class TileGrid:
    """Words assigned to groups by the number of cells in their rows, so that all groups have similar work.

    >>> grid = TileGrid.of(np.array([0, 0, 0, 0, 0, 7, 9, 8]), dimension=4)
    >>> grid.groups, grid.slots, grid.group_of.tolist()
    (16, 1, [0, 0, 0, 0, 0, 2, 0, 1])
    """

    groups: int
    slots: int  # maximum number of words in a group
    width: int  # floats of a row, without the squared gradients
    ids: npt.NDArray[np.int64]
    """Words with any cells, most cells first: the i-th is in group `i % groups`, slot `i // groups`."""
    group_of: npt.NDArray[np.int32]
    slot_of: npt.NDArray[np.int32]

    @classmethod
    def of(cls, cells: npt.NDArray[np.int64], dimension: int) -> TileGrid:
        """The grid for words with that many cells; independent of the machine, since the vectors depend on it."""
        width = -(-(dimension + 2) // _SIMD) * _SIMD  # vector, bias and a constant 1
        distinct = int(np.count_nonzero(cells))
        groups = min(max(_MIN_GROUPS, -(-distinct * 8 * width // _GROUP_BYTES)), _MAX_GROUPS)
        slots = -(-distinct // groups)
        if slots > _MAX_SLOTS:
            raise CorpusError(f"the text has {distinct} different words: raise tokenizer.min_count.")
        ids = np.argsort(-cells, kind="stable")[:distinct]
        group_of, slot_of = np.zeros((2, len(cells)), dtype=np.int32)
        slot_of[ids], group_of[ids] = np.divmod(np.arange(distinct), groups)
        return cls(groups, slots, width, ids, group_of, slot_of)

    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each of `ids`; the rows of a group are contiguous."""
        return self.group_of[self.ids].astype(np.int64) * self.slots + self.slot_of[self.ids]

    def initial_rows(self, rng: np.random.Generator, dimension: int, lr: float, bias: int) -> Floats:
        """Rows with small random vectors; `bias` is the position of the bias, 0 or 1, in the two floats after them.

        Squared gradients start at 1, so that the first steps have the length of the learning rate; those of biases
        start at its square, which cancels it: biases have a learning rate of 1, as in the authors' program.
        """
        rows = np.zeros((self.groups * self.slots, 2, self.width), dtype=np.float32)
        rows[:, 1] = 1.0
        rows[:, 1, dimension + bias] = max(lr * lr, _MIN_FLOAT)
        rows[:, 0, dimension : dimension + 2] = 1.0
        values = (rng.random((len(self.ids), dimension + 1), dtype=np.float32) - 0.5) / dimension
        rows[self.rows(), 0, :dimension] = values[:, :dimension]
        rows[self.rows(), 0, dimension + bias] = values[:, dimension]
        return rows.reshape(-1)

    def vectors(self, rows: Floats, dimension: int) -> Floats:
        """The vectors of all words in the order of their ids."""
        vectors = np.zeros((len(self.group_of), dimension), dtype=np.float32)
        vectors[self.ids] = rows.reshape(-1, 2, self.width)[self.rows(), 0, :dimension]
        return vectors


@dataclass(frozen=True, eq=False)
class Tiles:
    """The cells of a co-occurrence matrix, grouped by tile."""

    starts: npt.NDArray[np.int64]  # bounds of the tiles
    cells: npt.NDArray[np.uint32]  # for each cell the slots of its row and column, and the log of its count as a float

    def __len__(self) -> int:
        return int(self.starts[-1])


def split_tiles(table: Cooccurrence, grid: TileGrid, seed: int, pool: ThreadPoolExecutor) -> Tiles:
    """The cells of the matrix grouped by tile, shuffled within each."""
    sizes = np.zeros((grid.groups, grid.groups), dtype=np.int64)

    def count(group: int) -> None:
        ids = grid.ids[group :: grid.groups]
        kernels.count_tiles(table.starts, table.columns, ids, grid.group_of, sizes[group])

    list(pool.map(count, range(grid.groups)))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    (cells,) = allocate_arrays(2 * len(table.columns), np.uint32)
    keys = np.random.default_rng((seed, 0, 0)).integers(0, 1 << 64, size=grid.groups**2, dtype=np.uint64)

    def fill(group: int) -> None:
        tiles = range(group * grid.groups, (group + 1) * grid.groups)
        ends = starts[tiles.start : tiles.stop].copy()
        kernels.fill_tiles(
            table.starts, table.columns, table.weights, grid.ids[group :: grid.groups], grid.group_of, grid.slot_of,
            ends, cells, cells.view(np.float32),
        )  # fmt: skip
        for tile in tiles:
            kernels.shuffle_cells(cells, starts[tile], starts[tile + 1], keys[tile])

    list(pool.map(fill, range(grid.groups)))
    return Tiles(starts, cells)


class _GloveFit:
    """Word and context rows during training."""

    def __init__(self, recipe: GloveRecipe, job: VectorJob, grid: TileGrid, tiles: Tiles, pool: Any) -> None:
        self.recipe, self.job, self.grid, self.tiles, self.pool = recipe, job, grid, tiles, pool
        rng = np.random.default_rng((job.seed, 0))
        self.words, self.contexts = (grid.initial_rows(rng, recipe.dimension, recipe.lr, bias) for bias in (0, 1))

    def run(self, epochs: int, started: float) -> list[float]:
        """Trains for at most that many epochs within the time budget; returns the mean loss of each."""
        losses = self._resume()
        with progress("training", total=epochs * len(self.tiles), unit="pairs") as advance:
            advance(len(losses) * len(self.tiles))
            while len(losses) < epochs:
                begun = time.monotonic()
                losses.append(self._run_epoch(len(losses) + 1))
                advance(len(self.tiles))
                self._check(losses)
                if self.job.checkpointer is not None and self.job.checkpointer.due():
                    self.job.checkpointer.save({"words": self.words, "contexts": self.contexts}, {"losses": losses})
                now = time.monotonic()
                if self.job.seconds is not None and now - started + (now - begun) > self.job.seconds:
                    break  # another epoch would take too long
        return losses

    def _resume(self) -> list[float]:
        """Loads the last checkpoint, if any, and returns the losses so far."""
        checkpoint = self.job.checkpointer.load() if self.job.checkpointer is not None else None
        if checkpoint is None:
            return []
        arrays, state = checkpoint
        with reading("the checkpoint", "remove it and train again"):
            self.words, self.contexts = (_matching(arrays, name, self.words) for name in ("words", "contexts"))
            return [float(loss) for loss in state["losses"]]

    def _run_epoch(self, epoch: int) -> float:
        """Trains on all cells once, in an order that depends on seed and epoch alone; returns the mean loss."""
        groups, threads = self.grid.groups, self.job.threads
        rng = np.random.default_rng((self.job.seed, epoch))
        sizes = np.diff(self.tiles.starts)
        begins = self.tiles.starts[:-1] + (rng.random(groups * groups) * sizes).astype(np.int64)
        losses = np.zeros(groups * groups)
        rows = np.arange(groups)
        for diagonal in rng.permutation(groups):
            tiles = rows * groups + (rows + diagonal) % groups
            list(self.pool.map(lambda some: self._train(some, begins, losses), np.array_split(tiles, threads)))
        return float(losses.sum()) / len(self.tiles)

    def _train(self, tiles: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], losses: npt.NDArray[Any]) -> None:
        recipe = self.recipe
        kernels.train_tiles(
            self.words, self.contexts, self.tiles.cells, self.tiles.cells.view(np.float32), self.tiles.starts, tiles,
            begins, self.grid.groups, self.grid.slots, recipe.dimension, np.float32(recipe.lr),
            np.float32(math.log(recipe.x_max)), np.float32(recipe.alpha), losses,
        )  # fmt: skip

    def _check(self, losses: list[float]) -> None:
        """Raises unless all weights are finite: a sum is not if one of its terms is not."""
        sums = (losses[-1], self.words.sum(dtype=np.float64), self.contexts.sum(dtype=np.float64))
        if not all(map(math.isfinite, sums)):
            raise RecipeError(f"training diverged in epoch {len(losses)}: set lr lower than {self.recipe.lr}.")


def _matching(arrays: Arrays, name: str, like: Floats) -> Floats:
    found = arrays.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        raise ArtifactError("the checkpoint is from another text or recipe: start again without --resume.")
    return np.array(found)


def _num_epochs(recipe: GloveRecipe, job: VectorJob, cells: int) -> int:
    if job.tokens is not None:
        return max(1, job.tokens // job.text.total)
    if job.flops is not None:
        return max(1, int(job.flops / (_FLOPS * cells * recipe.dimension)))
    return recipe.epochs
