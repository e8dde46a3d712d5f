"""Before a run and during it: how fast the machine is, and how much can be learnt within the budget."""

from __future__ import annotations

import copy
import math
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import NamedTuple

from firth.errors import BudgetError
from firth.fit.budget import Budget
from firth.fit.loop import AHEAD, Learner, Plan, Source, State, ahead, supplies, take_step
from firth.fit.optimisers import make_optimiser
from firth.nets.recipe import NetRecipe

_LONGEST = 20.0  # seconds of measuring
_SHARE = 0.1  # of a budget of time that measuring may take
_SHARE_OF_RUN = 0.03  # of a run without one
_LONG_STEP = 1.0  # seconds of a first step that is not measured again
_AIM, _LOW, _HIGH = 0.985, 0.96, 1.01  # of a budget of time: what is planned, and between what the plan is left alone
_WINDOW = 0.2  # share of a budget of time over which the speed is taken


class Pace(NamedTuple):
    """What a machine makes of a recipe."""

    seconds: float
    """That steps took."""
    tokens: int
    """That they learnt from."""
    flops: float
    steps: int

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def make_plan(
    learner: Learner,
    batches: Source,
    recipe: NetRecipe,
    budget: Budget | None,
    seed: int,
    *,
    most: float = math.inf,
    spent: float = 0.0,
) -> tuple[Plan, Pace]:
    """How much is to be learnt, by the budget or the passes that the recipe asks for, and the pace that was measured.

    Without a budget it is `most` tokens at most, so that the plan is the same on every machine; of a budget of time
    `spent` seconds are gone already. The learner is left as it was.
    """
    began = time.monotonic() - spent
    whole = min(recipe.learning.epochs * batches.tokens, most)

    def wanted(pace: Pace) -> float:
        """Tokens, where time does not decide."""
        if budget is None or budget.unit == "seconds":
            return whole
        if budget.unit == "tokens":
            return budget.amount
        return budget.amount * pace.tokens / pace.flops if pace.flops else 0.0

    def enough(pace: Pace, elapsed: float) -> bool:
        if budget is not None and budget.seconds is not None:
            return elapsed >= min(_LONGEST, _SHARE * budget.seconds)
        return elapsed >= min(_LONGEST, _SHARE_OF_RUN * wanted(pace) / pace.speed)

    pace = measure(learner, batches, recipe, seed, enough)
    if budget is not None and budget.unit == "flops" and not pace.flops:
        raise BudgetError("looking up a table takes no FLOPs to speak of: give the budget in time or tokens.")
    tokens = wanted(pace)
    if budget is not None and budget.seconds is not None:
        tokens = max(pace.speed * (_AIM * budget.seconds - (time.monotonic() - began)), 1.0)
    plan = Plan("tokens", tokens, round(tokens), seconds=budget.seconds if budget else None)
    if budget is not None and budget.flops is not None:
        plan.unit, plan.total = "flops", budget.flops
    plan.short = recipe.learning.short * plan.total
    return plan, pace


def measure(
    learner: Learner, batches: Source, recipe: NetRecipe, seed: int, enough: Callable[[Pace, float], bool]
) -> Pace:
    """The pace of real steps of a scratch copy, until it is `enough`; the first counts only if there is no other."""
    scratch = copy.deepcopy(learner)
    optimiser = make_optimiser(recipe.learning, scratch, 0.0)
    endless = Plan("tokens", float("inf"), 0)
    with closing(ahead(supplies(batches, scratch, recipe, endless, State()), AHEAD)) as supply:
        given = next(supply)  # which lays out the text
        began = started = time.monotonic()
        seconds, tokens, flops = 0.0, 0, 0.0
        for step in count():
            take_step(scratch, optimiser, given.parts, recipe.learning.clip, 0.0, seed, step)
            now = time.monotonic()
            seconds, tokens, flops = seconds + now - started, tokens + given.tokens, flops + given.flops
            pace = Pace(max(seconds, 1e-9), tokens, flops, max(step, 1))
            if enough(pace, now - began) and (step or seconds > _LONG_STEP):
                return pace
            if step == 0:
                seconds, tokens, flops = 0.0, 0, 0.0
            started = time.monotonic()
            given = next(supply)
    raise AssertionError("batches never end")


def describe(plan: Plan, pace: Pace, learner: Learner, text: int) -> str:
    """What a run will cost, for the person who waits for it."""
    parameters = sum(parameter.numel() for parameter in learner.parameters())
    seconds = plan.seconds or plan.tokens / pace.speed
    steps = max(1, round(plan.tokens / (pace.tokens / pace.steps)))
    work = plan.tokens * pace.flops / pace.tokens
    return (
        f"{parameters:,} parameters, about {expected_memory(learner) >> 20:,} MB of memory; {pace.speed:,.0f} tokens/s"
        + (f" ({pace.flops / pace.seconds / 1e9:.0f} GFLOP/s)" if work else "")
        + f"\n{plan.tokens:,} tokens ({plan.tokens / text:.2g} passes over the text) in {steps:,} steps, "
        + (f"{work:.1e} FLOPs, " if work else "")
        + f"about {show_seconds(seconds)}"
    )


def expected_memory(learner: Learner) -> int:
    """Bytes of the whole program: what measuring took at most, without the copy that was made for it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak - sum(parameter.nbytes for parameter in learner.parameters())


def show_seconds(seconds: float) -> str:
    """A time for people to read.

    >>> show_seconds(5), show_seconds(200), show_seconds(9000)
    ('5 s', '3 min 20 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Watch:
    """Changes the plan of a run that would end too late or too early for its budget of time."""

    def __init__(self) -> None:
        self.marks: deque[tuple[float, float]] = deque()

    def look(self, plan: Plan, done: float, elapsed: float) -> bool:
        """Whether the plan had to be changed, so much being done after so many seconds."""
        if plan.seconds is None:
            return False
        self.marks.append((elapsed, done))
        window = _WINDOW * plan.seconds
        while len(self.marks) > 2 and elapsed - self.marks[1][0] > window:
            self.marks.popleft()
        began, before = self.marks[0]
        if elapsed - began < 0.1 * window:
            return False
        speed = (done - before) / (elapsed - began)
        end = elapsed + (plan.total - done) / speed
        if _LOW * plan.seconds <= end <= _HIGH * plan.seconds:
            return False
        plan.total = done + max(speed * (_AIM * plan.seconds - elapsed), 0.0)
        plan.changed += 1
        return True
