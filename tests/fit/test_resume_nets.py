"""Resumed training gives the same bits as uninterrupted training."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.errors import ArtifactError, BudgetError, OutputError, RecipeError
from firth.fit import nets
from firth.fit import trainer as trainers
from firth.fit.nets import NetTrainer
from firth.nets.recipe import NetRecipe, OutputRecipe, SequenceRecipe
from firth.objectives.registry import parse_objectives
from tests.command import firth as command
from tests.fit.small_nets import make_run, masked, open_small, parameters, same, sentences, small, text, trained

BUDGET = "2ktok"
SINGLE = SequenceRecipe(format="doc-sentences", length=32)


class SwitchedOffError(Exception):
    """The machine was switched off."""


def stop_after(trainer: NetTrainer, saves: int) -> None:
    """Train until a number of checkpoints were saved, then crash."""
    assert trainer.checkpointer is not None
    keep, kept = trainer.checkpointer.save, []

    def keeping(*given: Any) -> None:
        keep(*given)
        kept.append(1)
        if len(kept) == saves:
            raise SwitchedOffError

    trainer.checkpointer.save = keeping  # type: ignore[method-assign]
    with pytest.raises(SwitchedOffError):
        trained(trainer)


def interrupted(recipe: NetRecipe, folder: Path, moments: list[int], valid: bool = False) -> NetTrainer:
    """A run that died after so many saves, was resumed, died again..., and is done."""
    for number, moment in enumerate(moments):
        run = make_run(folder, BUDGET, valid=valid, resume=number > 0)
        stop_after(open_small(recipe, run), moment)
    return trained(open_small(recipe, make_run(folder, BUDGET, valid=valid, resume=True)))


def restoring(objective: str, **part: Any) -> NetRecipe:
    """A network with a decoder that restores noised text."""
    base = masked(grad_accumulation=2)
    encoder = replace(base.encoder, **part)
    return replace(
        base,
        tokenizer=replace(base.tokenizer, sentinels=10),
        encoder=encoder,
        decoder=encoder,
        objectives=parse_objectives(objective),
        sequence=SINGLE,
    )


@pytest.mark.parametrize(
    "recipe",
    [
        small(),
        masked(),
        small(optimiser="lamb", lr=0.05),
        small(optimiser="adagrad"),
        small(optimiser="sgd", lr=0.5, schedule="cosine"),
        small(optimiser="adam", short_phase=0.4, grad_accumulation=2),
        replace(small(), encoder=replace(small().encoder, kind="lstm", ffn_width=0, weight_drop=0.2)),
        replace(masked(grad_accumulation=2), objectives=parse_objectives("rtd"), output=OutputRecipe(kind="none")),
        replace(masked(), objectives=parse_objectives("mlm+sbo"), sequence=SINGLE),
        restoring("denoising"),
        restoring("spans", positions="buckets", norm="pre", rms=True, biases=False, gated=True),
        restoring("fragment"),
    ],
    ids=[
        *("adamw", "masked", "lamb", "adagrad", "sgd", "short", "lstm", "electra", "spanbert"),
        *("bart", "t5", "mass"),
    ],
)
def test_resuming_gives_the_same_bits(recipe: NetRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    whole = trained(open_small(recipe, make_run(budget=BUDGET)))
    again = interrupted(recipe, tmp_path / "m", [5, 1, 9])
    assert again.state.step == whole.state.step > 20
    assert same(parameters(again), parameters(whole))
    timeless = [
        [{key: value for key, value in record.items() if "second" not in key} for record in one.state.records]
        for one in (whole, again)
    ]
    assert timeless[0] == timeless[1]


def test_validation_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    recipe = small(patience=3, lr=0.3)  # too fast to get any better for long
    whole = trained(open_small(recipe, make_run(budget=BUDGET, valid=True)))
    assert whole.best
    assert whole.state.tokens < 1800
    again = interrupted(recipe, tmp_path / "m", [3, 3], valid=True)
    assert again.state.best == whole.state.best
    assert same(parameters(again), parameters(whole))


def test_the_plan_is_saved_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run does not measure the speed again."""
    first = open_small(small(), make_run(tmp_path / "m", "8s"))
    kept = json.loads((tmp_path / "m" / "checkpoint" / "manifest.json").read_text())
    assert kept["state"]["state"]["step"] == 0
    monkeypatch.setattr(nets, "make_plan", lambda *given, **more: pytest.fail("measured again"))
    again = open_small(small(), make_run(tmp_path / "m", "8s", resume=True))
    assert again.plan == first.plan
    assert again.elapsed >= first.state.seconds


