"""The trainer of everything that is trained step by step: networks, tasks and static vectors.

A subclass of `Trainer` takes the steps. What all runs have in common is here: a plan that follows a time budget,
progress, records, validation and early stopping, checkpoints, interrupts, divergence.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, TrainingError, reading
from firth.progress import deferred_interrupts, note, progress
from firth.records import MetricsFile, Record

Arrays = dict[str, npt.NDArray[Any]]
Checkpoint = tuple[Arrays, dict[str, Any]]
"""The arrays and the state of an unfinished run."""

_RECORDS = 200  # approximate number of metrics records in a run
_TARGET, _LOW, _HIGH = 0.985, 0.96, 1.01  # fractions of a time budget: planned, and bounds between adjustments
_WINDOW = 0.2  # fraction of a time budget over which the speed is averaged


class Checkpointer(Protocol):
    """Saves the state of a training run, so that it can be resumed after a crash."""

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""

    def save(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Write a checkpoint atomically."""

    def load(self) -> Checkpoint | None:
        """The last checkpoint, if there is one and the run is to be resumed."""


@dataclass
class TrainingState:
    """The progress of a run: all that a checkpoint holds beside the parameters."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    epoch: int = 0
    row: int = 0
    """The position of the next step in the epoch."""
    seconds: float = 0.0
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Objective -> the sum of its losses and their count since the last record."""
    records: list[Record] = field(default_factory=list)
    first: float | None = None
    """The validation loss before the first step of further training."""
    best: float | None = None
    """The lowest validation loss."""
    waited: int = 0
    """Validations since then."""
    losses: list[float] = field(default_factory=list)
    """The mean loss of each epoch of vectors."""
    epoch_sums: tuple[float, int] = (0.0, 0)
    """The sum of the losses and their count in the epoch that has begun."""

    def end_epoch(self) -> None:
        """Add the mean loss of an epoch."""
        self.losses.append(self.epoch_sums[0] / max(self.epoch_sums[1], 1))
        self.epoch_sums = 0.0, 0


@dataclass
class TrainingPlan:
    """The length of a run, decided before the first step."""

    unit: Literal["tokens", "flops", "step"]
    total: float
    tokens: int
    """Expected number, whatever the unit."""
    short: float = 0.0
    """The part of the total that uses shorter sequences."""
    seconds: float | None = None
    """A time budget: the total is adjusted to the measured speed."""
    changed: int = 0
    """The number of adjustments."""

    @classmethod
    def restored(cls, checkpoint: Checkpoint) -> TrainingPlan:
        """The plan of an unfinished run."""
        with reading("the checkpoint", "remove it and train again"):
            return cls(**checkpoint[1]["plan"])

    def amount(self, of: Any) -> float:
        """The tokens, FLOPs or steps of a state or a step, in the plan's unit."""
        return float(getattr(of, self.unit))


class StepResult(NamedTuple):
    """The metrics of a step."""

    losses: dict[str, tuple[float, int]]
    """Objective -> the sum of its losses in nats, and the number of predictions."""
    lr: float
    norm: float | None = None
    """The norm of the gradient before clipping, if it is computed."""


def copy_arrays(source: Mapping[str, npt.NDArray[Any]], target: Arrays) -> None:
    """Copy arrays of a checkpoint; raises `ArtifactError` if one does not fit."""
    for name, own in target.items():
        if name not in source or source[name].shape != own.shape or source[name].dtype != own.dtype:
            raise ArtifactError(f"{name} is missing or has another shape in the checkpoint: train again.")
        own[...] = source[name]


def affordable(speed: float, seconds: float, elapsed: float) -> float:
    """The amount of work that a time budget leaves after `elapsed` seconds.

    >>> round(affordable(100.0, 10.0, 9.0), 6), affordable(100.0, 10.0, 11.0)
    (85.0, 0.0)
    """
    return max(speed * (_TARGET * seconds - elapsed), 0.0)


class BudgetController:
    """Adjusts the plan of a run that would end too late or too early for its time budget."""

    def __init__(self) -> None:
        self.history: deque[tuple[float, float]] = deque()

    def adjust(self, plan: TrainingPlan, done: float, elapsed: float) -> bool:
        """Whether the plan was adjusted, with the amount `done` after `elapsed` seconds."""
        if plan.seconds is None:
            return False
        self.history.append((elapsed, done))
        window = _WINDOW * plan.seconds
        while len(self.history) > 2 and elapsed - self.history[1][0] > window:
            self.history.popleft()
        began, before = self.history[0]
        if elapsed - began < 0.1 * window:
            return False
        speed = (done - before) / (elapsed - began)
        end = elapsed + (plan.total - done) / speed
        if _LOW * plan.seconds <= end <= _HIGH * plan.seconds:
            return False
        plan.total = done + affordable(speed, plan.seconds, elapsed)
        plan.changed += 1
        return True


