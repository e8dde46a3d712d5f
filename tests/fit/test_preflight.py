"""Preflight: nothing is changed by it, and what it plans is what was asked for."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
import torch

from firth.errors import BudgetError
from firth.fit import preflight, resolve, trainer
from firth.fit.cost import training_cost
from firth.fit.loop import optimizer_step
from firth.fit.preflight import Throughput, describe, expected_memory, make_plan, measure
from firth.fit.run import Budget
from firth.nets.recipe import OutputRecipe
from firth.training import TrainingPlan
from tests.fit.small_nets import make_run, masked, open_small, parameters, same, small, trained


def planned(budget: str | None, **changes: object) -> tuple[TrainingPlan, Throughput]:
    trainer = open_small(small(**changes), make_run(budget="1tok"))
    return make_plan(trainer.module, trainer.batches, trainer.recipe, Budget.parse(budget) if budget else None, 0)


def test_measuring_changes_nothing() -> None:
    trainer = open_small(masked(), make_run(budget="2ktok"))
    before = parameters(trainer)
    paces: list[Throughput] = []

    def enough(throughput: Throughput, elapsed: float) -> bool:
        paces.append(throughput)
        return len(paces) == 6

    throughput = measure(trainer.module, trainer.batches, trainer.recipe, 0, enough)
    assert same(before, parameters(trainer))
    assert all(parameter.grad is None for parameter in trainer.module.parameters())
    assert trainer.optimiser.state == {}
    assert throughput.steps == 5, "the first step is not to count"
    assert paces[0].steps == 1
    assert throughput.tokens > 4 * paces[0].tokens / 2
    other = open_small(masked(), make_run(budget="2ktok"))
    assert same(parameters(trained(trainer)), parameters(trained(other)))


def test_plans_for_tokens_flops_and_epochs() -> None:
    plan, _ = planned("5ktok")
    assert (plan.unit, plan.total, plan.tokens, plan.seconds) == ("tokens", 5000, 5000, None)
    plan, throughput = planned("3e8flop")
    assert (plan.unit, plan.total) == ("flops", 3e8)
    assert plan.tokens == round(3e8 * throughput.tokens / throughput.flops)
    plan, _ = planned(None, epochs=4)
    trainer = open_small(small(), make_run(budget="1tok"))
    assert plan.total == 4 * trainer.batches.tokens
    assert planned("5ktok", short_phase=0.25)[0].short == 1250


def test_a_run_without_a_budget_is_ten_minutes_of_an_ordinary_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of this one: the plan must not depend on what else it does just now."""
    monkeypatch.setattr(preflight, "_MAX_SECONDS", 0.1)
    plans = []
    for slow in (False, True):
        if slow:
            monkeypatch.setattr(
                preflight, "optimizer_step", lambda *given: (time.sleep(0.05), optimizer_step(*given))[1]
            )
        trainer = open_small(small(epochs=1_000_000), make_run(budget=None))
        plans.append(trainer.plan.total)
    flops = training_cost(trainer.recipe, trainer.vocabulary).flops
    assert flops == trainer.module.expected_flops()
    assert plans == [600 / (flops / resolve._FLOPS + resolve._OVERHEAD)] * 2
    asked = make_plan(trainer.module, trainer.batches, trainer.recipe, None, 0)[0]
    assert asked.total == 1_000_000 * trainer.batches.tokens


def test_a_table_has_no_operations_to_count() -> None:
    recipe = replace(small(), embedding=replace(small().embedding, positions="none"))
    recipe = replace(recipe, encoder=replace(recipe.encoder, kind="none", layers=0), output=OutputRecipe(kind="direct"))
    with pytest.raises(BudgetError, match="time or tokens"):
        open_small(recipe, make_run(budget="1e9flop"))


def test_a_plan_for_time() -> None:
    plan, throughput = planned("3s")
    assert plan.seconds == 3
    assert 0.5 * 3 * throughput.speed < plan.tokens < 3 * throughput.speed


def test_the_expected_cost_is_described() -> None:
    trainer = open_small(small(), make_run(budget="1tok"))
    summary = describe(TrainingPlan("tokens", 4000, 4000), Throughput(2.0, 1000, 5e9, 10), trainer.module, 2000)
    assert re.search(
        r"^[\d,]+ parameters, about [\d,]+ MB of memory; 500 tokens/s \(2 GFLOP/s\) with \d+ threads?\n", summary
    )
    assert "4,000 tokens (2 epochs) in 40 steps, 2.0e+10 FLOPs, about 8 s" in summary
    assert 50 << 20 < expected_memory(trainer.module) < 64 << 30
    summary = describe(TrainingPlan("tokens", 4000, 4000), Throughput(2.0, 1000, 0.0, 10), trainer.module, 2000)
    assert "FLOP" not in summary, "a table of vectors is looked up"


def test_fewer_threads_than_cores_are_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trainer, "cores", lambda: 4)
    monkeypatch.setattr(trainer, "free_cores", lambda: 2)
    before = torch.get_num_threads()
    for asked, expected in ((None, 2), (3, 3)):
        with trainer.torch_settings(asked):
            assert torch.get_num_threads() == expected
            trainer.note_threads(asked)
    assert torch.get_num_threads() == before
    expected_note = "other programs are busy: 2 of 4 cores are used; threads sets another number\n"
    assert capsys.readouterr().err == expected_note
