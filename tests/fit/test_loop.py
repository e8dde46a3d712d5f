"""The training loop: gradient accumulation, prefetching, budgets, records, validation and stopping."""

from __future__ import annotations

import itertools
import json
import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import firth
from firth.errors import RecipeError, TrainingError
from firth.fit import loop, nets
from firth.fit import trainer as trainers
from firth.fit.batches import Batches, Cursor
from firth.fit.loop import (
    TrainingModule,
    backward,
    make_training_module,
    measure_losses,
    prefetch,
    step_batches,
)
from firth.nets.batch import Batch, Loss
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.clm import CausalLMHead
from firth.recipes.nets import resize
from firth.recipes.table import find_recipe
from firth.training import TrainingState
from tests.command import firth as command
from tests.fit.small_nets import (
    BATCH,
    make_run,
    masked,
    open_small,
    parameters,
    same,
    small,
    text,
    trained,
    valid_batches,
)


def still(recipe: NetRecipe) -> NetRecipe:
    """The recipe without dropout."""
    return replace(
        recipe,
        embedding=replace(recipe.embedding, dropout=0.0),
        encoder=replace(recipe.encoder, dropout=0.0, attention_dropout=0.0),
    )


@pytest.mark.parametrize("make", [small, masked])
def test_accumulated_gradients_are_those_of_the_whole_batch(make: Any) -> None:
    found = []
    for parts in (1, 4):
        trainer = open_small(still(make(grad_accumulation=parts, batch=256)), make_run(budget="1ktok"))
        batches = trainer.batches.step(Cursor())[0]
        assert len(batches) == parts
        losses = backward(trainer.module, batches, 0, 0)
        gradients = {name: one.grad for name, one in trainer.module.named_parameters() if one.grad is not None}
        found.append((losses, gradients))
    (whole, one), (cut, two) = found
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-7)
    for name in whole:
        assert whole[name][1] == cut[name][1] > 0
        assert whole[name][0] == pytest.approx(cut[name][0], rel=1e-5)


def test_prefetching_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for depth in (0, 1, 5):
        monkeypatch.setattr(trainers, "PREFETCH", depth)
        found.append(parameters(trained(open_small(masked(), make_run(budget="2ktok")))))
    assert same(found[0], found[1])
    assert same(found[0], found[2])
    assert not same(found[0], parameters(trained(open_small(masked(), make_run(budget="2ktok", seed=1)))))


def test_errors_of_the_prefetching_thread_are_raised() -> None:
    def broken() -> Any:
        yield 1
        raise ValueError("no more")

    with closing(prefetch(broken(), 3)) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="no more"):
            next(items)


def test_the_loss_falls_and_is_written_down(tmp_path: Path) -> None:
    model = firth.train(small(), text(), out=tmp_path / "m", budget="20ktok", threads=1, valid=text(30, seed=1))
    info = firth.info(tmp_path / "m")
    records = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    assert {"card.md", "metrics.jsonl", "curve.svg", "model.safetensors", "tokenizer.json"} == set(info["files"])
    assert records[-1]["loss"] < 0.8 * records[0]["loss"]
    assert records[-1]["tokens"] == info["budget"]["spent"]["tokens"]
    assert records[-1]["flops"] == info["budget"]["spent"]["flops"]
    assert records[-1]["valid_loss"] == info["metrics"]["valid_loss"]
    assert info["metrics"]["valid_perplexity"] < 15
    assert 10 < sum("valid_loss" in record for record in records) <= 22
    assert 150 < len(records) <= 202
    steps = [record["step"] for record in records]
    assert steps == sorted(set(steps))
    assert all(record["losses"]["clm"] == record["loss"] for record in records)
    assert all(record["gradient_norm"] > 0 and 0 < record["rate"] <= 0.01 for record in records[:-1])
    assert (tmp_path / "m" / "curve.svg").read_bytes().startswith(b"<?xml")
    assert model.score(["w1 w3"])[0].tokens == 3
    assert not (tmp_path / "m" / "checkpoint").exists()


def test_every_objective_is_reported() -> None:
    trainer = trained(open_small(masked(), make_run(budget="3ktok", valid=True)))
    last = trainer.state.records[-1]
    assert last["losses"].keys() == last["valid_losses"].keys() == {"mlm", "nsp"}
    assert last["loss"] == pytest.approx(sum(last["losses"].values()))
    again = measure_losses(trainer.module, valid_batches(trainer))
    assert again == last["valid_losses"], "validation is not always on the same masks"


