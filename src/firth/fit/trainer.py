"""Trainer: runs the loop until the plan is fulfilled, validates, and writes metrics and checkpoints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import Optimizer

from firth.cores import cores, free_cores
from firth.errors import TrainingError, reading
from firth.files import writing
from firth.fit.checkpoints import CheckpointFolder
from firth.fit.loop import (
    PREFETCH,
    BatchSource,
    StepBatches,
    StepResult,
    TrainingModule,
    TrainingPlan,
    TrainingState,
    prefetch,
    step_batches,
    training_steps,
    weighted_sum,
)
from firth.fit.optimisers import optimiser_arrays, restore_optimiser
from firth.fit.preflight import BudgetController
from firth.memory import retain_freed_memory
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.plots import Curve, loss_plot
from firth.progress import deferred_interrupts, note, progress

METRICS = "metrics.jsonl"
CURVE = "curve.svg"
Record = dict[str, Any]


def to_lines(records: Sequence[Record]) -> bytes:
    """The records as JSON, one a line.

    >>> to_lines([{"step": 1, "loss": 2.5}])
    b'{"step": 1, "loss": 2.5}\\n'
    """
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


class MetricsFile:
    """The metrics file of a run in progress, for observers; the checkpoint holds the authoritative records."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / METRICS

    def begin(self, records: Sequence[Record]) -> None:
        """Write the records of the checkpoint; later ones will be measured again."""
        if self.path is not None:
            with writing(self.path):
                self.path.write_bytes(to_lines(records))

    def append(self, record: Record) -> None:
        """Add a line in one write."""
        if self.path is not None:
            with writing(self.path), open(self.path, "ab", buffering=0) as file:
                file.write(to_lines([record]))


def draw_curve(records: Sequence[Record], title: str) -> bytes:
    """An SVG plot of the training and validation loss of each objective over the tokens."""
    return loss_plot(_curves(records, "losses"), _curves(records, "valid_losses"), title)


