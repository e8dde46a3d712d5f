"""The training loop of all vectors trained by SGD: blocks of text, in one of two modes.

fast    threads take blocks and update the shared tables without locks (Hogwild, Recht et al. 2011). Two runs with
        several threads differ.
exact   `REPLICAS` blocks at a time start from the same tables; each updates private copies of the rows it uses, and
        the changes are merged in the order of the blocks. The result depends on the seed alone, not on the threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from firth.errors import TrainingError
from firth.tokens.tokenizer import FIRST_WORD
from firth.training import Arrays, StepResult, Trainer, TrainingPlan, affordable
from firth.vectors._exact_kernels import clear_counts, copy_rows, count_replicas, map_to_copies, merge_rows
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.recipe import Mode, SgdRecipe
from firth.vectors.tables import EmbeddingTable, mean_square
from firth.vectors.text import TrainingText

REPLICAS = 4  # blocks trained in parallel in exact mode: more threads than that do not help
_BLOCK_SIZES: dict[Mode, tuple[tuple[float, int], ...]] = {
    "exact": ((300_000, 500), (5_000_000, 2_000), (math.inf, 4_000)),
    "fast": ((5_000_000, 10_000), (math.inf, 20_000)),
}
"""Maximum words of a text, and words of its blocks: parallel blocks do not see each other's updates, so are small."""
_SEGMENT = 32  # blocks between two reports of the loss, checks and possible checkpoints
_MIN_LR = 1e-4  # as a fraction of the initial learning rate
_CALIBRATION = 1.0  # seconds of work that measure the throughput for a time budget, at most a tenth of it
DEFAULT_EPOCHS = 5
_MAX_EPOCHS = 1000  # by default, over a small text
_MIN_WORDS = 5_000_000  # of a run without a budget, within that: fewer leave all vectors close together
Worker = Callable[[range, Callable[[int], float]], list[tuple[float, int]]]
"""Trains on some blocks, with a learning rate for each; returns the loss and the number of examples of each."""


class BlockPlan(NamedTuple):
    """The row accesses of a block and the trainer's own data.

    An access is the index of a table and its row for each use, at most one for each table; exact mode overwrites the
    rows by those of private copies.
    """

    accesses: Sequence[tuple[int, npt.NDArray[np.int32]]]
    content: Any


class BlockTrainer(Protocol):
    """A model being trained on a text that is split into blocks."""

    tables: Sequence[EmbeddingTable]  # in exact mode each has `REPLICAS` times as many spare rows as a block can use
    num_blocks: int  # in an epoch
    num_words: int  # in an epoch
    max_step: float  # maximum of the learning rate times the mean squared norm of rows; larger steps diverge

    @property
    def flops_per_word(self) -> float:
        """Approximate floating-point operations for a word of text."""

    def plan(self, epoch: int, block: int) -> BlockPlan:
        """All random choices of a block, as a function of its position."""

    def train_block(self, plan: BlockPlan, lr: float) -> tuple[float, int]:
        """Trains on a block; returns the summed loss of its examples before the updates, and their number."""


def block_size(mode: Mode, words: int) -> int:
    """Words in a block of a text of that many words.

    >>> block_size("exact", 100_000_000), block_size("exact", 1_000_000), block_size("exact", 10_000)
    (4000, 2000, 500)
    """
    return next(size for most, size in _BLOCK_SIZES[mode] if words <= most)


def auto_epochs(words: int) -> int:
    """Epochs over a text of that many words, more for small texts.

    >>> auto_epochs(17_000_000), auto_epochs(500_000), auto_epochs(1_000)
    (5, 10, 1000)
    """
    return min(max(DEFAULT_EPOCHS, math.ceil(_MIN_WORDS / max(words, 1))), _MAX_EPOCHS)


