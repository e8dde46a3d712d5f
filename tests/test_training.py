"""The trainer of everything: steps are recorded, saved, interrupted, validated and stopped in the same way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from firth.errors import ArtifactError, TrainingError
from firth.records import METRICS, MetricsFile, to_lines
from firth.training import (
    Arrays,
    BudgetController,
    StepResult,
    Trainer,
    TrainingPlan,
)
from tests.memory_checkpointer import MemoryCheckpointer


@dataclass(kw_only=True)
class Counter(Trainer):
    """Adds the number of each step to a parameter; a step has ten tokens and the losses 1/step and 2."""

    notes_changes: ClassVar[bool] = True

    values: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    interrupt_at: int = 0
    spoil_at: int = 0
    seconds: float = 0.0

    def steps(self) -> Generator[StepResult]:
        while self.state.tokens < self.plan.total:
            self.state.step += 1
            self.state.tokens += 10
            self.state.flops += 5.0
            self.values += self.state.step
            time.sleep(self.seconds)
            if self.state.step == self.interrupt_at:
                os.kill(os.getpid(), signal.SIGINT)
            loss = 1 / self.state.step
            if self.state.step == self.spoil_at:
                loss = float("nan")
            yield StepResult({"one": (loss, 1), "two": (4.0, 2)}, self.lr)

    def arrays(self) -> Arrays:
        return {"values": self.values}


def counter(
    total: float = 1000, memory: MemoryCheckpointer | None = None, folder: Path | None = None, **others: Any
) -> Counter:
    plan = TrainingPlan("tokens", total, round(total))
    others = {"plan": plan, "lr": 0.5, "epoch_tokens": 200, "began": time.monotonic()} | others
    return Counter(checkpointer=memory, file=MetricsFile(folder), **others)


def timeless(trainer: Counter) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if "second" not in key} for one in trainer.state.records]


def test_records_hold_the_means_since_the_last_one() -> None:
    trainer = counter(total=4000)  # 400 steps, two to a record
    trainer.train()
    assert [one["step"] for one in trainer.state.records] == list(range(2, 401, 2))
    second = timeless(trainer)[1]
    assert second["losses"] == {"one": pytest.approx((1 / 3 + 1 / 4) / 2), "two": 2.0}
    assert second == second | {"tokens": 40, "flops": 20.0, "epochs": 0.2, "rate": 0.5, "gradient_norm": None}
    assert second["loss"] == pytest.approx(sum(second["losses"].values()))


def test_the_last_steps_are_recorded() -> None:
    trainer = counter(total=10**6, patience=1, evaluate=lambda: {"valid_loss": 1.0}, validations=10**5 // 7)
    trainer.train()
    assert trainer.state.step == 15, "the first validation is after eight steps, the second after seven more"
    assert timeless(trainer)[-1]["step"] == 15


def test_an_interrupt_saves_and_the_resumed_run_ends_the_same() -> None:
    whole = counter()
    whole.train()
    memory = MemoryCheckpointer(due=False)
    with pytest.raises(KeyboardInterrupt):
        counter(memory=memory, interrupt_at=37).train()
    (checkpoint,) = memory.states
    assert checkpoint[1]["state"]["step"] == 37
    again = counter(memory=memory, plan=TrainingPlan.restored(checkpoint))
    again.restore(*checkpoint)
    again.train()
    assert timeless(again) == timeless(whole)
    assert np.array_equal(again.values, whole.values)
    assert len(memory.saved) == 1, "none was due"


@pytest.mark.parametrize("step", range(1, 100, 14))
def test_every_checkpoint_continues_to_the_same_end(step: int) -> None:
    memory, whole = MemoryCheckpointer(), counter()
    counter(memory=memory).train()
    whole.train()
    assert len(memory.saved) == 99, "after every step but the last, when the model itself is saved"
    again = counter()
    again.restore(*memory.states[step - 1])
    assert again.state.step == step
    again.train()
    assert timeless(again) == timeless(whole)
    assert np.array_equal(again.values, whole.values)


def test_an_interrupt_in_the_last_step_loses_nothing() -> None:
    memory = MemoryCheckpointer(due=False)
    with pytest.raises(KeyboardInterrupt):
        counter(memory=memory, interrupt_at=100).train()
    again = counter()
    again.restore(*memory.states[-1])
    again.train()
    assert again.state.step == 100


def test_time_before_an_interruption_counts() -> None:
    memory = MemoryCheckpointer()
    counter(memory=memory, began=time.monotonic() - 50).train()
    again = counter()
    again.restore(*memory.states[-1])
    assert 50 <= again.elapsed < 60


def test_the_metrics_file_appears_with_the_first_checkpoint(tmp_path: Path) -> None:
    """Before that, a killed run leaves nothing in the folder that is in its way."""
    trainer = counter(memory=MemoryCheckpointer(due=False), folder=tmp_path)
    trainer.train()
    assert not list(tmp_path.iterdir())
    trainer = counter(memory=MemoryCheckpointer(), folder=tmp_path)
    trainer.train()
    assert (tmp_path / METRICS).read_bytes() == to_lines(trainer.state.records)
    memory = MemoryCheckpointer()
    counter(memory=memory).train()
    again = counter(folder=tmp_path)
    again.restore(*memory.states[40])
    lines = (tmp_path / METRICS).read_text().splitlines()
    assert len(lines) == 41, "records after the checkpoint are measured again"
    again.train()
    assert (tmp_path / METRICS).read_bytes() == to_lines(again.state.records)


@pytest.mark.parametrize(
    ("memory", "remedy"),
    [(MemoryCheckpointer(), "continue from the last checkpoint with resume=True"), (None, "train with")],
)
def test_an_infinite_loss_stops_the_run(memory: MemoryCheckpointer | None, remedy: str) -> None:
    with pytest.raises(TrainingError, match=rf"after step 9: {remedy} settings={{'lr': 0.25}}, say"):
        counter(memory=memory, spoil_at=9).train()
    assert memory is None or memory.states[-1][1]["state"]["step"] == 8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("due", [True, False])
def test_infinite_parameters_are_neither_saved_nor_returned(bad: float, due: bool) -> None:
    memory = MemoryCheckpointer(due=due)
    trainer = counter(memory=memory)
    trainer.values[1] = bad
    with pytest.raises(TrainingError, match="a parameter is infinite after step " + ("1:" if due else "100:")):
        trainer.train()
    assert not memory.saved


def test_patience_restores_the_best_parameters() -> None:
    losses = iter([3.0, 2.0, 1.0, 1.5, 1.4, 1.3, 1.2])
    trainer = counter(evaluate=lambda: {"valid_loss": next(losses)}, patience=3, restores_best=True)
    trainer.train()
    assert (trainer.state.best, trainer.state.step) == (1.0, 30)
    assert trainer.values.tolist() == [sum(range(16))] * 2, "those after fifteen steps"


def test_a_damaged_state_is_refused() -> None:
    with pytest.raises(ArtifactError, match="remove it and train again"):
        counter().restore({"values": np.zeros(2)}, {"state": {"unknown": 1}})
    with pytest.raises(ArtifactError, match="remove it and train again"):
        TrainingPlan.restored(({}, {}))


@pytest.mark.parametrize("total", [50, 5000])
def test_a_run_ends_in_its_time(total: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Planned ten times too short or too long; roughly, since sleeping is not exact."""
    trainer = counter(plan=TrainingPlan("tokens", total, round(total), seconds=0.5), seconds=0.01)
    trainer.train()
    assert 0.4 < trainer.elapsed < 0.8
    assert trainer.plan.changed > 0
    assert capsys.readouterr().err.count("the plan is adjusted") == 1


