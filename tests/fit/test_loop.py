"""The loop: gradients that do not depend on parts or workers, budgets, records, validation, and stopping."""

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
from firth.fit import session as sessions
from firth.fit.batches import Batches, Cursor
from firth.fit.loop import Learner, State, ahead, find_gradients, make_learner, measure_losses, supplies
from firth.nets.batch import Batch, Loss
from firth.nets.recipe import NetRecipe
from firth.objectives.clm import CausalModelling
from firth.recipes.nets import resize
from firth.recipes.table import find_recipe
from tests.command import firth as command
from tests.fit.small_nets import BATCH, learn, make_run, masked, open_small, parameters, same, small, text


def still(recipe: NetRecipe) -> NetRecipe:
    """Without dropout."""
    return replace(
        recipe,
        embedding=replace(recipe.embedding, dropout=0.0),
        encoder=replace(recipe.encoder, dropout=0.0, attention_dropout=0.0),
    )


@pytest.mark.parametrize("make", [small, masked])
def test_parts_of_a_step_give_the_gradients_of_the_whole(make: Any) -> None:
    found = []
    for parts in (1, 4):
        session = open_small(still(make(accumulate=parts, batch=256)), make_run(budget="1ktok"))
        batches = session.batches.step(Cursor())[0]
        assert len(batches) == parts
        losses = find_gradients(session.learner, batches, 0, 0)
        gradients = {name: one.grad for name, one in session.learner.named_parameters() if one.grad is not None}
        found.append((losses, gradients))
    (whole, one), (cut, two) = found
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-7)
    for name in whole:
        assert whole[name][1] == cut[name][1] > 0
        assert whole[name][0] == pytest.approx(cut[name][0], rel=1e-5)


def test_batches_made_ahead_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for depth in (0, 1, 5):
        monkeypatch.setattr(sessions, "AHEAD", depth)
        found.append(parameters(learn(open_small(masked(), make_run(budget="2ktok")))))
    assert same(found[0], found[1])
    assert same(found[0], found[2])
    assert not same(found[0], parameters(learn(open_small(masked(), make_run(budget="2ktok", seed=1)))))


def test_what_goes_wrong_while_batches_are_made_is_told() -> None:
    def broken() -> Any:
        yield 1
        raise ValueError("no more")

    with closing(ahead(broken(), 3)) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="no more"):
            next(items)


def test_the_loss_falls_and_is_written_down(tmp_path: Path) -> None:
    model = firth.train(small(), text(), out=tmp_path / "m", budget="20ktok", threads=1, valid=text(30, seed=1))
    info = firth.info(tmp_path / "m")
    records = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    assert {"metrics.jsonl", "curve.svg", "model.safetensors", "tokenizer.json"} == set(info["files"])
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
    session = learn(open_small(masked(), make_run(budget="3ktok", valid=True)))
    last = session.state.records[-1]
    assert last["losses"].keys() == last["valid_losses"].keys() == {"mlm", "nsp"}
    assert last["loss"] == pytest.approx(sum(last["losses"].values()))
    again = measure_losses(session.learner, session.valid)
    assert again == last["valid_losses"], "validation is not always on the same masks"


@pytest.mark.parametrize("tokens", [1, 500, 515, 530, 545, 560, 5000])
def test_a_budget_of_tokens_is_met_as_nearly_as_whole_steps_can(tokens: int) -> None:
    session = learn(open_small(small(), make_run(budget=f"{tokens}tok")))
    assert session.state.step >= 1
    assert abs(session.state.tokens - tokens) <= BATCH / 2 or session.state.step == 1


def test_a_budget_of_flops() -> None:
    session = learn(open_small(small(), make_run(budget="5e7flop")))
    assert session.plan.unit == "flops"
    assert session.state.flops == pytest.approx(5e7, rel=0.02)
    assert session.state.flops / session.state.tokens == pytest.approx(5e7 / session.plan.tokens, rel=0.2)


def test_without_a_budget_the_passes_count() -> None:
    session = learn(open_small(small(epochs=3), make_run()))
    assert session.state.tokens == 3 * session.batches.tokens
    assert (session.state.epoch, session.state.row) == (3, 0)


def test_a_budget_of_time_is_kept() -> None:
    session = learn(open_small(small(), make_run(budget="2s")))
    assert 0.8 * 2 < session.elapsed < 1.5 * 2  # as near as a loaded machine allows
    assert session.state.records[-2]["rate"] < 0.003, "the schedule was not completed"


def test_rows_are_short_at_first() -> None:
    recipe = replace(small(short=0.5), rows=replace(small().rows, length=64))
    session = open_small(recipe, make_run(budget="1ktok"))
    read: dict[bool, int] = {True: 0, False: 0}
    for given in supplies(session.batches, session.learner, session.recipe, session.plan, State()):
        read[max(part.shape[1] for part in given.parts) <= 16] += given.tokens
        if sum(read.values()) > 1000:
            break
    assert 500 <= read[True] < 600
    assert read[False] > 400
    learn(session)


def added(into: Any, one: Any, two: Any, **more: Any) -> int:
    """The operations of a product that is added to something in place, which torch leaves out."""
    return int(2 * one[0] * one[1] * two[1])