@pytest.mark.parametrize("tokens", [1, 500, 515, 530, 545, 560, 5000])
def test_a_budget_of_tokens_is_met_as_nearly_as_whole_steps_can(tokens: int) -> None:
    trainer = trained(open_small(small(), make_run(budget=f"{tokens}tok")))
    assert trainer.state.step >= 1
    assert abs(trainer.state.tokens - tokens) <= BATCH / 2 or trainer.state.step == 1


def test_a_budget_of_flops() -> None:
    trainer = trained(open_small(small(), make_run(budget="5e7flop")))
    assert trainer.plan.unit == "flops"
    assert trainer.state.flops == pytest.approx(5e7, rel=0.02)
    assert trainer.state.flops / trainer.state.tokens == pytest.approx(5e7 / trainer.plan.tokens, rel=0.2)


def test_without_a_budget_the_epochs_count() -> None:
    trainer = trained(open_small(small(epochs=3), make_run()))
    assert trainer.state.tokens == 3 * trainer.batches.tokens
    assert (trainer.state.epoch, trainer.state.row) == (3, 0)


def test_a_time_budget_is_met() -> None:
    trainer = trained(open_small(small(), make_run(budget="2s")))
    assert 0.8 * 2 < trainer.elapsed < 1.5 * 2  # as near as a loaded machine allows
    assert trainer.state.records[-2]["rate"] < 0.003, "the schedule was not completed"


def test_rows_are_short_at_first() -> None:
    recipe = replace(small(short_phase=0.5), sequence=replace(small().sequence, length=64))
    trainer = open_small(recipe, make_run(budget="1ktok"))
    read: dict[bool, int] = {True: 0, False: 0}
    for given in step_batches(trainer.batches, trainer.module, trainer.recipe, trainer.plan, TrainingState()):
        read[max(part.shape[1] for part in given.parts) <= 16] += given.tokens
        if sum(read.values()) > 1000:
            break
    assert 500 <= read[True] < 600
    assert read[False] > 400
    trained(trainer)


def added(into: Any, one: Any, two: Any, **more: Any) -> int:
    """The FLOPs of an in-place addmm, which torch does not count."""
    return int(2 * one[0] * one[1] * two[1])


@pytest.mark.parametrize("name", ["gpt", "gpt2", "bert", "albert", "ffnn", "lbl", "rnn", "lstm"])
def test_operations_are_those_that_torch_counts(name: str) -> None:
    """Forward and backward, by the products that are done."""
    recipe = find_recipe(name)
    assert isinstance(recipe, NetRecipe)
    recipe = still(replace(resize(recipe, "tiny"), tokenizer=small().tokenizer))
    if recipe.encoder.kind == "transformer":
        recipe = replace(recipe, encoder=replace(recipe.encoder, heads=2))
    trainer = open_small(replace(recipe, learning=replace(recipe.learning, batch=512)), make_run(budget="1ktok"))
    parts = trainer.batches.step(Cursor())[0]
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: added}) as counter:
        backward(trainer.module, parts, 0, 0)
    counted = counter.get_total_flops()
    assert sum(map(trainer.module.flops, parts)) == pytest.approx(counted, rel=0.03)


def test_an_infinite_loss_stops_the_run_and_the_last_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    whole, calls = CausalLMHead.loss, []

    def broken(*given: Any) -> Loss:
        calls.append(1)
        found = whole(*given)
        return Loss(found.total * float("nan"), found.count) if len(calls) > 20 else found

    with monkeypatch.context() as patched:
        patched.setattr(CausalLMHead, "loss", broken)
        with pytest.raises(
            TrainingError, match=r"step \d+: continue .* resume=True settings={'learning.lr': 0.005}, say"
        ):
            firth.train(small(), text(), out=tmp_path / "m", budget="5ktok", threads=1)
    kept = json.loads((tmp_path / "m" / "checkpoint" / "manifest.json").read_text())
    assert 0 < kept["state"]["state"]["step"] < 25
    slower = small(lr=0.005)
    firth.train(slower, text(), out=tmp_path / "m", budget="5ktok", threads=1, resume=True)
    assert firth.info(tmp_path / "m")["metrics"]["loss"] < 3.0


