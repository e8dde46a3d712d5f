"""A session of learning: it goes on until the plan is fulfilled, validates, and keeps its state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import Optimizer

from firth.cores import cores
from firth.errors import TrainingError
from firth.fit.checkpoints import Checkpoints
from firth.fit.curves import MetricsFile
from firth.fit.loop import AHEAD, Learner, Plan, Source, State, Step, ahead, learn, supplies
from firth.fit.optimisers import optimiser_arrays, restore_optimiser
from firth.fit.preflight import Watch
from firth.nets.batch import Batch
from firth.nets.heap import keep_memory
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import note, patience, progress

Arrays = dict[str, npt.NDArray[Any]]

_RECORDS = 200  # lines of metrics in a run, about


@contextmanager
def machine(threads: int | None) -> Iterator[None]:
    """So many threads, sums always in the same order, memory kept between steps; afterwards as it was."""
    keep_memory()
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.set_num_threads(cores(threads))
    torch.set_deterministic_debug_mode("error")
    memory.fill_uninitialized_memory = False  # nothing reads it, and filling takes time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
        memory.fill_uninitialized_memory = filled


@dataclass
class Session:
    """A run that is going on."""

    recipe: NetRecipe
    seed: int
    vocabulary: Vocabulary
    """Of the text that is learnt from."""
    learner: Learner
    optimiser: Optimizer
    batches: Source
    plan: Plan
    state: State
    keeper: Checkpoints | None
    file: MetricsFile
    threads: int
    began: float
    """When it would have, had it never been interrupted."""
    examine: Callable[[], dict[str, Any]] | None = None
    """What is found on held-out text: `valid_loss` is to become small."""
    valid: Sequence[Batch] = ()
    """Held-out text, where losses are all that is looked at."""
    validations: int = 20
    """In a run, about."""
    keep_best: bool = False
    """The parameters that were best in validation are those that stay."""
    best: Arrays = field(default_factory=dict)
    """The parameters that were best in validation."""

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        assert isinstance(self.recipe.learning.rate, float | int)
        return self.recipe.learning.rate

    @property
    def elapsed(self) -> float:
        """Seconds of the run, those before it was interrupted included."""
        return time.monotonic() - self.began

    def share(self, parts: int) -> int:
        """How many of so many equal parts of the plan are done."""
        return int(parts * self.plan.amount(self.state) / self.plan.total)

    def learn(self) -> None:
        """Learns until the plan is fulfilled or validation has shown no progress for too long."""
        self.file.begin(self.state.records)
        try:
            self._learn()
            self._finish()
        except TrainingError as error:
            raise TrainingError(f"{error}: {self._remedy()}") from None
        if self.best:
            self.learner.restore(self.best)

    def _learn(self) -> None:
        made = supplies(self.batches, self.learner, self.recipe, self.plan, self.state)
        watch = Watch()
        with (
            closing(ahead(made, AHEAD)) as supply,
            progress("learning", self.plan.tokens, "tokens") as advance,
            patience() as interrupted,
        ):
            advance(self.state.tokens)
            shares = self.share(_RECORDS), self.share(self.validations)
            for step in self._steps(supply):
                total = self.plan.total * self.state.tokens / self.plan.amount(self.state)
                advance(step.tokens, f"loss {step.loss:.3f}", total)
                before, shares = shares, (self.share(_RECORDS), self.share(self.validations))
                if shares != before:
                    self._record(step, validated=shares[1] != before[1])
                if watch.look(self.plan, self.plan.amount(self.state), self.elapsed) and self.plan.changed == 1:
                    note("the machine is faster or slower than measured: the plan is changed to end in time")
                stop = interrupted()
                if self.keeper is not None and (stop or self.keeper.due()):
                    self.keep()
                if stop:
                    raise KeyboardInterrupt
                if self.recipe.learning.patience and self.state.waited >= self.recipe.learning.patience:
                    note(f"no progress in {self.state.waited} validations: the best state is kept")
                    return

    def _steps(self, supply: Iterator[Any]) -> Iterator[Step]:
        """Learns; after each step its losses are added up."""
        steps = learn(
            self.learner, self.optimiser, supply, self.plan, self.state, self.recipe.learning, self.rate, self.seed
        )
        for step in steps:
            for name, (total, count) in step.losses.items():
                sums = self.state.sums.setdefault(name, [0.0, 0])
                self.state.sums[name] = [sums[0] + total, sums[1] + count]
            yield step

    def _finish(self) -> None:
        """The last record, with validation."""
        if not self.state.records or self.state.records[-1]["step"] < self.state.step:
            self._record(None, validated=True)
        elif self.examine and "valid_loss" not in self.state.records[-1]:
            self.state.records[-1] |= self._validate()

    def _record(self, step: Step | None, *, validated: bool) -> None:
        """Notes how it goes: the mean losses since the last time and, if asked for, those on held-out text."""
        state, last = self.state, self.state.records[-1] if self.state.records else {"tokens": 0, "seconds": 0.0}
        losses = {name: total / count for name, (total, count) in state.sums.items() if count}
        seconds = self.elapsed
        record = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(seconds, 3),
            "flops": state.flops,
            "passes": round(state.tokens / self.batches.tokens, 4),
            "loss": sum(losses.values()) if losses else None,
            "losses": losses,
            "rate": step.rate if step else None,
            "gradient_norm": step.norm if step else None,
            "tokens_per_second": round((state.tokens - last["tokens"]) / max(seconds - last["seconds"], 1e-9), 1),
        }
        if validated and self.examine:
            record |= self._validate()
        state.sums = {}
        state.records.append(record)
        self.file.append(record)

    def _validate(self) -> dict[str, Any]:
        """What held-out text shows; remembers the parameters if they are the best so far."""
        assert self.examine is not None
        found = self.examine()
        loss = found["valid_loss"]
        if not math.isfinite(loss):
            raise TrainingError(f"the loss on held-out text is infinite after step {self.state.step}")
        better = self.state.best is None or loss < self.state.best
        self.state.waited = 0 if better else self.state.waited + 1
        if self.keep_best and (better or loss == self.state.best):  # of equals the one that has learnt longer
            self.best = {name: array.copy() for name, array in self.learner.arrays().items()}
        if better:
            self.state.best = loss
        return found

    def keep(self) -> None:
        """Writes all that is needed to go on; refuses to if a parameter is infinite."""
        assert self.keeper is not None
        arrays = self.learner.arrays()
        if not all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"):
            raise TrainingError(f"a parameter is infinite after step {self.state.step}")
        arrays |= optimiser_arrays(self.optimiser, self.learner)
        arrays |= {f"best.{name}": array for name, array in self.best.items()}
        self.state.seconds = self.elapsed
        state = {"plan": asdict(self.plan), "state": asdict(self.state), "threads": self.threads}
        self.keeper.keep(arrays, state)

    def take_up(self, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Goes on with what was kept."""
        self.plan, self.state = Plan(**state["plan"]), State(**state["state"])
        self.learner.restore(arrays)
        restore_optimiser(self.optimiser, self.learner, arrays)
        self.best = {
            name.removeprefix("best."): np.array(array) for name, array in arrays.items() if name.startswith("best.")
        }
        self.began = time.monotonic() - self.state.seconds
        if state["threads"] != self.threads:
            note(f"this run began with {state['threads']} threads: with {self.threads} the last digits will differ.")

    def _remedy(self) -> str:
        smaller = f"learning.rate={self.rate / 2:.2g}"
        if self.keeper is None:
            return f"train with --set {smaller}, say."
        return f"go on from the last good state with --resume --set {smaller}, say."