@pytest.mark.parametrize("name", ["gpt", "gpt2", "bert", "albert", "ffnn", "lbl", "rnn", "lstm"])
def test_operations_are_those_that_torch_counts(name: str) -> None:
    """Forward and backward, by the products that are done."""
    recipe = find_recipe(name)
    assert isinstance(recipe, NetRecipe)
    recipe = still(replace(resize(recipe, "tiny"), tokenizer=small().tokenizer))
    if recipe.encoder.kind == "transformer":
        recipe = replace(recipe, encoder=replace(recipe.encoder, heads=2))
    session = open_small(replace(recipe, learning=replace(recipe.learning, batch=512)), make_run(budget="1ktok"))
    parts = session.batches.step(Cursor())[0]
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: added}) as counter:
        find_gradients(session.learner, parts, 0, 0)
    counted = counter.get_total_flops()
    assert sum(map(session.learner.flops, parts)) == pytest.approx(counted, rel=0.03)


def test_numbers_without_bound_stop_the_run_and_the_last_good_state_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    whole, calls = CausalModelling.loss, []

    def broken(*given: Any) -> Loss:
        calls.append(1)
        found = whole(*given)
        return Loss(found.total * float("nan"), found.count) if len(calls) > 20 else found

    with monkeypatch.context() as patched:
        patched.setattr(CausalModelling, "loss", broken)
        with pytest.raises(TrainingError, match=r"step \d+: go on .* --resume --set learning.rate=0.005, say"):
            firth.train(small(), text(), out=tmp_path / "m", budget="5ktok", threads=1)
    kept = json.loads((tmp_path / "m" / "checkpoint" / "manifest.json").read_text())
    assert 0 < kept["state"]["state"]["step"] < 25
    slower = small(rate=0.005)
    firth.train(slower, text(), out=tmp_path / "m", budget="5ktok", threads=1, resume=True)
    assert firth.info(tmp_path / "m")["metrics"]["loss"] < 3.0


def test_the_gradient_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_small(small(), make_run(budget="2ktok"))
    before = parameters(session)
    monkeypatch.setattr(loop, "clip_grad_norm_", lambda parameters, most: torch.tensor(torch.inf))
    with pytest.raises(TrainingError, match="train with --set learning"):
        learn(session)
    assert same(before, parameters(session))


def test_an_early_stop_keeps_the_best_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation gets worse from the third time on."""
    told = itertools.chain([3.0, 2.5, 2.0], itertools.count(2.1, 0.1))
    states = []

    def measured(learner: Learner, parts: Any) -> dict[str, float]:
        states.append({name: array.copy() for name, array in learner.arrays().items()})
        return {"clm": next(told)}

    monkeypatch.setattr(nets, "measure_losses", measured)
    session = learn(open_small(small(patience=4), make_run(budget="20ktok", valid=True)))
    assert len(states) == 7
    assert session.state.tokens < 0.5 * 20_000
    assert session.state.best == 2.0
    assert same(parameters(session), states[2])


def test_patience_needs_something_to_look_at() -> None:
    with pytest.raises(RecipeError, match="--valid"):
        open_small(small(patience=3), make_run())


def test_a_text_smaller_than_a_batch_and_a_single_word(tmp_path: Path) -> None:
    model = firth.train(small(batch=4096, epochs=2), [["w1 w2"]], out=tmp_path / "m")
    assert firth.info(tmp_path / "m")["metrics"]["steps"] == 2
    assert model.score(["w1"])


def test_a_layer_that_changes_its_shape_is_learnt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_small(small(), make_run(budget="2ktok"))
    asked = []

    def renew(share: float) -> bool:
        asked.append(share)
        return len(asked) == 10

    forgotten = []
    monkeypatch.setattr(session.learner.network.output, "renew", renew)
    monkeypatch.setattr(loop, "forget", lambda optimiser, anew: forgotten.extend([len(asked)] if list(anew) else []))
    learn(session)
    assert forgotten == [10]
    assert asked[0] == 0
    assert asked == sorted(asked)
    assert 0.9 < asked[-1] < 1


def test_the_first_parameters_depend_on_the_seed_alone() -> None:
    session = open_small(masked(), make_run(budget="1ktok"))
    made = [make_learner(session.recipe, session.vocabulary, seed).arrays() for seed in (0, 0, 1)]
    assert same(made[0], made[1])
    assert not same(made[0], made[2])
    assert any(name.startswith("heads.nsp.") for name in made[0])


def test_an_interrupt_saves_and_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("\n".join(" ".join(one) for one in text()), encoding="utf-8")
    arguments = ("train", "rnn", tmp_path / "text.txt", "--budget", "20ktok", "--threads", "1", "-o", tmp_path / "m")
    take, steps = loop.take_step, []

    def interrupted(*given: Any) -> Any:
        steps.append(1)
        if len(steps) == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(*given)

    monkeypatch.setattr(loop, "take_step", interrupted)
    assert command(*arguments).code == 130
    kept = json.loads((tmp_path / "m" / "checkpoint" / "manifest.json").read_text())
    assert kept["state"]["state"]["step"] > 3
    resumed = command(*arguments, "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["metrics"]["steps"] > 12


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--seed"):
        firth.train(small(), text(), out=tmp_path / "m", seed=-1)


def test_places_without_predictions_do_no_harm() -> None:
    session = open_small(small(), make_run(budget="1ktok"))
    alone = Batch(torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.bool), tokens=1)
    assert find_gradients(session.learner, [alone], 0, 0) == {"clm": (0.0, 0)}
    assert measure_losses(session.learner, [alone]) == {}


def test_fixed_batches_come_from_the_held_out_text() -> None:
    session = open_small(masked(), make_run(budget="3ktok", valid=True))
    other = Batches(session.recipe, session.batches.store, list(session.learner.objectives.values()), 0).fixed(1000)
    assert sum(part.tokens for part in session.valid) <= 300
    assert sum(part.tokens for part in other) > 300
