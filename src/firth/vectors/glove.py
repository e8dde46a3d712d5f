"""GloVe (Pennington et al. 2014): dot products fitted to the logarithm of how often words stand near each other.

The table of pairs is cut into a grid of tiles by groups of rows and of columns. The tiles of a diagonal share neither
rows nor columns, so threads go through them at once without waiting for each other and without changing a bit, and a
group is small enough for the processor's caches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError, RecipeError
from firth.progress import progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _glove_kernels as kernels
from firth.vectors.cooccurrence import Cooccurrence, count_pairs, make_room
from firth.vectors.job import Arrays, Job, Result
from firth.vectors.model import VectorModel, restore_vectors
from firth.vectors.recipe import GloveRecipe

Floats = npt.NDArray[np.float32]

_FEWEST_GROUPS, _MOST_GROUPS = 16, 1 << 12
_GROUP_BYTES = 4 << 20  # of the rows of a group: two for each thread should fit into the caches
_MOST_SLOTS = 1 << 16  # a cell has 16 bits for each of its slots
_LANES = 8  # floats that rows are padded to
_LEAST = 1e-30  # that a float can hold
_FLOPS = 14  # for each cell and dimension


def train_glove(recipe: GloveRecipe, job: Job) -> Result:
    """The sums of word and context vectors; the context vectors are kept beside them."""
    started = time.monotonic()
    job.text.require(recipe.window)
    table = count_pairs(job.text, recipe.window, weighting="harmonic", threads=job.threads)
    table.require_cells()
    with ThreadPoolExecutor(job.threads) as pool:
        grid = Grid.of(np.diff(table.starts), recipe.dimension)
        tiles = cut(table, grid, job.seed, pool)
        del table
        fit = _Fit(recipe, job, grid, tiles, pool)
        losses = fit.run(_epochs(recipe, job, len(tiles)), started)
    model = VectorModel(
        recipe,
        job.tokenizer,
        job.layout,
        grid.vectors(fit.words, recipe.dimension) + grid.vectors(fit.contexts, recipe.dimension),
        outputs=grid.vectors(fit.contexts, recipe.dimension),
        counts=job.text.counts,
        phrases=job.phrases,
    )
    metrics = {"pairs": len(tiles), "epochs": len(losses), "losses": losses}
    return Result(model, len(losses) * job.text.total, metrics)


def restore(recipe: GloveRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> VectorModel:
    """The model of a saved artifact."""
    return restore_vectors(recipe, arrays, tokenizer, layout)


@dataclass(frozen=True, eq=False)
class Grid:
    """Words dealt out to groups by the cells of their rows, so that all groups have about the same work.

    >>> grid = Grid.of(np.array([0, 0, 0, 0, 0, 7, 9, 8]), dimension=4)
    >>> grid.groups, grid.slots, grid.group_of.tolist()
    (16, 1, [0, 0, 0, 0, 0, 2, 0, 1])
    """

    groups: int
    slots: int
    """Words of a group at most."""
    width: int
    """Floats of a row, without the squares of the gradients."""
    ids: npt.NDArray[np.int64]
    """Words that stand near others, most cells first: the i-th is in group `i % groups`, slot `i // groups`."""
    group_of: npt.NDArray[np.int32]
    slot_of: npt.NDArray[np.int32]

    @classmethod
    def of(cls, cells: npt.NDArray[np.int64], dimension: int) -> Grid:
        """The grid for words of so many cells. It does not depend on the machine, since the vectors depend on it."""
        width = -(-(dimension + 2) // _LANES) * _LANES  # a bias and a one beside the vector
        kinds = int(np.count_nonzero(cells))
        groups = min(max(_FEWEST_GROUPS, -(-kinds * 8 * width // _GROUP_BYTES)), _MOST_GROUPS)
        slots = -(-kinds // groups)
        if slots > _MOST_SLOTS:
            raise CorpusError(f"the text has {kinds} different words: raise tokenizer.min_count.")
        ids = np.argsort(-cells, kind="stable")[:kinds]
        group_of, slot_of = np.zeros((2, len(cells)), dtype=np.int32)
        slot_of[ids], group_of[ids] = np.divmod(np.arange(kinds), groups)
        return cls(groups, slots, width, ids, group_of, slot_of)

    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each of `ids`; the rows of a group stand together."""
        return self.group_of[self.ids].astype(np.int64) * self.slots + self.slot_of[self.ids]

    def start(self, rng: np.random.Generator, dimension: int, rate: float, bias: int) -> Floats:
        """New rows with small random vectors; `bias` says at which of the two places after them the bias is.

        The squares of the gradients begin with 1, so that the first steps are as long as the learning rate says; those
        of biases with the square of the rate, which then cancels out: biases learn at a rate of 1, as in the authors'
        program.
        """
        rows = np.zeros((self.groups * self.slots, 2, self.width), dtype=np.float32)
        rows[:, 1] = 1.0
        rows[:, 1, dimension + bias] = max(rate * rate, _LEAST)
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
    """The cells of a table of pairs, tile by tile."""

    starts: npt.NDArray[np.int64]
    """Where each tile begins, and the end."""
    cells: npt.NDArray[np.uint32]
    """Of each cell the slots of its row and column, and the logarithm of its weight as a float."""

    def __len__(self) -> int:
        return int(self.starts[-1])