def test_only_the_same_run_is_resumed(tmp_path: Path) -> None:
    open_small(small(), make_run(tmp_path / "m", BUDGET))
    for recipe, run in (
        (small(batch=32), make_run(tmp_path / "m", BUDGET, resume=True)),
        (small(), make_run(tmp_path / "m", "5ktok", resume=True)),
        (small(), make_run(tmp_path / "m", BUDGET, resume=True, seed=1)),
        (small(), make_run(tmp_path / "m", BUDGET, resume=True, valid=True)),
    ):
        with pytest.raises(RecipeError, match="something else"):
            open_small(recipe, run)
    other = replace(make_run(tmp_path / "m", BUDGET, resume=True), corpus=make_run(valid=True).valid)
    with pytest.raises(RecipeError, match="something else"):
        open_small(small(), other)
    slower = open_small(small(lr=0.001), make_run(tmp_path / "m", BUDGET, resume=True))
    assert slower.lr == 0.001
    with pytest.raises(OutputError, match="resume=True"):
        firth.train(small(), text(), out=tmp_path / "m", budget=BUDGET)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    open_small(small(), make_run(tmp_path / "m", BUDGET))
    state = tmp_path / "m" / "checkpoint" / "state-1.safetensors"
    whole = state.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        state.write_bytes(damaged)
        with pytest.raises(ArtifactError, match="has changed"):
            open_small(small(), make_run(tmp_path / "m", BUDGET, resume=True))
    state.unlink()
    with pytest.raises(ArtifactError, match="train again"):
        open_small(small(), make_run(tmp_path / "m", BUDGET, resume=True))


def test_a_checkpoint_without_a_tensor_is_refused() -> None:
    trainer = open_small(small(), make_run(budget=BUDGET))
    arrays = parameters(trainer)
    name = next(iter(arrays))
    for bad in ({key: one for key, one in arrays.items() if key != name}, arrays | {name: np.zeros(3)}):
        with pytest.raises(ArtifactError, match="missing or has another shape"):
            trainer.module.restore(bad)


def test_infinite_parameters_are_never_saved(tmp_path: Path) -> None:
    trainer = open_small(small(), make_run(tmp_path / "m", BUDGET))
    next(iter(trainer.module.arrays().values()))[:] = np.inf
    with pytest.raises(firth.FirthError, match="infinite"):
        trainer.save()
    kept = open_small(small(), make_run(tmp_path / "m", BUDGET, resume=True))
    assert all(np.isfinite(array).all() for array in parameters(kept).values())


def test_another_number_of_threads_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_with_threads(tmp_path / "m", 3)
    open_small(small(), make_run(tmp_path / "m", BUDGET, resume=True))
    assert "began with 3 threads: with 1 the last digits may differ" in capsys.readouterr().err


