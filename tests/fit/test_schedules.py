"""Learning rates: against the formulas of the papers and against another implementation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from transformers.optimization import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from firth.fit.schedules import SCHEDULES, auto_lr, lr_factor
from firth.nets.recipe import LearningRecipe
from firth.recipes.nets import SIZES, bert, ffnn, gpt, lbl, lstm, resize, xu_bigram

PLANNED, WARMUP = 1000, 100


def factors(schedule: str, warmup: float = WARMUP / PLANNED) -> list[float]:
    return [lr_factor(schedule, step, PLANNED, warmup) for step in range(PLANNED + 1)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_rises_to_one_and_never_above(schedule: str) -> None:
    found = factors(schedule)
    assert max(found) == found[WARMUP] == 1.0
    assert all(found[step] < found[step + 1] for step in range(WARMUP))
    assert all(found[step] >= found[step + 1] for step in range(WARMUP, PLANNED))
    assert lr_factor(schedule, 3 * PLANNED, PLANNED, 0.1) == found[-1]  # past its end


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_unit_does_not_matter(schedule: str) -> None:
    for step in (0, 7, 100, 433, 1000):
        tokens = lr_factor(schedule, 4096 * step, 4096 * PLANNED, 0.1)
        assert math.isclose(tokens, lr_factor(schedule, step, PLANNED, 0.1), abs_tol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_warm_up_it_begins_at_the_top(schedule: str) -> None:
    found = factors(schedule, warmup=0.0)
    assert all(math.isfinite(one) for one in found)
    assert found[0] == (0.0 if schedule == "inverse-sqrt" else 1.0)


def test_linear_and_cosine_are_those_of_another_library() -> None:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    for name, make in (("linear", get_linear_schedule_with_warmup), ("cosine", get_cosine_schedule_with_warmup)):
        other = make(optimiser, WARMUP, PLANNED).lr_lambdas[0]
        assert factors(name) == pytest.approx([other(step) for step in range(PLANNED + 1)], abs=1e-12)


def test_the_transformers_formula() -> None:
    """d^-0.5 min(s^-0.5, s w^-1.5), brought to a highest value of one."""
    peak = 512**-0.5 * WARMUP**-0.5
    expected = [512**-0.5 * min(step**-0.5, step * WARMUP**-1.5) / peak for step in range(1, PLANNED + 1)]
    assert factors("inverse-sqrt")[1:] == pytest.approx(expected, rel=1e-12)


def test_the_slanted_triangle() -> None:
    """Howard and Ruder 2018, equation 3, with a ratio of 32."""
    share, ratio = 0.1, 32
    cut = math.floor(PLANNED * share)
    expected = []
    for t in range(PLANNED + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / share - 1))
        expected.append((1 + p * (ratio - 1)) / ratio)
    assert factors("slanted") == pytest.approx(expected, rel=1e-9)
    assert factors("slanted")[-1] == pytest.approx(1 / 32)


def test_stable_decay_and_constant() -> None:
    stable = factors("stable-decay")
    assert stable[WARMUP : 800 + 1] == pytest.approx([1.0] * 701)
    assert stable[900] == pytest.approx(0.5)
    assert stable[1000] == 0
    assert factors("constant")[WARMUP:] == [1.0] * 901


def test_rates_fall_with_width() -> None:
    rates = [auto_lr(resize(gpt(), size)) for size in SIZES]
    assert rates == sorted(rates, reverse=True)
    assert 1e-4 <= rates[-1] <= 3e-4
    assert auto_lr(resize(lstm(), "tiny")) > auto_lr(lstm()) > 1e-3
    assert auto_lr(xu_bigram()) > auto_lr(lbl()) > auto_lr(ffnn())
    lamb = replace(bert(), learning=LearningRecipe(optimiser="lamb"))
    assert auto_lr(lamb) > auto_lr(bert())
    assert auto_lr(replace(lstm(), learning=LearningRecipe(optimiser="sgd"))) == 1.0
    assert auto_lr(replace(lstm(), learning=LearningRecipe(optimiser="adagrad"))) < 0.1
