"""GloVe (Pennington et al. 2014): dot products fitted to the logarithms of co-occurrence counts.

The co-occurrence matrix is split into a grid of tiles by groups of rows and columns. The tiles of a diagonal share
neither rows nor columns, so threads train them in parallel without changing a bit, and a group fits into the CPU
caches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.training import Arrays, StepResult, Trainer, TrainingPlan
from firth.vectors import _glove_kernels as kernels
from firth.vectors.cooccurrence import Cooccurrence, allocate_arrays, count_pairs
from firth.vectors.job import VectorJob, VectorResult
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
        trainer = open_trainer(recipe, job, grid, tiles, pool, started)
        if job.checkpointer is not None and (checkpoint := job.checkpointer.load()) is not None:
            trainer.restore(*checkpoint)
        trainer.train()
    words, contexts = (grid.vectors(rows, recipe.dimension) for rows in (trainer.words, trainer.contexts))
    model = job.build(VectorModel, recipe, words + contexts, outputs=contexts)
    state = trainer.state
    metrics = {"pairs": len(tiles), "epochs": len(state.losses), "losses": state.losses}
    return VectorResult(model, state.tokens, metrics, state.records)


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


@dataclass(kw_only=True)
class GloveTrainer(Trainer):
    """Word and context rows during training; a step trains the tiles of a diagonal."""

    unit: ClassVar[str] = "words"

    recipe: GloveRecipe
    job: VectorJob
    grid: TileGrid
    tiles: Tiles
    pool: ThreadPoolExecutor

    def __post_init__(self) -> None:
        rng, recipe = np.random.default_rng((self.job.seed, 0)), self.recipe
        self.words, self.contexts = (self.grid.initial_rows(rng, recipe.dimension, recipe.lr, bias) for bias in (0, 1))
        self.losses = np.zeros(self.grid.groups**2)  # of the tiles in this epoch

    def steps(self) -> Generator[StepResult]:
        """Trains for at most the planned number of epochs within the time budget."""
        while self.state.step < self.plan.total:
            begun = time.monotonic()
            yield from self._run_epoch(self.state.step // self.grid.groups + 1)
            seconds = self.job.seconds
            if seconds is not None and self.elapsed + time.monotonic() - begun > seconds:
                return  # another epoch would take too long

    def _run_epoch(self, epoch: int) -> Iterator[StepResult]:
        """Trains on all cells once, in an order that depends on seed and epoch alone."""
        groups, threads, state = self.grid.groups, self.job.threads, self.state
        rng = np.random.default_rng((self.job.seed, epoch))
        sizes = np.diff(self.tiles.starts)
        begins = self.tiles.starts[:-1] + (rng.random(groups * groups) * sizes).astype(np.int64)
        rows = np.arange(groups)
        for diagonal in rng.permutation(groups)[state.step % groups :]:
            tiles = rows * groups + (rows + diagonal) % groups
            list(self.pool.map(lambda some: self._train_tiles(some, begins), np.array_split(tiles, threads)))
            cells, loss = int(sizes[tiles].sum()), float(self.losses[tiles].sum())
            state.step += 1
            state.tokens = round(state.step * self.epoch_tokens / groups)
            state.flops += _FLOPS * cells * self.recipe.dimension
            if state.step % groups == 0:
                state.epoch_sums = float(self.losses.sum()), len(self.tiles)
                state.end_epoch()
                self.losses[:] = 0
            yield StepResult({"glove": (loss, cells)}, self.lr)

    def _train_tiles(self, tiles: npt.NDArray[np.int64], begins: npt.NDArray[np.int64]) -> None:
        recipe = self.recipe
        kernels.train_tiles(
            self.words, self.contexts, self.tiles.cells, self.tiles.cells.view(np.float32), self.tiles.starts, tiles,
            begins, self.grid.groups, self.grid.slots, recipe.dimension, np.float32(recipe.lr),
            np.float32(math.log(recipe.x_max)), np.float32(recipe.alpha), self.losses,
        )  # fmt: skip

    def arrays(self) -> Arrays:
        """The rows, and the losses of the tiles in this epoch."""
        return {"words": self.words, "contexts": self.contexts, "losses": self.losses}


def open_trainer(
    recipe: GloveRecipe, job: VectorJob, grid: TileGrid, tiles: Tiles, pool: ThreadPoolExecutor, began: float
) -> GloveTrainer:
    """A trainer with initial rows and its plan."""
    epochs = _num_epochs(recipe, job, len(tiles))
    return GloveTrainer(
        plan=TrainingPlan("step", epochs * grid.groups, epochs * job.text.total),
        lr=recipe.lr,
        epoch_tokens=job.text.total,
        checkpointer=job.checkpointer,
        file=job.file,
        began=began,
        recipe=recipe,
        job=job,
        grid=grid,
        tiles=tiles,
        pool=pool,
    )


def _num_epochs(recipe: GloveRecipe, job: VectorJob, cells: int) -> int:
    if job.tokens is not None:
        return max(1, job.tokens // job.text.total)
    if job.flops is not None:
        return max(1, int(job.flops / (_FLOPS * cells * recipe.dimension)))
    return recipe.epochs
