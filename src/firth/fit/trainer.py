"""The trainer of networks, for training objectives and for tasks."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch.optim import Optimizer

from firth.cores import cores, free_cores
from firth.errors import reading
from firth.fit.loop import (
    PREFETCH,
    BatchSource,
    TrainingModule,
    optimizer_step,
    prefetch,
    step_batches,
    weighted_sum,
)
from firth.fit.optimisers import optimiser_arrays, reset_state, restore_optimiser
from firth.fit.schedules import lr_factor
from firth.memory import retain_freed_memory
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.training import Arrays, Checkpoint, StepResult, Trainer


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


@dataclass(kw_only=True)
class NetTrainer(Trainer):
    """A run that trains a network."""

    notes_changes: ClassVar[bool] = True

    lr_field: str = "learning.lr"
    recipe: NetRecipe
    seed: int
    vocabulary: Vocabulary
    """The vocabulary with the counts of the training text."""
    module: TrainingModule
    optimiser: Optimizer
    batches: BatchSource
    threads: int | None
    """The number of threads asked for; None: any."""

    def steps(self) -> Generator[StepResult]:
        """Optimisation steps on batches that another thread prefetches."""
        module, plan, state, learning = self.module, self.plan, self.state, self.recipe.learning
        with closing(prefetch(step_batches(self.batches, module, self.recipe, plan, state), PREFETCH)) as batches:
            for given in batches:
                done, more = plan.amount(state), plan.amount(given)
                if state.step and done + more / 2 > plan.total:  # as close to the plan as whole steps allow
                    return
                reset_state(self.optimiser, module.on_progress(done / plan.total))
                lr = self.lr * lr_factor(learning.schedule, done + more / 2, plan.total, learning.warmup)
                losses, norm = optimizer_step(
                    module, self.optimiser, given.parts, learning.clip, lr, self.seed, state.step
                )
                state.step += 1
                state.tokens += given.tokens
                state.flops += given.flops
                state.epoch, state.row = given.cursor.epoch, given.cursor.row
                yield StepResult(losses, lr, norm)

    def arrays(self) -> Arrays:
        """All parameters and buffers."""
        return self.module.arrays()

    def load_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Load what `arrays` returned."""
        self.module.restore(arrays)

    def weigh(self, losses: Mapping[str, float]) -> float:
        """The mean losses, multiplied by the weights of their objectives."""
        return weighted_sum(losses, self.module.weights())

    def checkpoint(self) -> Checkpoint:
        """What is saved: also the optimiser's state and the number of threads."""
        arrays, state = super().checkpoint()
        return arrays | optimiser_arrays(self.optimiser, self.module), state | {"threads": torch.get_num_threads()}

    def restore(self, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint, with as many threads."""
        super().restore(arrays, state)
        with reading("the checkpoint", "remove it and train again"):
            restore_optimiser(self.optimiser, self.module, arrays)
            before = int(state["threads"])
        if self.threads is None and before <= cores():
            torch.set_num_threads(before)  # `torch_settings` restores the number at the end
        if before != (threads := torch.get_num_threads()):
            note(f"this run began with {before} threads: with {threads} the last digits may differ.")