def train_blocks(blocks: BlockTrainer, recipe: SgdRecipe, lr: float, job: VectorJob) -> SgdTrainer:
    """Trains on all blocks that the budget allows, with a linearly decaying learning rate."""
    with ThreadPoolExecutor(job.threads) as threads:
        worker = _Exact(blocks, threads, job.threads) if recipe.mode == "exact" else _Fast(blocks, threads)
        checkpoint = None if job.checkpointer is None else job.checkpointer.load()
        if checkpoint is None and job.seconds is not None:
            worker(range(REPLICAS), lambda block: 0.0)  # compiles, which does not count towards a time budget
        began = time.monotonic()
        plan = TrainingPlan.restored(checkpoint) if checkpoint else _make_plan(blocks, recipe, job, worker)
        trainer = SgdTrainer(
            plan=plan,
            lr=lr,
            lr_field=job.lr_field,
            epoch_tokens=blocks.num_words,
            checkpointer=job.checkpointer,
            file=job.file,
            began=began,
            blocks=blocks,
            worker=worker,
            text=job.text,
            objective=getattr(recipe, "loss", "negative"),
        )
        if checkpoint is not None:
            trainer.restore(*checkpoint)
        trainer.train()
        del trainer.worker  # its copies of rows take memory
    return trainer


@dataclass(kw_only=True)
class SgdTrainer(Trainer):
    """A run over blocks; each block is a step of the plan."""

    unit: ClassVar[str] = "words"

    blocks: BlockTrainer
    worker: Worker
    text: TrainingText
    objective: str

    def steps(self) -> Generator[StepResult]:
        """Segments of blocks."""
        state, blocks, flops_per_word = self.state, self.blocks, self.blocks.flops_per_word
        while state.step < (planned := math.ceil(self.plan.total)):
            segment = range(state.step, min(_segment_end(state.step, blocks.num_blocks), planned))
            max_lr = _max_lr(blocks)
            if max_lr <= _MIN_LR * self.lr:
                raise TrainingError(f"training diverged: the vectors grow without bound after step {state.step}")
            decayed_lr = partial(_decayed_lr, self.lr, max_lr, planned)
            found = self.worker(segment, decayed_lr)
            for loss, examples in found:
                state.epoch_sums = state.epoch_sums[0] + loss, state.epoch_sums[1] + examples
            state.step = segment.stop
            state.tokens = round(state.step * blocks.num_words / blocks.num_blocks)
            state.flops = flops_per_word * state.tokens
            if state.step % blocks.num_blocks == 0:
                state.end_epoch()
            self.text.drop_page_cache()
            losses, counts = zip(*found, strict=True)
            yield StepResult({self.objective: (sum(losses), sum(counts))}, decayed_lr(segment.stop - 1))
        if state.step % blocks.num_blocks:
            state.end_epoch()

    def arrays(self) -> Arrays:
        """The tables."""
        return {f"table{number}": table.weights for number, table in enumerate(self.blocks.tables)}

    def result(self, model: Any, **metrics: Any) -> VectorResult:
        """The trained model with the losses and the words processed."""
        vocabulary, losses = len(self.text.words) - FIRST_WORD, self.state.losses
        metrics = {"loss": losses[-1], "losses": losses, "vocabulary": vocabulary} | metrics
        return VectorResult(model, self.state.tokens, metrics, self.state.records)