def cut(table: Cooccurrence, grid: Grid, seed: int, pool: ThreadPoolExecutor) -> Tiles:
    """The cells of the table, by the groups of their rows and columns, those of a tile in random order."""
    sizes = np.zeros((grid.groups, grid.groups), dtype=np.int64)

    def count(group: int) -> None:
        ids = grid.ids[group :: grid.groups]
        kernels.count_tiles(table.starts, table.columns, ids, grid.group_of, sizes[group])

    list(pool.map(count, range(grid.groups)))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    (cells,) = make_room(2 * len(table.columns), np.uint32)
    keys = np.random.default_rng((seed, 0, 0)).integers(0, 1 << 64, size=grid.groups**2, dtype=np.uint64)

    def fill(group: int) -> None:
        tiles = range(group * grid.groups, (group + 1) * grid.groups)
        ends = starts[tiles.start : tiles.stop].copy()
        kernels.fill_tiles(
            table.starts,
            table.columns,
            table.weights,
            grid.ids[group :: grid.groups],
            grid.group_of,
            grid.slot_of,
            ends,
            cells,
            cells.view(np.float32),
        )
        for tile in tiles:
            kernels.shuffle_cells(cells, starts[tile], starts[tile + 1], keys[tile])

    list(pool.map(fill, range(grid.groups)))
    return Tiles(starts, cells)


class _Fit:
    """The vectors while they are fitted."""

    def __init__(self, recipe: GloveRecipe, job: Job, grid: Grid, tiles: Tiles, pool: ThreadPoolExecutor) -> None:
        self.recipe, self.job, self.grid, self.tiles, self.pool = recipe, job, grid, tiles, pool
        rng = np.random.default_rng((job.seed, 0))
        self.words = grid.start(rng, recipe.dimension, recipe.learning_rate, bias=0)
        self.contexts = grid.start(rng, recipe.dimension, recipe.learning_rate, bias=1)

    def run(self, epochs: int, started: float) -> list[float]:
        """Goes through all cells so many times, or fewer if the time is over; the mean loss of each time."""
        losses = self._go_on()
        with progress("training", total=epochs * len(self.tiles), unit="pairs") as advance:
            advance(len(losses) * len(self.tiles))
            while len(losses) < epochs:
                begun = time.monotonic()
                losses.append(self._epoch(len(losses) + 1))
                advance(len(self.tiles))
                self._check(losses)
                if self.job.keeper is not None and self.job.keeper.due():
                    self.job.keeper.keep({"words": self.words, "contexts": self.contexts}, {"losses": losses})
                now = time.monotonic()
                if self.job.seconds is not None and now - started + (now - begun) > self.job.seconds:
                    break  # another epoch would take too long
        return losses

    def _go_on(self) -> list[float]:
        """Takes up what was kept, if anything, and returns the losses until then."""
        kept = self.job.keeper.kept() if self.job.keeper is not None else None
        if kept is None:
            return []
        arrays, state = kept
        self.words, self.contexts = (_same_shape(arrays, name, self.words) for name in ("words", "contexts"))
        return [float(loss) for loss in state["losses"]]

    def _epoch(self, epoch: int) -> float:
        """Goes through all cells once, in an order that only seed and epoch decide, and returns their mean loss."""
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
            self.words,
            self.contexts,
            self.tiles.cells,
            self.tiles.cells.view(np.float32),
            self.tiles.starts,
            tiles,
            begins,
            self.grid.groups,
            self.grid.slots,
            recipe.dimension,
            np.float32(recipe.learning_rate),
            np.float32(math.log(recipe.x_max)),
            np.float32(recipe.alpha),
            losses,
        )

    def _check(self, losses: list[float]) -> None:
        """Raises unless all is finite: a sum is not, if one of its parts is not."""
        sums = (losses[-1], self.words.sum(dtype=np.float64), self.contexts.sum(dtype=np.float64))
        if not all(map(math.isfinite, sums)):
            raise RecipeError(
                f"the vectors went to infinity in epoch {len(losses)}: set learning_rate lower than "
                f"{self.recipe.learning_rate}."
            )


def _same_shape(arrays: Arrays, name: str, like: Floats) -> Floats:
    found = arrays.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        raise ArtifactError("what was kept is from another text or recipe: start again without --resume.")
    return np.array(found)


def _epochs(recipe: GloveRecipe, job: Job, cells: int) -> int:
    """How many times the budget allows to go through the table: at least once."""
    if job.tokens is not None:
        return max(1, job.tokens // job.text.total)
    if job.flops is not None:
        return max(1, int(job.flops / (_FLOPS * cells * recipe.dimension)))
    return recipe.epochs