def _curves(records: Sequence[Record], key: str) -> list[Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        for name, loss in (record.get(key) or {}).items():
            points.setdefault(name, []).append((record["tokens"], loss))
    return [Curve(*item) for item in points.items()]


Arrays = dict[str, npt.NDArray[Any]]

_RECORDS = 200  # approximate number of metrics records in a run


@contextmanager
def torch_settings(threads: int | None) -> Iterator[None]:
    """Deterministic torch with a number of threads, and memory retained between steps; settings are restored.

    By default there are as many threads as cores are free.
    """
    retain_freed_memory()
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.set_num_threads(threads or free_cores())
    torch.set_deterministic_debug_mode("error")
    memory.fill_uninitialized_memory = False  # no operation reads it, and filling takes time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
        memory.fill_uninitialized_memory = filled


def note_threads(asked: int | None) -> None:
    """Note that other programs are busy, if that is why there are fewer threads than cores."""
    if asked is None and (threads := torch.get_num_threads()) < (allowed := cores()):
        note(f"other programs are busy: {threads} of {allowed} cores are used; --threads sets another number")


@dataclass
class Trainer:
    """A training run in progress."""

    recipe: NetRecipe
    seed: int
    vocabulary: Vocabulary
    """The vocabulary with the counts of the training text."""
    module: TrainingModule
    optimiser: Optimizer
    batches: BatchSource
    plan: TrainingPlan
    state: TrainingState
    checkpointer: CheckpointFolder | None
    file: MetricsFile
    threads: int | None
    """The number of threads asked for; None: any."""
    began: float
    """The start time, shifted by the duration of interruptions."""
    evaluate: Callable[[], dict[str, Any]] | None = None
    """Validation metrics; `valid_loss` is to be minimised."""
    validations: int = 20
    """The approximate number in a run."""
    restores_best: bool = False
    """Whether the parameters with the lowest validation loss are restored at the end."""
    best: Arrays = field(default_factory=dict)
    """The parameters with the lowest validation loss."""

    @property
    def lr(self) -> float:
        """The peak learning rate."""
        assert isinstance(self.recipe.learning.lr, float | int)
        return self.recipe.learning.lr

    @property
    def elapsed(self) -> float:
        """Seconds of training, including those before an interruption."""
        return time.monotonic() - self.began

    def completed(self, parts: int) -> int:
        """How many of `parts` equal parts of the plan are completed."""
        return int(parts * self.plan.amount(self.state) / self.plan.total)

    def train(self) -> None:
        """Train until the plan is fulfilled, or until validation shows no progress within the patience."""
        self.file.begin(self.state.records)
        try:
            self._train()
            self._finish()
        except TrainingError as error:
            raise TrainingError(f"{error}: {self._remedy()}") from None
        if self.best:
            self.module.restore(self.best)

    def _train(self) -> None:
        endless = step_batches(self.batches, self.module, self.recipe, self.plan, self.state)
        controller = BudgetController()
        with (
            closing(prefetch(endless, PREFETCH)) as batches,
            progress("training", self.plan.tokens, "tokens") as advance,
            deferred_interrupts() as interrupted,
        ):
            advance(self.state.tokens)
            completed = self.completed(_RECORDS), self.completed(self.validations)
            for step in self._steps(batches):
                total = self.plan.total * self.state.tokens / max(self.plan.amount(self.state), 1.0)
                advance(step.tokens, f"loss {step.loss:.3f}", total)
                before, completed = completed, (self.completed(_RECORDS), self.completed(self.validations))
                if completed != before:
                    self._record(step, validated=completed[1] != before[1])
                if controller.adjust(self.plan, self.plan.amount(self.state), self.elapsed) and self.plan.changed == 1:
                    note("the machine is faster or slower than measured: the plan is adjusted to end in time")
                stop = interrupted()
                if self.checkpointer is not None and (stop or self.checkpointer.due()):
                    self.save()
                if stop:
                    raise KeyboardInterrupt
                if self.recipe.learning.patience and self.state.waited >= self.recipe.learning.patience:
                    note(f"no progress in {self.state.waited} validations: the best parameters are used")
                    return

    def _steps(self, batches: Iterator[StepBatches]) -> Iterator[StepResult]:
        """Training steps, whose losses are summed in the state."""
        steps = training_steps(
            self.module, self.optimiser, batches, self.plan, self.state, self.recipe.learning, self.lr, self.seed
        )
        for step in steps:
            for name, (total, count) in step.losses.items():
                sums = self.state.sums.setdefault(name, [0.0, 0])
                self.state.sums[name] = [sums[0] + total, sums[1] + count]
            yield step

    def _finish(self) -> None:
        """Add the last record, with validation."""
        if not self.state.records or self.state.records[-1]["step"] < self.state.step:
            self._record(None, validated=True)
        elif self.evaluate and "valid_loss" not in self.state.records[-1]:
            self.state.records[-1] |= self._validate()

    def _record(self, step: StepResult | None, *, validated: bool) -> None:
        """Record the mean losses since the last record and, with `validated`, the validation metrics."""
        state, last = self.state, self.state.records[-1] if self.state.records else {"tokens": 0, "seconds": 0.0}
        losses = {name: total / count for name, (total, count) in state.sums.items() if count}
        seconds = self.elapsed
        record = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(seconds, 3),
            "flops": state.flops,
            "epochs": round(state.tokens / self.batches.tokens, 4),
            "loss": weighted_sum(losses, self.module.weights()) if losses else None,
            "losses": losses,
            "rate": step.lr if step else None,
            "gradient_norm": step.norm if step else None,
            "tokens_per_second": round((state.tokens - last["tokens"]) / max(seconds - last["seconds"], 1e-9), 1),
        }
        if validated and self.evaluate:
            record |= self._validate()
        state.sums = {}
        state.records.append(record)
        self.file.append(record)

    def _validate(self) -> dict[str, Any]:
        """Validation metrics; copies the parameters if they are the best so far."""
        assert self.evaluate is not None
        found = self.evaluate()
        loss = found["valid_loss"]
        if not math.isfinite(loss):
            raise TrainingError(f"the validation loss is infinite after step {self.state.step}")
        better = self.state.best is None or loss < self.state.best
        self.state.waited = 0 if better else self.state.waited + 1
        if self.restores_best and (better or loss == self.state.best):  # of equal losses, the later one
            self.best = {name: array.copy() for name, array in self.module.arrays().items()}
        if better:
            self.state.best = loss
        return found

    def save(self) -> None:
        """Write a checkpoint; raises `TrainingError` if a parameter is infinite."""
        assert self.checkpointer is not None
        arrays = self.module.arrays()
        if not all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"):
            raise TrainingError(f"a parameter is infinite after step {self.state.step}")
        arrays |= optimiser_arrays(self.optimiser, self.module)
        arrays |= {f"best.{name}": array for name, array in self.best.items()}
        self.state.seconds = self.elapsed
        state = {"plan": asdict(self.plan), "state": asdict(self.state), "threads": torch.get_num_threads()}
        self.checkpointer.save(arrays, state)

    def restore(self, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        with reading("the checkpoint", "remove it and train again"):
            self.state = TrainingState(**state["state"])
            self.module.restore(arrays)
            restore_optimiser(self.optimiser, self.module, arrays)
        self.best = {
            name.removeprefix("best."): np.array(array) for name, array in arrays.items() if name.startswith("best.")
        }
        self.began = time.monotonic() - self.state.seconds
        before = state["threads"]
        if self.threads is None and before <= cores():
            torch.set_num_threads(before)  # `torch_settings` restores the number at the end
        if before != (threads := torch.get_num_threads()):
            note(f"this run began with {before} threads: with {threads} the last digits may differ.")

    def _remedy(self) -> str:
        smaller = f"learning.lr={self.lr / 2:.2g}"
        if self.checkpointer is None:
            return f"train with --set {smaller}, say."
        return f"continue from the last checkpoint with --resume --set {smaller}, say."