def run_of(speeds: list[float], plan: TrainingPlan, step: float = 0.01) -> float:
    """When a run ends whose speed is the first number in its first second, the second in its second..."""
    controller, done, elapsed = BudgetController(), 0.0, 0.2
    while done < plan.total:
        elapsed += step
        done += step * speeds[min(int(elapsed), len(speeds) - 1)]
        controller.adjust(plan, done, elapsed)
    return elapsed


def test_a_run_as_fast_as_planned_keeps_its_plan() -> None:
    plan = TrainingPlan("tokens", 100 * 9.6, 960, seconds=10)
    assert run_of([100], plan) == pytest.approx(9.8, abs=0.05)
    assert plan.changed == 0
    assert plan.total == 960


@pytest.mark.parametrize("speeds", [[50], [200], [100, 100, 100, 100, 30], [100, 60, 200, 60, 200, 50, 100], [500, 20]])
def test_a_run_ends_in_time_whatever_the_machine_does(speeds: list[float]) -> None:
    plan = TrainingPlan("tokens", 960, 960, seconds=10)
    assert 9.5 <= run_of(speeds, plan) <= 10.2
    assert plan.changed > 0


def test_without_a_budget_of_time_nothing_is_changed() -> None:
    plan = TrainingPlan("tokens", 960, 960)
    assert run_of([10], plan) > 90
    assert plan.changed == 0
