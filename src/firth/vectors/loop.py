"""The loop that all vectors learnt step by step share: blocks of text, in one of two modes.

fast    threads take blocks and change the shared tables as they go, without locks (Recht et al. 2011). As quick as the
        machine; two runs with several threads differ.
exact   `LANES` blocks at a time start from the same tables; each works on private copies of the rows that it touches,
        and the changes are added in the order of the blocks. The result depends on the seed alone, not on the threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from firth.errors import TrainingError
from firth.progress import patience, progress
from firth.vectors._exact_kernels import clear_places, copy_rows, count_lanes, localise, merge_rows
from firth.vectors.job import Job
from firth.vectors.recipe import Mode, SteppedRecipe
from firth.vectors.tables import Table, mean_square

LANES = 4
"""Blocks that are learnt from at a time in exact mode: more threads than that are of no use to it."""
_BLOCKS: dict[Mode, tuple[tuple[float, int], ...]] = {
    "exact": ((300_000, 500), (5_000_000, 2_000), (math.inf, 4_000)),
    "fast": ((5_000_000, 10_000), (math.inf, 20_000)),
}
"""Words of a text at most, and of a block: blocks that start together do not see each other, so they must be small."""
_SEGMENT = 32  # blocks after which the loss is told and checked and the state may be kept
_LEAST_RATE = 1e-4  # of the first rate
_CALIBRATION = 1.0  # seconds of work that tell how much fits into a budget of time
_SHARE = 0.95  # of a budget of time that is planned to be used


class Touch(NamedTuple):
    """The rows of a table that a block works on."""

    table: int
    """Its number."""
    rows: npt.NDArray[np.int32]
    """All of them, at all places where they are used: changed to spare rows where there are copies."""


@dataclass(frozen=True)
class Plan:
    """What a block will do: the rows that it touches, each table at most once, and all else it needs."""

    touches: Sequence[Touch]
    content: Any


class Blocks(Protocol):
    """A text in blocks, and what is learnt from one of them."""

    tables: Sequence[Table]
    """In exact mode each has `LANES` times as many spare rows as a block can touch."""
    blocks: int
    """In one pass over the text."""
    words: int
    """In one pass over the text."""
    calm: float
    """What the rate times the mean squared length of rows may be at most, or steps overshoot ever further."""

    @property
    def work(self) -> float:
        """Floating-point operations for a word of text, about."""
        ...

    def plan(self, epoch: int, block: int) -> Plan:
        """All that is random in a block, as a function of its place."""
        ...

    def learn(self, plan: Plan, rate: float) -> tuple[float, int]:
        """Learns from a block; returns the sum of the losses of its examples before, and how many there were."""
        ...


@dataclass
class Progress:
    """How far a run is, and what it has seen."""

    done: int = 0
    """Blocks."""
    planned: int = 0
    losses: list[float] = field(default_factory=list)
    """The mean loss of an example in each pass over the text."""
    loss: float = 0.0
    examples: int = 0
    seconds: float = 0.0
    """That it has learnt, those before it was interrupted included."""


def block_size(mode: Mode, words: int) -> int:
    """Words in a block of a text of so many.

    >>> block_size("exact", 100_000_000), block_size("exact", 1_000_000), block_size("exact", 10_000)
    (4000, 2000, 500)
    """
    return next(size for most, size in _BLOCKS[mode] if words <= most)


def run_loop(blocks: Blocks, recipe: SteppedRecipe, rate: float, job: Job) -> Progress:
    """Learns from all blocks that the budget allows, the rate falling in a straight line to nearly nothing."""
    with ThreadPoolExecutor(job.threads) as threads:
        worker = _Exact(blocks, threads, job.threads) if recipe.mode == "exact" else _Fast(blocks, threads)
        state = _resume(blocks, job) or Progress(planned=_plan_length(blocks, recipe, job, worker))
        per_block, began = blocks.words / blocks.blocks, time.monotonic() - state.seconds
        with progress("learning", state.planned * per_block, "words") as advance, patience() as interrupted:
            advance(state.done * per_block)
            while state.done < state.planned:
                numbers = range(state.done, min(_next_stop(state.done, blocks.blocks), state.planned))
                most = _most_rate(blocks)
                _check((), state, job, bounded=most > _LEAST_RATE * rate)
                for loss, examples in worker(numbers, partial(_rate, rate, most, state.planned)):
                    state.loss, state.examples = state.loss + loss, state.examples + examples
                state.done, state.seconds = numbers.stop, time.monotonic() - began
                if job.seconds is not None:  # the plan follows the pace: steps without a rate could not quite tell it
                    state.planned = max(state.done, _affordable(job.seconds, state.seconds / state.done))
                job.text.let_go()
                remark = f"loss {state.loss / max(state.examples, 1):.4f}"
                advance(len(numbers) * per_block, remark, state.planned * per_block)
                stop, ended = interrupted(), state.done % blocks.blocks == 0 or state.done == state.planned
                keeps = _is_to_be_kept(state, job, stop)
                _check(blocks.tables if ended or keeps else (), state, job)  # whole tables: too much for each segment
                if ended:
                    state.losses.append(state.loss / max(state.examples, 1))
                    state.loss, state.examples = 0.0, 0
                if keeps and job.keeper is not None:
                    job.keeper.keep({f"table{n}": table.used for n, table in enumerate(blocks.tables)}, vars(state))
                if stop:
                    raise KeyboardInterrupt
    return state


def _is_to_be_kept(state: Progress, job: Job, now: bool) -> bool:
    """Whether it is time to keep the state, or `now`; never at the end, when the model itself is about to be saved."""
    return job.keeper is not None and state.done < state.planned and (now or job.keeper.due())


def _next_stop(done: int, blocks: int) -> int:
    """The end of the segment that begins at block `done`: segments and passes over the text end together."""
    return min((done // _SEGMENT + 1) * _SEGMENT, (done // blocks + 1) * blocks)


def _rate(first: float, most: float, planned: int, number: int) -> float:
    return min(first * max(1 - number / planned, _LEAST_RATE), most)


def _most_rate(blocks: Blocks) -> float:
    """The highest rate with which learning is calm.

    A step moves a score by about the rate times the squared lengths of its rows, and lengths grow without end: at some
    time steps would leave rows further from where they should be than they were.
    """
    if math.isinf(blocks.calm):
        return math.inf
    return blocks.calm / max(mean_square(blocks.tables), 1e-9)


def _plan_length(blocks: Blocks, recipe: SteppedRecipe, job: Job, worker: Callable[..., Any]) -> int:
    """How many blocks the budget allows: at least one."""
    per_block = blocks.words / blocks.blocks
    if job.tokens is not None:
        return max(1, round(job.tokens / per_block))
    if job.flops is not None:
        return max(1, round(job.flops / (blocks.work * per_block)))
    if job.seconds is None:
        return recipe.epochs * blocks.blocks
    started, done = time.monotonic(), 0
    worker(range(LANES), lambda number: 0.0)  # compiles
    started = time.monotonic()
    while time.monotonic() - started < _calibration(job.seconds):
        numbers = range(done, done + LANES)
        worker(numbers, lambda number: 0.0)  # a rate of zero changes nothing
        done += LANES
    return max(1, _affordable(job.seconds, (time.monotonic() - started) / max(done, 1)))


def _calibration(seconds: float) -> float:
    """How long of a budget of time the pace is measured."""
    return min(_CALIBRATION, 0.1 * seconds)


def _affordable(seconds: float, pace: float) -> int:
    """How many blocks a budget of time allows if each takes `pace` seconds."""
    return int((_SHARE * seconds - _calibration(seconds)) / pace)


def _check(tables: Sequence[Table], state: Progress, job: Job, *, bounded: bool = True) -> None:
    """Raises `TrainingError` if the loss or a number of the tables is infinite or none at all, or all are huge."""
    if bounded and np.isfinite(state.loss) and all(np.isfinite(table.used.sum()) for table in tables):
        return
    kept = (
        "what was kept last, if anything, is in its checkpoint: go on with --resume and"
        if job.keeper is not None
        else "train with"
    )
    share = state.done / state.planned
    raise TrainingError(
        f"the numbers grew without bound after {share:.0%} of the training: {kept} a smaller learning_rate."
    )


def _resume(blocks: Blocks, job: Job) -> Progress | None:
    found = job.keeper.kept() if job.keeper is not None else None
    if found is None:
        return None
    arrays, state = found
    for number, table in enumerate(blocks.tables):
        table.used[:] = arrays[f"table{number}"]
    return Progress(**state)


class _Fast:
    """Blocks go to whichever thread is free."""

    def __init__(self, blocks: Blocks, threads: ThreadPoolExecutor) -> None:
        self.blocks, self.threads = blocks, threads

    def __call__(self, numbers: range, rate: Callable[[int], float]) -> list[tuple[float, int]]:
        def one(number: int) -> tuple[float, int]:
            plan = self.blocks.plan(*divmod(number, self.blocks.blocks))
            return self.blocks.learn(plan, rate(number))

        return list(self.threads.map(one, numbers))


class _Exact:
    """Blocks in rounds of `LANES`: all learn on copies, then all changes are added."""

    def __init__(self, blocks: Blocks, threads: ThreadPoolExecutor, count: int) -> None:
        self.blocks, self.threads, self.count = blocks, threads, count
        self.lanes = [_Lane(blocks, number) for number in range(LANES)]
        self.touching = [np.zeros(table.rows, dtype=np.uint8) for table in blocks.tables]
        self.places = [np.zeros(table.rows, dtype=np.float64) for table in blocks.tables]

    def __call__(self, numbers: range, rate: Callable[[int], float]) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = []
        for begin in range(numbers.start, numbers.stop, LANES):
            found += self._round(range(begin, min(begin + LANES, numbers.stop)), rate(begin))
        return found

    def _round(self, numbers: range, rate: float) -> list[tuple[float, int]]:
        lanes = self.lanes[: len(numbers)]
        found = list(self.threads.map(lambda lane, number: lane.learn(number, rate), lanes, numbers))
        # Without a rate it is only for the time: lanes that are merged one by one leave all as it was, to the last bit.
        for together in [lanes] if rate > 0 else [[lane] for lane in lanes]:
            list(self.threads.map(partial(self._merge, together, rate), range(self.count)))
        return found

    def _merge(self, lanes: Sequence[_Lane], rate: float, part: int) -> None:
        for number, table in enumerate(self.blocks.tables):
            sums, pull = (self.touching[number], self.places[number]), rate * table.pull
            each = [(lane.touched[number], lane.counts[number], lane) for lane in lanes]
            for rows, count, lane in each:
                count_lanes(rows, lane.often[number], count, part, self.count, *sums)
            for rows, count, lane in each:
                merge_rows(table.flat, rows, count, table.stride, lane.first[number], part, self.count, *sums, pull)
            for rows, count, _ in each:
                clear_places(rows, count, part, self.count, self.places[number])


class _Lane:
    """One block of a round, with its share of the spare rows."""

    def __init__(self, blocks: Blocks, number: int) -> None:
        self.blocks = blocks
        self.slots = [np.full(table.rows, -1, dtype=np.int32) for table in blocks.tables]
        self.first = [table.rows + number * (table.spare // LANES) for table in blocks.tables]
        self.touched = [np.empty(table.spare // LANES, dtype=np.int32) for table in blocks.tables]
        self.often = [np.empty(table.spare // LANES, dtype=np.int32) for table in blocks.tables]
        self.counts = [0] * len(blocks.tables)

    def learn(self, number: int, rate: float) -> tuple[float, int]:
        """Plans a block, copies the rows that it touches, and learns."""
        plan = self.blocks.plan(*divmod(number, self.blocks.blocks))
        self.counts = [0] * len(self.blocks.tables)
        for number, rows in plan.touches:
            table, first, touched = self.blocks.tables[number], self.first[number], self.touched[number]
            self.counts[number] = localise(rows, first, self.slots[number], touched, self.often[number])
            copy_rows(table.flat, touched, self.counts[number], table.stride, first)
        return self.blocks.learn(plan, rate)
