"""The strategy ulmfit: its three stages, their rates, and its resumption (Howard and Ruder 2018)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth
from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError, RecipeError
from firth.fit import trainer as trainers
from firth.fit.finetune import finetune
from firth.fit.layer_rates import pretraining_groups
from firth.fit.schedules import lr_factor
from firth.nets.groups import pool
from firth.nets.recipe import LearningRecipe
from firth.recipes.values import override
from tests.command import assert_refused
from tests.command import firth as command
from tests.fit.small_nets import sentences, text

EXAMPLES = [(str(int("w3" in line.split())), line) for line in sentences(80, seed=5)]
NETWORK = {
    "tokenizer": {"vocab_size": 60},
    "embedding": {"width": 16},
    "encoder": {"width": 16, "inner_width": 24},
    "learning": {"batch": 128},
}
TUNING = ["learning.epochs=5", "learning.batch=8"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ulmfit") / "m"
    firth.train("ulmfit", text(80, seed=1), out=folder, settings=NETWORK, budget="4ktok", threads=1)
    return folder


def tune(model: Path, out: Path, **changes: Any) -> Any:
    given: dict[str, Any] = {"train": EXAMPLES[:60], "dev": EXAMPLES[60:], "threads": 1, "settings": TUNING}
    given |= {"strategy": "ulmfit", "budget": "1ktok"}
    return finetune(model, "classify", out=out, **given | changes)


def arrays(path: Path) -> dict[str, Any]:
    return dict(load(path).arrays())


def test_the_slanted_triangle_at_steps_computed_by_hand() -> None:
    """T = 100, cut_frac = 0.1, ratio = 32: cut = 10; p = t / cut, then 1 - (t - cut) / (cut (1 / cut_frac - 1))."""
    expected = {0: 1 / 32, 5: 16.5 / 32, 10: 1.0, 55: (1 + 0.5 * 31) / 32, 91: (1 + 0.1 * 31) / 32, 100: 1 / 32}
    for step, factor in expected.items():
        assert lr_factor("slanted", step, 100, 0.1) == pytest.approx(factor, rel=1e-12)


def test_concat_pooling_by_hand() -> None:
    states = torch.tensor([[1.0, 8.0], [5.0, 2.0], [3.0, 5.0], [-7.0, 0.0]])
    found = pool(states, torch.tensor([0, 0, 0, 2]), 3, "concat")
    assert found.tolist() == [[3, 5, 5, 8, 3, 5], [0] * 6, [-7, 0, -7, 0, -7, 0]]


def test_rates_of_the_language_model_fall_by_the_decay(model: Path) -> None:
    """The embedding is tied to the output layer, so both have the whole rate."""
    network = load(model).network
    learning = LearningRecipe(layer_decay=0.5)
    scales = {}
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    for group in pretraining_groups(network, torch.nn.ModuleDict(), learning) or []:
        scales |= {names[id(one)]: group["scale"] for one in group["params"]}
    assert scales.keys() == set(names.values())
    assert scales["embedding.tokens.weight"] == scales["output.bias"] == 1.0
    for number, scale in enumerate((0.125, 0.25, 0.5)):
        assert scales[f"encoders.0.layers.{number}.input.weight"] == scale
    assert pretraining_groups(network, torch.nn.ModuleDict(), LearningRecipe()) is None


def test_stages_rates_and_head(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Any, dict[str, float], list[float]]] = []
    kept = trainers.NetTrainer.train

    def look(trainer: Any) -> None:
        names = {id(parameter): name for name, parameter in trainer.module.named_parameters()}
        scales = {names[id(one)]: group["scale"] for group in trainer.optimiser.param_groups for one in group["params"]}
        kept(trainer)
        rates = [record["rate"] for record in trainer.state.records if record["rate"]]
        seen.append((type(trainer.module).__name__, trainer.recipe.learning, scales, rates))

    monkeypatch.setattr(trainers.NetTrainer, "train", look)
    tune(model, tmp_path / "m")
    (lm, learning, scales, rates), (task, task_learning, task_scales, _) = seen
    assert (lm, task) == ("TrainingModule", "TaskTrainingModule")
    assert learning.schedule == task_learning.schedule == "slanted"
    assert learning.warmup == task_learning.warmup == 0.1
    assert (task_learning.beta1, task_learning.beta2) == (0.7, 0.99)
    assert max(rates) > 2 * rates[0], "the rate rises first"
    assert scales["network.encoders.0.layers.2.input.weight"] == pytest.approx(1 / 2.6, rel=1e-3)
    assert scales["network.embedding.tokens.weight"] == 1.0
    for depth, name in enumerate(("embedding.tokens", *(f"encoders.0.layers.{n}.input" for n in range(3)))):
        assert task_scales[f"network.{name}.weight"] == pytest.approx(2.6 ** (depth - 4), rel=1e-3)
    assert task_scales["heads.classify.head.hidden.dense.weight"] == 1.0
    made = open_artifact(tmp_path / "m").manifest
    assert [one["stage"] for one in made.metrics["stages"]] == ["task"]
    recipe = load(tmp_path / "m").recipe
    assert (recipe.head.pooling, recipe.head.hidden, recipe.strategy) == ("concat", 50, "ulmfit")
    assert recipe.network.encoder.weight_drop > 0, "a network pre-trained without dropout gets some"
    assert arrays(tmp_path / "m")["heads.classify.head.hidden.dense.weight"].shape == (50, 3 * 16)


def test_a_domain_replaces_the_text_of_the_examples(model: Path, tmp_path: Path) -> None:
    tune(model, tmp_path / "m", domain=text(30, seed=8))
    assert [one["stage"] for one in open_artifact(tmp_path / "m").manifest.metrics["stages"]] == ["domain"]
    tune(model, tmp_path / "both", domain=text(30, seed=8), task_text=True)
    stages = open_artifact(tmp_path / "both").manifest.metrics["stages"]
    assert [one["stage"] for one in stages] == ["domain", "task"]


def test_every_layer_is_trained_in_the_last_epoch(model: Path, tmp_path: Path) -> None:
    tune(model, tmp_path / "m", settings=["learning.batch=60"])
    assert load(tmp_path / "m").recipe.learning.epochs >= 3 + 2


@pytest.mark.parametrize("moment", [2, 7, 13, 21], ids=lambda moment: f"after-{moment}-saves")
def test_interrupted_anywhere_it_ends_with_the_same_bits(
    moment: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(model, tmp_path / "whole")
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    kept, stages = trainers.NetTrainer.save, []

    def stop(trainer: Any) -> None:
        kept(trainer)
        stages.append(type(trainer.module).__name__)
        if len(stages) == moment:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainers.NetTrainer, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            tune(model, tmp_path / "parts")
    assert stages[-1] == ("TrainingModule" if moment < 10 else "TaskTrainingModule"), "both stages are interrupted"
    tune(model, tmp_path / "parts", resume=True)
    one, two = arrays(tmp_path / "whole"), arrays(tmp_path / "parts")
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not (tmp_path / "parts.stages").exists()


@pytest.mark.parametrize("name", ["gpt", "bert", "elmo"])
def test_other_language_models(name: str, tmp_path: Path) -> None:
    settings = {"embedding": {"width": 16}, "encoder": {"width": 16, "layers": 2, "ffn_width": 32, "heads": 2}}
    if name == "elmo":
        settings["encoder"].pop("heads")
    lines = text(60, seed=1)
    firth.train(name, lines, out=tmp_path / "m", settings=settings, budget="2ktok", threads=1, size="tiny")
    tune(tmp_path / "m", tmp_path / "t")
    recipe = load(tmp_path / "t").recipe
    assert recipe.strategy == "ulmfit"
    assert recipe.head.pooling == {"gpt": "concat", "bert": "first", "elmo": "mean"}[name]
    assert recipe.network.encoder.dropout > 0


def test_refusals(model: Path, tmp_path: Path) -> None:
    firth.train("skipgram", text(60, seed=1), out=tmp_path / "v", settings={"dimension": 8}, threads=1)
    with pytest.raises(AbilityError, match="layer by layer"):
        tune(tmp_path / "v", tmp_path / "a")
    with pytest.raises(RecipeError, match="gradual"):
        finetune(model, "generate", train=[("a b", "a")], dev=[("a b", "a")], out=tmp_path / "b", strategy="ulmfit")
    tasks = {"task": [{"name": "a", "task": "classify", "train": EXAMPLES[:60], "dev": EXAMPLES[60:]}]}
    with pytest.raises(RecipeError, match="one task"):
        finetune(model, "many", tasks=tasks, out=tmp_path / "c", strategy="ulmfit")
    given = ("--train", "x.tsv", "--dev", "x.tsv", "-o", tmp_path / "d", "--strategy", "ulmfitt")
    assert_refused(command("finetune", model, "classify", *given), "ulmfit", code=2)


def test_adapting_may_change_dropout_and_nothing_else(model: Path, tmp_path: Path) -> None:
    firth.adapt(model, text(20, seed=3), out=tmp_path / "a", settings={"encoder.weight_drop": 0.25}, budget="500tok")
    assert load(tmp_path / "a").recipe.encoder.weight_drop == 0.25
    with pytest.raises(RecipeError, match="encoder"):
        firth.adapt(model, text(20, seed=3), out=tmp_path / "b", settings={"encoder.width": 8}, budget="500tok")


def test_the_recipe_can_be_written_and_read(model: Path) -> None:
    manifest = json.loads((model / "manifest.json").read_text())
    assert manifest["recipe"]["objectives"]["clm"]["activation_penalty"] == 2.0
    assert override(load(model).recipe, ["encoder.output_dropout=none"]).encoder.output_dropout is None  # type: ignore[union-attr]
