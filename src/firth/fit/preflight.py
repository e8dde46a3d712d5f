"""Planning: the training speed of the machine, and how much training fits the budget."""

from __future__ import annotations

import copy
import math
import resource
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import NamedTuple

import torch

from firth.errors import BudgetError, TrainingError
from firth.fit.loop import (
    PREFETCH,
    BatchSource,
    TrainingModule,
    optimizer_step,
    prefetch,
    step_batches,
)
from firth.fit.optimisers import make_optimiser
from firth.fit.run import Budget
from firth.nets.recipe import NetRecipe
from firth.training import TrainingPlan, TrainingState, affordable

_MAX_SECONDS = 20.0  # of measuring
_BUDGET_FRACTION = 0.1  # of a time budget that measuring may take
_RUN_FRACTION = 0.03  # of a run without a time budget
_LONG_STEP = 1.0  # seconds; a longer first step is not measured again


class Throughput(NamedTuple):
    """The measured training speed."""

    seconds: float
    tokens: int
    flops: float
    steps: int

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def make_plan(
    module: TrainingModule,
    batches: BatchSource,
    recipe: NetRecipe,
    budget: Budget | None,
    seed: int,
    *,
    most: float = math.inf,
    spent: float = 0.0,
) -> tuple[TrainingPlan, Throughput]:
    """The training plan of a budget, or of the recipe's epochs, and the measured throughput.

    Without a budget the plan has at most `most` tokens, so that it is the same on every machine. `spent` seconds of a
    time budget are used already. The module is not changed.
    """
    began = time.monotonic() - spent
    whole = min(recipe.learning.epochs * batches.tokens, most)

    def wanted(throughput: Throughput) -> float:
        """Tokens, unless there is a time budget."""
        if budget is None or budget.unit == "seconds":
            return whole
        if budget.unit == "tokens":
            return budget.amount
        return budget.amount * throughput.tokens / throughput.flops if throughput.flops else 0.0

    def enough(throughput: Throughput, elapsed: float) -> bool:
        if budget is not None and budget.seconds is not None:
            return elapsed >= min(_MAX_SECONDS, _BUDGET_FRACTION * budget.seconds)
        return elapsed >= min(_MAX_SECONDS, _RUN_FRACTION * wanted(throughput) / throughput.speed)

    throughput = measure(module, batches, recipe, seed, enough)
    if budget is not None and budget.unit == "flops" and not throughput.flops:
        raise BudgetError("looking up a table takes no FLOPs to speak of: give the budget in time or tokens.")
    tokens = wanted(throughput)
    if budget is not None and budget.seconds is not None:
        tokens = max(affordable(throughput.speed, budget.seconds, time.monotonic() - began), 1.0)
    plan = TrainingPlan("tokens", tokens, round(tokens), seconds=budget.seconds if budget else None)
    if budget is not None and budget.flops is not None:
        plan.unit, plan.total = "flops", budget.flops
    plan.short = recipe.learning.short_phase * plan.total
    return plan, throughput


def measure(
    module: TrainingModule,
    batches: BatchSource,
    recipe: NetRecipe,
    seed: int,
    enough: Callable[[Throughput, float], bool],
) -> Throughput:
    """The throughput of steps of a copy of the module, until `enough`; the first step counts only if it is alone."""
    scratch = copy.deepcopy(module)
    optimiser = make_optimiser(recipe.learning, scratch, 0.0)
    endless = TrainingPlan("tokens", float("inf"), 0)
    with closing(prefetch(step_batches(batches, scratch, recipe, endless, TrainingState()), PREFETCH)) as prefetched:
        given = next(prefetched)  # also builds the sequences
        began = started = time.monotonic()
        seconds, tokens, flops = 0.0, 0, 0.0
        for step in count():
            try:
                optimizer_step(scratch, optimiser, given.parts, recipe.learning.clip, 0.0, seed, step)
            except TrainingError as error:  # nothing was learned yet, so a smaller learning rate is no remedy
                raise TrainingError(f"{error}: set smaller weights of the objectives, such as 1.") from None
            now = time.monotonic()
            seconds, tokens, flops = seconds + now - started, tokens + given.tokens, flops + given.flops
            throughput = Throughput(max(seconds, 1e-9), max(tokens, 1), flops, max(step, 1))  # a text may be empty
            if enough(throughput, now - began) and (step or seconds > _LONG_STEP):
                return throughput
            if step == 0:
                seconds, tokens, flops = 0.0, 0, 0.0
            started = time.monotonic()
            given = next(prefetched)
    raise AssertionError("batches never end")


def describe(plan: TrainingPlan, throughput: Throughput, module: TrainingModule, text: int) -> str:
    """A summary of the size and the expected cost of a run."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    threads = torch.get_num_threads()
    seconds = plan.seconds or plan.tokens / throughput.speed
    steps = max(1, round(plan.tokens / (throughput.tokens / throughput.steps)))
    flops = plan.tokens * throughput.flops / throughput.tokens
    return (
        f"{parameters:,} parameters, about {expected_memory(module) >> 20:,} MB of memory; "
        + f"{throughput.speed:,.0f} tokens/s"
        + (f" ({throughput.flops / throughput.seconds / 1e9:.0f} GFLOP/s)" if flops else "")
        + f" with {threads} thread{'s' if threads > 1 else ''}"
        + f"\n{plan.tokens:,} tokens ({plan.tokens / text:.2g} epochs) in {steps:,} steps, "
        + (f"{flops:.1e} FLOPs, " if flops else "")
        + f"about {show_seconds(seconds)}"
    )


def expected_memory(module: TrainingModule) -> int:
    """Bytes of the whole process: the peak of measuring without the copy of the module."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak - sum(parameter.nbytes for parameter in module.parameters())


def show_seconds(seconds: float) -> str:
    """A readable duration.

    >>> show_seconds(5), show_seconds(200), show_seconds(9000)
    ('5 s', '3 min 20 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