def test_an_infinite_gradient_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = open_small(small(), make_run(budget="2ktok"))
    before = parameters(trainer)
    monkeypatch.setattr(loop, "clip_grad_norm_", lambda parameters, most: torch.tensor(torch.inf))
    with pytest.raises(TrainingError, match=r"train with settings={'learning"):
        trained(trainer)
    assert same(before, parameters(trainer))


def test_early_stopping_restores_the_best_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation gets worse from the third time on."""
    losses = itertools.chain([3.0, 2.5, 2.0], itertools.count(2.1, 0.1))
    states = []

    def measured(module: TrainingModule, parts: Any) -> dict[str, float]:
        states.append({name: array.copy() for name, array in module.arrays().items()})
        return {"clm": next(losses)}

    monkeypatch.setattr(nets, "measure_losses", measured)
    trainer = trained(open_small(small(patience=4), make_run(budget="20ktok", valid=True)))
    assert len(states) == 7
    assert trainer.state.tokens < 0.5 * 20_000
    assert trainer.state.best == 2.0
    assert same(parameters(trainer), states[2])


def test_patience_needs_validation() -> None:
    with pytest.raises(RecipeError, match="give some with valid"):
        open_small(small(patience=3), make_run())


def test_a_text_smaller_than_a_batch_and_a_single_word(tmp_path: Path) -> None:
    model = firth.train(small(batch=4096, epochs=2), [["w1 w2"]], out=tmp_path / "m")
    assert firth.info(tmp_path / "m")["metrics"]["steps"] == 2
    assert model.score(["w1"])


def test_the_optimiser_state_of_a_restructured_layer_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = open_small(small(), make_run(budget="2ktok"))
    calls = []

    def update_structure(progress: float) -> bool:
        calls.append(progress)
        return len(calls) == 10

    reset: list[int] = []
    monkeypatch.setattr(trainer.module.network.output, "update_structure", update_structure)
    monkeypatch.setattr(trainers, "reset_state", lambda optimiser, new: reset.extend([len(calls)] if list(new) else []))
    trained(trainer)
    assert reset == [10]
    assert calls[0] == 0
    assert calls == sorted(calls)
    assert 0.9 < calls[-1] < 1


def test_the_first_parameters_depend_on_the_seed_alone() -> None:
    trainer = open_small(masked(), make_run(budget="1ktok"))
    made = [make_training_module(trainer.recipe, trainer.vocabulary, seed).arrays() for seed in (0, 0, 1)]
    assert same(made[0], made[1])
    assert not same(made[0], made[2])
    assert any(name.startswith("heads.nsp.") for name in made[0])


def test_an_interrupt_saves_and_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("\n".join(" ".join(one) for one in text()), encoding="utf-8")
    arguments = ("train", "rnn", tmp_path / "text.txt", "--budget", "20ktok", "--threads", "1", "-o", tmp_path / "m")
    take, steps = loop.optimizer_step, []

    def interrupted(*given: Any) -> Any:
        steps.append(1)
        if len(steps) == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(*given)

    monkeypatch.setattr(trainers, "optimizer_step", interrupted)
    assert command(*arguments).code == 130
    kept = json.loads((tmp_path / "m" / "checkpoint" / "manifest.json").read_text())
    assert kept["state"]["state"]["step"] > 3
    resumed = command(*arguments, "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["metrics"]["steps"] > 12


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="seed -1"):
        firth.train(small(), text(), out=tmp_path / "m", seed=-1)


def test_batches_without_predictions_have_no_loss() -> None:
    trainer = open_small(small(), make_run(budget="1ktok"))
    alone = Batch(torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.bool), tokens=1)
    assert backward(trainer.module, [alone], 0, 0) == {"clm": (0.0, 0)}
    assert measure_losses(trainer.module, [alone]) == {}


def test_fixed_batches_come_from_the_held_out_text() -> None:
    trainer = open_small(masked(), make_run(budget="3ktok", valid=True))
    other = Batches(trainer.recipe, trainer.batches.store, trainer.module.objectives, 0).fixed(1000)
    assert sum(part.tokens for part in valid_batches(trainer)) <= 300
    assert sum(part.tokens for part in other) > 300