def _segment_end(done: int, num_blocks: int) -> int:
    """The end of the segment that begins at block `done`; no segment crosses the end of an epoch."""
    return min((done // _SEGMENT + 1) * _SEGMENT, (done // num_blocks + 1) * num_blocks)


def _decayed_lr(initial: float, max_lr: float, planned: int, block: int) -> float:
    return min(initial * max(1 - block / planned, _MIN_LR), max_lr)


def _max_lr(trainer: BlockTrainer) -> float:
    """The highest learning rate that does not diverge.

    A step moves a score by about the learning rate times the squared norms of its rows, and norms grow without bound:
    eventually steps would overshoot.
    """
    if math.isinf(trainer.max_step):
        return math.inf
    return trainer.max_step / max(mean_square(trainer.tables), 1e-9)


def _make_plan(blocks: BlockTrainer, recipe: SgdRecipe, job: VectorJob, worker: Worker) -> TrainingPlan:
    """The number of blocks that the budget, or the recipe's epochs, allow."""
    per_block = blocks.num_words / blocks.num_blocks
    if job.tokens is not None:
        planned = job.tokens / per_block
    elif job.flops is not None:
        planned = job.flops / (blocks.flops_per_word * per_block)
    elif job.seconds is not None:
        planned = _calibrate(worker, job.seconds)
    else:
        assert recipe.epochs != "auto"
        planned = recipe.epochs * blocks.num_blocks
    total = max(1, round(planned))
    return TrainingPlan("step", total, round(total * per_block), seconds=job.seconds)


def _calibrate(worker: Worker, seconds: float) -> float:
    """The blocks that a time budget allows, by the throughput of its first part."""
    started, done = time.monotonic(), 0
    while (elapsed := time.monotonic() - started) < min(_CALIBRATION, 0.1 * seconds):
        worker(range(done, done + REPLICAS), lambda block: 0.0)  # a learning rate of zero changes nothing
        done += REPLICAS
    return affordable(done / max(elapsed, 1e-9), seconds, elapsed)


class _Fast:
    """Blocks go to whichever thread is free."""

    def __init__(self, trainer: BlockTrainer, threads: ThreadPoolExecutor) -> None:
        self.trainer, self.threads = trainer, threads

    def __call__(self, blocks: range, lr: Callable[[int], float]) -> list[tuple[float, int]]:
        def train(block: int) -> tuple[float, int]:
            plan = self.trainer.plan(*divmod(block, self.trainer.num_blocks))
            return self.trainer.train_block(plan, lr(block))

        return list(self.threads.map(train, blocks))


class _Exact:
    """Blocks in rounds of `REPLICAS`: all are trained on copies, then all changes are merged."""

    def __init__(self, trainer: BlockTrainer, threads: ThreadPoolExecutor, count: int) -> None:
        self.trainer, self.threads, self.count = trainer, threads, count
        self.replicas = [_Replica(trainer, number) for number in range(REPLICAS)]
        self.replica_counts = [np.zeros(table.rows, dtype=np.uint8) for table in trainer.tables]
        self.use_counts = [np.zeros(table.rows, dtype=np.float64) for table in trainer.tables]

    def __call__(self, blocks: range, lr: Callable[[int], float]) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = []
        for begin in range(blocks.start, blocks.stop, REPLICAS):
            found += self._round(range(begin, min(begin + REPLICAS, blocks.stop)), lr(begin))
        return found

    def _round(self, blocks: range, lr: float) -> list[tuple[float, int]]:
        replicas = self.replicas[: len(blocks)]
        found = list(self.threads.map(lambda replica, block: replica.train(block, lr), replicas, blocks))
        # Calibration has a learning rate of 0: replicas merged one by one then leave all rows unchanged to the bit.
        for merged in [replicas] if lr > 0 else [[replica] for replica in replicas]:
            list(self.threads.map(partial(self._merge, merged, lr), range(self.count)))
        return found

    def _merge(self, replicas: Sequence[_Replica], lr: float, part: int) -> None:
        for number, table in enumerate(self.trainer.tables):
            sums, rate = (self.replica_counts[number], self.use_counts[number]), lr * table.gradient_scale
            each = [(replica.rows[number], replica.counts[number], replica) for replica in replicas]
            for rows, count, replica in each:
                count_replicas(rows, replica.uses[number], count, part, self.count, *sums)
            for rows, count, replica in each:
                merge_rows(table.flat, rows, count, table.stride, replica.first[number], part, self.count, *sums, rate)
            for rows, count, _ in each:
                clear_counts(rows, count, part, self.count, self.use_counts[number])


class _Replica:
    """Private copies of rows, in spare rows of the tables, for one block of a round."""

    def __init__(self, trainer: BlockTrainer, number: int) -> None:
        self.trainer = trainer
        self.slots = [np.full(table.rows, -1, dtype=np.int32) for table in trainer.tables]
        self.first = [table.rows + number * (table.spare // REPLICAS) for table in trainer.tables]
        self.rows = [np.empty(table.spare // REPLICAS, dtype=np.int32) for table in trainer.tables]
        self.uses = [np.empty(table.spare // REPLICAS, dtype=np.int32) for table in trainer.tables]
        self.counts = [0] * len(trainer.tables)

    def train(self, block: int, lr: float) -> tuple[float, int]:
        """Plans a block, copies the rows that it uses, and trains on them."""
        plan = self.trainer.plan(*divmod(block, self.trainer.num_blocks))
        self.counts = [0] * len(self.trainer.tables)
        for number, accesses in plan.accesses:
            table, first, rows = self.trainer.tables[number], self.first[number], self.rows[number]
            self.counts[number] = map_to_copies(accesses, first, self.slots[number], rows, self.uses[number])
            copy_rows(table.flat, rows, self.counts[number], table.stride, first)
        return self.trainer.train_block(plan, lr)