@dataclass(kw_only=True)
class Trainer(ABC):
    """A training run in progress."""

    unit: ClassVar[str] = "tokens"
    """What the progress bar counts."""
    notes_changes: ClassVar[bool] = False
    """Whether the user should know that the plan has changed, having seen it."""

    plan: TrainingPlan
    state: TrainingState = field(default_factory=TrainingState)
    lr: float
    """The peak learning rate."""
    lr_field: str = "lr"
    """The field of the recipe that has it."""
    epoch_tokens: int
    """Tokens of an epoch."""
    checkpointer: Checkpointer | None
    file: MetricsFile
    began: float = field(default_factory=time.monotonic)
    """The start time, shifted by the duration of interruptions."""
    evaluate: Callable[[], dict[str, Any]] | None = None
    """Validation metrics; `valid_loss` is to be minimised."""
    validations: int = 20
    """The approximate number in a run."""
    patience: int = 0
    """Validations without progress after which training stops; 0: never."""
    restores_best: bool = False
    """Whether the parameters with the lowest validation loss are restored at the end."""
    best: Arrays = field(default_factory=dict)
    """The parameters with the lowest validation loss."""

    @abstractmethod
    def steps(self) -> Generator[StepResult]:
        """Train until the plan is fulfilled; yields the metrics of each step after updating the state."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """All parameters, sharing their memory."""

    def load_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Load what `arrays` returned."""
        copy_arrays(arrays, self.arrays())

    def weigh(self, losses: Mapping[str, float]) -> float:
        """The loss that is minimised, from the mean losses."""
        return sum(losses.values())

    def checkpoint(self) -> Checkpoint:
        """What is saved."""
        arrays = self.arrays() | {f"best.{name}": array for name, array in self.best.items()}
        return arrays, {"plan": asdict(self.plan), "state": asdict(self.state)}

    @property
    def elapsed(self) -> float:
        """Seconds of training, including those before an interruption."""
        return time.monotonic() - self.began

    def completed(self, parts: int) -> int:
        """How many of `parts` equal parts of the plan are completed."""
        return int(parts * self.plan.amount(self.state) / self.plan.total)

    def train(self) -> None:
        """Train until the plan is fulfilled, or until validation shows no progress within the patience."""
        try:
            self._train()
            self._finish()
        except TrainingError as error:
            raise TrainingError(f"{error}: {self._remedy()}") from None
        if self.best:
            self.load_arrays(self.best)

    def _train(self) -> None:
        controller = BudgetController()
        with (
            closing(self.steps()) as steps,
            progress("training", self.plan.tokens, self.unit) as advance,
            deferred_interrupts() as interrupted,
        ):
            advance(self.state.tokens)
            completed = self.completed(_RECORDS), self.completed(self.validations)
            tokens = self.state.tokens
            for step in steps:
                loss, done = self._add_losses(step), self.plan.amount(self.state)
                total = self.plan.total * self.state.tokens / max(done, 1.0)
                advance(self.state.tokens - tokens, f"loss {loss:.3f}", total)
                tokens = self.state.tokens
                before, completed = completed, (self.completed(_RECORDS), self.completed(self.validations))
                if completed != before:
                    self._record(step, validated=completed[1] != before[1])
                adjusted = controller.adjust(self.plan, done, self.elapsed)
                if adjusted and self.plan.changed == 1 and self.notes_changes:
                    note("the machine is faster or slower than measured: the plan is adjusted to end in time")
                stop = interrupted()
                # Not at the end, unless interrupted: the model itself is about to be saved.
                if self.checkpointer is not None and (stop or (done < self.plan.total and self.checkpointer.due())):
                    self.save()
                if stop:
                    raise KeyboardInterrupt
                if self.patience and self.state.waited >= self.patience:
                    note(f"no progress in {self.state.waited} validations: the best parameters are used")
                    return

    def _add_losses(self, step: StepResult) -> float:
        """Add the losses of a step to those since the last record; returns their weighted mean."""
        for name, (total, count) in step.losses.items():
            sums = self.state.sums.setdefault(name, [0.0, 0])
            self.state.sums[name] = [sums[0] + total, sums[1] + count]
            if not math.isfinite(total):
                raise TrainingError(f"training diverged: the loss is infinite after step {self.state.step}")
        return self.weigh({name: total / count for name, (total, count) in step.losses.items() if count})

    def _finish(self) -> None:
        """Add the last record, with validation."""
        self._check(self.arrays())
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
            "epochs": round(state.tokens / max(self.epoch_tokens, 1), 4),
            "loss": self.weigh(losses) if losses else None,
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
            self.best = {name: array.copy() for name, array in self.arrays().items()}
        if better:
            self.state.best = loss
        return found

    def _check(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise `TrainingError` if a parameter is infinite: a sum is, if one of its terms is."""
        floats = (array for array in arrays.values() if array.dtype.kind == "f")
        with np.errstate(all="ignore"):
            if not all(np.isfinite(array.sum()) for array in floats):
                raise TrainingError(f"training diverged: a parameter is infinite after step {self.state.step}")

    def save(self) -> None:
        """Write a checkpoint; raises `TrainingError` if a parameter is infinite."""
        assert self.checkpointer is not None
        self._check(self.arrays())
        self.state.seconds = self.elapsed
        self.checkpointer.save(*self.checkpoint())
        self.file.begin(self.state.records)

    def restore(self, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        with reading("the checkpoint", "remove it and train again"):
            self.state = TrainingState(**state["state"])
            self.load_arrays(arrays)
        best = {name.removeprefix("best."): array for name, array in arrays.items() if name.startswith("best.")}
        self.best = {name: np.array(array) for name, array in best.items()}
        self.began = time.monotonic() - self.state.seconds
        self.file.begin(self.state.records)

    def _remedy(self) -> str:
        smaller = f"{self.lr_field}={self.lr / 2:.2g}"
        if self.checkpointer is None:
            return f"train with --set {smaller}, say."
        return f"continue from the last checkpoint with --resume --set {smaller}, say."