def test_a_run_resumes_with_its_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is free now: the result is that of an uninterrupted run."""
    save_with_threads(tmp_path / "m", 2)
    monkeypatch.setattr(trainers, "cores", lambda: 2)
    monkeypatch.setattr(trainers, "free_cores", lambda: 1)
    found = []
    monkeypatch.setattr(trainers.NetTrainer, "train", lambda trainer: found.append(torch.get_num_threads()))
    with pytest.raises(IndexError):  # a trainer that does nothing has no records
        firth.train(small(), text(), out=tmp_path / "m", budget=BUDGET, resume=True)
    assert found == [2]


def save_with_threads(out: Path, threads: int) -> None:
    trainer = open_small(small(), make_run(out, BUDGET))
    with trainers.torch_settings(threads):
        trainer.save()


def arguments(folder: Path, out: str) -> list[str]:
    few = ["encoder.heads=2", "encoder.width=16", "encoder.ffn_width=32", "encoder.layers=1", "embedding.width=16"]
    settings = [part for one in (*few, "sequence.length=16", "learning.batch=64") for part in ("--set", one)]
    return [
        *("train", "bert", str(folder / "text.txt"), "-o", str(folder / out), "--budget", "5ktok", "--threads", "1"),
        *settings,
    ]


def test_killed_at_a_random_moment_through_the_command_line(tmp_path: Path) -> None:
    """kill -9, probably during a checkpoint, which are written all the time here."""
    (tmp_path / "text.txt").write_text("\n".join(sentences()), encoding="utf-8")
    whole = command(*arguments(tmp_path, "whole"), "--json")
    assert whole.code == 0, whole.err
    manifest = tmp_path / "killed" / "checkpoint" / "manifest.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "firth", *arguments(tmp_path, "killed")],
        env=os.environ | {"FIRTH_CHECKPOINT": "0"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None and not (
        manifest.exists() and json.loads(manifest.read_bytes())["state"]["state"]["step"]
    ):
        time.sleep(0.01)
    time.sleep(random.random() / 10)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    resumed = command(*arguments(tmp_path, "killed"), "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["files"]["model.safetensors"] == whole.json["files"]["model.safetensors"]
    assert command("verify", tmp_path / "killed").code == 0


def test_a_model_is_adapted_to_other_text(tmp_path: Path) -> None:
    recipe = masked(lr=0.003)
    firth.train(recipe, text(), out=tmp_path / "m", budget=BUDGET, threads=1)
    other = text(90, seed=3)
    held = text(24, seed=4)
    adapted = firth.adapt(tmp_path / "m", other, out=tmp_path / "a", budget="6ktok", valid=held, threads=1)
    info, before = firth.info(tmp_path / "a"), firth.info(tmp_path / "m")
    assert info["tokenizer"] == before["tokenizer"]
    assert info["budget"]["asked"] == "6ktok"
    assert info["metrics"]["loss"] < before["metrics"]["loss"]
    assert adapted.recipe.with_tokenizer(recipe.tokenizer) == recipe
    old = firth.load(tmp_path / "m")
    assert adapted.heads.keys() == old.heads.keys()
    assert adapted.counts.tolist() == old.counts.tolist(), "output layers are built by them"
    settings = ["objectives=mlm", "learning.lr=1e-9"]
    alone = firth.adapt(tmp_path / "m", other, out=tmp_path / "b", budget="1tok", threads=1, settings=settings)
    for name, array in old.arrays().items():
        if name != "spelling":
            np.testing.assert_allclose(alone.arrays()[name], array, atol=1e-6, err_msg=name)
    assert any(name.startswith("heads.nsp.") for name in alone.heads), "layers that are not trained are lost"


def test_adapting_keeps_the_network(tmp_path: Path) -> None:
    firth.train(small(), text(), out=tmp_path / "m", budget="1ktok", threads=1)
    with pytest.raises(RecipeError, match="not encoder"):
        firth.adapt(tmp_path / "m", text(), out=tmp_path / "a", settings=["encoder.layers=3"])
    firth.train("unigram", text(), out=tmp_path / "u")
    with pytest.raises(BudgetError, match="leave budget and resume out"):
        firth.adapt(tmp_path / "u", text(), out=tmp_path / "b", budget="3s")
