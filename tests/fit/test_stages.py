"""Continual training: stages that add tasks, resumed before, at and after their bounds with the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from firth.artifact.formats.huggingface import export_huggingface, import_huggingface
from firth.artifact.models import load
from firth.fit.adapt import adapt
from firth.fit.finetune import finetune
from firth.fit.layouts import ObjectiveMixture, with_material
from firth.fit.nets import NetTrainer, open_trainer
from firth.fit.resolve import fill_in, unset_fields
from firth.fit.run import Budget, TrainingRun
from firth.fit.staged import StagedSource
from firth.fit.train import train
from firth.fit.trainer import torch_settings
from firth.fit.units import recipe_columns
from firth.nets.recipe import NetRecipe
from firth.recipes.knowledge import ernie, ernie2
from firth.recipes.nets import resize
from firth.recipes.values import override
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from tests.fit.small_nets import parameters, same, trained
from tests.objectives.test_layouts import dialogues, documents

BUDGET = "3ktok"
SMALL = (
    *("embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.heads=2", "encoder.layers=1"),
    *("sequence.length=32", "learning.batch=128"),
)


class SwitchedOffError(Exception):
    """The machine was switched off."""


def small(recipe: NetRecipe) -> NetRecipe:
    tokens = TokenizerRecipe(model="wordpiece", vocab_size=300, lowercase=True, min_count=1)
    found = override(replace(resize(recipe, "tiny"), tokenizer=tokens), SMALL)
    assert isinstance(found, NetRecipe)
    return found


def open_run(recipe: NetRecipe, folder: Path, text: Any, resume: bool = False, valid: Any = None) -> NetTrainer:
    run = TrainingRun(
        corpus=read_corpus(text),
        valid=None if valid is None else read_corpus(valid),
        tokenizer=None,
        budget=Budget.parse(BUDGET),
        seed=0,
        threads=1,
        out=folder,
        resume=resume,
    )
    tokenizer, store = run.open_tokens(recipe.tokenizer, recipe_columns(recipe, None))
    recipe = with_material(fill_in(recipe.with_tokenizer(tokenizer.recipe), len(tokenizer)), store)
    with torch_settings(1):
        return open_trainer(recipe, run, tokenizer, store, None)


def crash_after(trainer: NetTrainer, saves: int) -> float:
    """Train until a number of checkpoints were saved, then crash; returns the progress."""
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
    return trainer.plan.amount(trainer.state) / trainer.plan.total


@pytest.mark.parametrize(("make", "text"), [(ernie2, documents()), (ernie, dialogues(80))], ids=["ernie2", "ernie"])
def test_resuming_in_every_stage_gives_the_same_bits(
    make: Any, text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crashes in the first stage and in the third: the second and the last bound are crossed after them."""
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    recipe = small(make())
    whole = trained(open_run(recipe, tmp_path / "whole", text))
    steps = whole.state.step
    assert steps > 15
    reached = []
    for number in range(2):
        trainer = open_run(recipe, tmp_path / "parts", text, resume=number > 0)
        reached.append(crash_after(trainer, max(steps // 5, 2) if number == 0 else steps // 3))
    assert 0 < reached[0] < 1 / 3 < reached[1] < 2 / 3
    parts = trained(open_run(recipe, tmp_path / "parts", text, resume=True))
    assert same(parameters(whole), parameters(parts))


def test_each_stage_trains_all_tasks_so_far(tmp_path: Path) -> None:
    trainer = trained(open_run(small(ernie2()), tmp_path / "out", documents(), valid=documents(10)))
    source = trainer.batches
    assert isinstance(source, StagedSource)
    assert all(isinstance(one, ObjectiveMixture) for one in source.sources)
    losses: dict[int, set[str]] = {}
    for record in trainer.state.records:
        stage = min(int(4 * (record["tokens"] - 128) / trainer.plan.total), 3)
        losses.setdefault(stage, set()).update(record["losses"])
    assert losses[0] == {"mlm"}
    assert {"mlm", "capitals", "elsewhere"} <= losses[1]
    assert "reordering" not in losses[1]
    assert losses[3] == {"mlm", "capitals", "elsewhere", "reordering", "distance", "discourse", "relevance"}
    valid = trainer.state.records[-1]["valid_losses"]
    assert valid.keys() == losses[3]
    assert all(np.isfinite(loss) for loss in valid.values())


def test_a_finished_run_without_some_objectives_is_found_again(tmp_path: Path) -> None:
    """What the text decides is not compared with the recipe."""
    lines = [[f"w{n} w{n + 1} w{n * 7 % 11} .", f"w{n} x{n % 3} ."] for n in range(40)]
    options: dict[str, Any] = {"size": "tiny", "budget": "1ktok", "settings": list(SMALL), "threads": 1}
    for name in ("ernie", "ernie2"):
        model = train(name, lines, out=tmp_path / name, **options)
        assert "dlm" not in model.recipe.names  # type: ignore[union-attr]
        again = train(name, lines, out=tmp_path / name, resume=True, **options)
        assert again.recipe == model.recipe  # type: ignore[union-attr]
    assert {"objectives", "dlm.weight", "embedding.segments"} <= unset_fields(ernie(), (), None)
    assert "objectives" not in unset_fields(ernie(), ["objectives=mlm"], None)


def test_a_trained_model_is_adapted_fine_tuned_and_exported(tmp_path: Path) -> None:
    """Tasks keep their numbers, and a text without examples leaves the other parameters as they are."""
    options: dict[str, Any] = {"budget": "2ktok", "threads": 1}
    train("ernie2", documents(), out=tmp_path / "model", size="tiny", settings=list(SMALL), **options)
    adapted = adapt(tmp_path / "model", documents(20), out=tmp_path / "adapted", **options)
    assert set(adapted.recipe.names) == set(ernie2().names)  # type: ignore[union-attr]
    poor = [["w1 w2 w3 .", "w4 w5 ."]] * 20
    less = adapt(tmp_path / "model", poor, out=tmp_path / "less", **options)
    assert set(less.recipe.names) == {"mlm", "elsewhere", "reordering", "distance"}  # type: ignore[union-attr]
    assert less.recipe.embedding == adapted.recipe.embedding  # type: ignore[union-attr]
    before, after = (load_file(tmp_path / one / "model.safetensors") for one in ("model", "less"))
    assert np.array_equal(
        before["heads.discourse.classifier.weight"].numpy(), after["heads.discourse.classifier.weight"].numpy()
    )
    one, two = (each["embedding.tasks.weight"].numpy() for each in (before, after))
    decayed = np.linalg.norm(two[3]) / np.linalg.norm(one[3])  # rows of tasks that are not trained only decay
    assert np.allclose(two[3], decayed * one[3], rtol=1e-5, atol=0)
    assert not np.allclose(two[1], decayed * one[1], rtol=1e-2, atol=0)
    rows = "\n".join(f"{'a' if n % 2 else 'b'}\tw{n} w{n + 1}" for n in range(40))
    (tmp_path / "train.tsv").write_text(f"label\ttext_a\n{rows}\n")
    examples = {"train": tmp_path / "train.tsv", "dev": tmp_path / "train.tsv"}
    finetune(tmp_path / "model", "classify", out=tmp_path / "task", threads=1, **examples)
    for name, architecture in (("model", "ErnieForMaskedLM"), ("task", "ErnieForSequenceClassification")):
        export_huggingface(load(tmp_path / name), tmp_path / f"hf-{name}")
        config = json.loads((tmp_path / f"hf-{name}" / "config.json").read_bytes())
        assert (config["architectures"], config["use_task_id"]) == ([architecture], True)
        import_huggingface(tmp_path / f"hf-{name}", tmp_path / f"back-{name}")
        models = [load(tmp_path / f"{where}{name}") for where in ("", "back-")]
        if name == "task":
            one, two = (model.predict(["w1 w2", "w3"]) for model in models)  # type: ignore[union-attr]
            assert [each["label"] for each in one] == [each["label"] for each in two]
        else:
            one, two = (model.embed(["w1 w2"]) for model in models)  # type: ignore[union-attr]
            assert np.allclose(one, two, rtol=0, atol=1e-5)
