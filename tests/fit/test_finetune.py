"""Fine-tuning: strategies, resuming, stages and bad examples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import BudgetError, CorpusError, RecipeError
from firth.fit import task_training
from firth.fit import trainer as trainers
from firth.fit.finetune import finetune
from firth.fit.resolve_task import resolve_task
from firth.fit.run import Budget
from firth.fit.task_run import FinetuneRun
from firth.fit.task_training import TaskBatches, depths, lowest_trainable_depth
from firth.tasks.examples import TextExample
from tests.fit.small_nets import sentences, small, small_bert, text

EXAMPLES = [(str(int("w3" in line.split())), line) for line in sentences(80, seed=5)]
TUNING = ["learning.epochs=3", "learning.batch=8", "learning.lr=0.005"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_bert(tmp_path_factory.mktemp("tuning"), "5ktok") as folder:
        yield folder


def tune(model: Path, out: Path, **changes: Any) -> Any:
    given: dict[str, Any] = {"train": EXAMPLES[:60], "dev": EXAMPLES[60:], "threads": 1, "settings": TUNING}
    return finetune(model, "classify", out=out, **given | changes)


def arrays(path: Path) -> dict[str, Any]:
    return dict(load(path).arrays())


@pytest.mark.parametrize("strategy", ["frozen", "features"])
def test_what_is_frozen_does_not_change(strategy: str, model: Path, tmp_path: Path) -> None:
    tune(model, tmp_path / "m", strategy=strategy)
    before, after = arrays(model), arrays(tmp_path / "m")
    assert all(np.array_equal(before[name], after[name]) for name in before)
    metrics, own = open_artifact(tmp_path / "m").manifest.metrics, load(model).network.parameters()
    assert metrics["trainable_parameters"] == metrics["parameters"] - sum(one.numel() for one in own)


def test_frozen_layers_have_no_backward_pass(model: Path, tmp_path: Path) -> None:
    """A network that stays as it is goes forwards alone, a third of the arithmetic; the head's encoder comes on top."""

    def flops(name: str, strategy: str, *settings: str) -> float:
        tune(model, tmp_path / name, strategy=strategy, settings=[*TUNING, *settings])
        return float(open_artifact(tmp_path / name).manifest.budget["spent"]["flops"])

    frozen = flops("frozen", "frozen")
    assert flops("full", "full") == pytest.approx(3 * frozen)
    whole = flops("whole", "frozen", "head.token_width=8")
    assert flops("read", "frozen", "head.token_width=8", "head.encoder=lstm", "head.width=8") > 1.1 * whole


@pytest.mark.parametrize("strategy", ["full", "discriminative", "gradual"])
def test_trained_layers_change(strategy: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter(range(0, -100, -1))
    monkeypatch.setattr(
        FinetuneRun, "evaluate", lambda tuned: {"valid_loss": next(losses)}
    )  # the last state is the best
    tune(model, tmp_path / "m", strategy=strategy)
    before, after = arrays(model), arrays(tmp_path / "m")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert {"encoders.0.layers.1.attention.qkv.weight", "encoders.0.layers.0.attention.qkv.weight"} <= changed


def test_layers_thaw_from_the_top_one_a_pass(model: Path) -> None:
    network = load(model).network
    found = depths(network)
    assert found["embedding.tokens.weight"] == 0
    assert found["encoders.0.layers.0.norm1.weight"] == 1
    assert found["encoders.0.layers.1.norm1.weight"] == 2
    assert [lowest_trainable_depth(share, 2, 4) for share in (0, 0.25, 0.5, 0.75, 1.0)] == [3, 2, 1, 0, 0]


def test_lower_layers_have_lower_learning_rates(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, float] = {}

    def look(trainer: Any) -> None:
        names = {id(parameter): name for name, parameter in trainer.module.named_parameters()}
        for group in trainer.optimiser.param_groups:
            seen.update({names[id(one)]: group["scale"] for one in group["params"]})
        raise KeyboardInterrupt

    monkeypatch.setattr(trainers.NetTrainer, "train", look)
    with pytest.raises(KeyboardInterrupt):
        tune(model, tmp_path / "m", strategy="discriminative", settings=[*TUNING, "layer_decay=0.5"])
    assert seen["heads.classify.head.classifier.weight"] == 1.0
    assert seen["network.encoders.0.layers.1.norm1.weight"] == 0.5
    assert seen["network.encoders.0.layers.0.norm1.weight"] == 0.25
    assert seen["network.embedding.tokens.weight"] == 0.125


def test_an_interrupted_run_ends_with_the_same_bits(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(model, tmp_path / "whole")
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    kept = trainers.NetTrainer.save
    count = 0

    def stop(trainer: Any) -> None:
        nonlocal count
        kept(trainer)
        count += 1
        if count == 9:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainers.NetTrainer, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            tune(model, tmp_path / "parts")
    tune(model, tmp_path / "parts", resume=True)
    one, two = arrays(tmp_path / "whole"), arrays(tmp_path / "parts")
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_stages_are_reported_and_resumed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"domain": text(60, seed=9), "task_text": True, "budget": "2ktok"}
    tune(model, tmp_path / "whole", **more)
    stages = open_artifact(tmp_path / "whole").manifest.metrics["stages"]
    assert [one["stage"] for one in stages] == ["domain", "task"]
    assert all(one["budget"]["spent"]["tokens"] >= 1900 for one in stages)
    losses = [(one["dev_loss_before"], one["dev_loss"]) for one in stages]
    assert losses[1][0] == losses[0][1] != losses[0][0], "a stage begins where the one before it ended"
    assert losses[1][1] < losses[1][0], "the dev examples are of the same kind as the text of the task"
    assert not (tmp_path / "whole.stages").exists()
    with monkeypatch.context() as patch:
        patch.setattr(trainers.NetTrainer, "steps", interrupted_in_second(trainers.NetTrainer.steps))
        with pytest.raises(KeyboardInterrupt):
            tune(model, tmp_path / "parts", **more)
    assert (tmp_path / "parts.stages" / "1-domain" / "manifest.json").exists()
    tune(model, tmp_path / "parts", resume=True, **more)
    (tmp_path / "parts.stages").mkdir()  # left by a process that was killed after the model was saved
    tune(model, tmp_path / "parts", resume=True, **more)
    assert not (tmp_path / "parts.stages").exists()
    resumed = open_artifact(tmp_path / "parts").manifest.metrics["stages"]
    assert [(one["dev_loss_before"], one["dev_loss"]) for one in resumed] == losses
    one, two = arrays(tmp_path / "whole"), arrays(tmp_path / "parts")
    assert all(np.array_equal(one[name], two[name]) for name in one)


def interrupted_in_second(steps: Any) -> Any:
    calls = 0

    def run(trainer: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            trainer.save()
            raise KeyboardInterrupt
        return steps(trainer)

    return run


@pytest.mark.parametrize("budget", ["600tok", "3e6flop", "1s"])
def test_a_budget_without_a_stage_is_that_of_fine_tuning(budget: str, model: Path, tmp_path: Path) -> None:
    tune(model, tmp_path / "m", budget=budget, settings=["learning.epochs=2", "learning.batch=8"])
    found, asked = open_artifact(tmp_path / "m").manifest.budget, Budget.parse(budget)
    assert found["asked"] == budget
    if asked.unit == "seconds":
        assert 0.8 < found["spent"]["seconds"] < 1.5
        assert found["spent"]["tokens"] > 2 * 400, "more than the epochs"
    else:
        assert found["spent"][asked.unit] == pytest.approx(asked.amount, rel=0.1)
    with pytest.raises(BudgetError, match="cannot read the budget 'soon'"):
        tune(model, tmp_path / "n", budget="soon")


def test_large_batches_are_split_into_micro_batches(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are accumulated over micro-batches, with the same result."""
    still = [f"{one}=0" for one in ("head.dropout", "network.embedding.dropout", "network.encoder.dropout")]
    calm = [*TUNING, "learning.epochs=1", "learning.optimiser=sgd", *still, "network.encoder.attention_dropout=0"]
    tune(model, tmp_path / "whole", settings=calm)
    seen: list[int] = []
    step = TaskBatches.step

    def parted(batches: TaskBatches, *given: Any) -> Any:
        parts, after = step(batches, *given)
        seen.append(len(parts))
        assert all(part.ids.numel() <= 2 * 60 for part in parts)
        return parts, after

    monkeypatch.setattr(task_training, "_MAX_TOKENS", 60)
    monkeypatch.setattr(TaskBatches, "step", parted)
    tune(model, tmp_path / "parts", settings=calm)
    assert max(seen) > 1
    whole, parts = arrays(tmp_path / "whole"), arrays(tmp_path / "parts")
    assert all(np.allclose(whole[name], parts[name], rtol=0, atol=1e-5) for name in whole)
    assert any(not np.array_equal(whole[name], parts[name]) for name in whole)


def test_new_parameters_are_other_ones(model: Path, tmp_path: Path) -> None:
    tune(model, tmp_path / "m", random=True, strategy="frozen")
    before, after = arrays(model), arrays(tmp_path / "m")
    assert not np.array_equal(before["embedding.tokens.weight"], after["embedding.tokens.weight"])


def test_bad_examples(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="one label only"):
        tune(model, tmp_path / "m", train=[("1", "w1 w2"), ("1", "w3")])
    with pytest.raises(CorpusError, match="the label '7' is not among those"):
        tune(model, tmp_path / "m", dev=[("7", "w1 w2"), ("1", "w3")])
    tune(model, tmp_path / "m", dev=[("7", "w1 w2"), ("1", "w3")], skip_bad=True)


def test_examples_of_which_no_word_is_known_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = [("1", "天气 很 好"), ("0", "下雨 了")]
    with pytest.raises(CorpusError, match="knows no word of the training examples"):
        tune(model, tmp_path / "m", train=foreign)
    assert not (tmp_path / "m").exists()
    given = [*foreign * 20, ("1", "w1")]
    tune(model, tmp_path / "m", train=given, dev=foreign, settings=[*TUNING, "learning.batch=1"])
    assert "of the words are unknown to the tokenizer" in capsys.readouterr().err


def test_steps_without_any_token_count_as_training(model: Path, tmp_path: Path) -> None:
    blank = [("1", "\u0001"), ("0", "\u0002")] * 20
    tune(model, tmp_path / "m", train=[*blank, ("1", "w1")], settings=[*TUNING, "learning.batch=1"])
    assert open_artifact(tmp_path / "m").manifest.metrics["steps"] > 40
    with pytest.raises(RecipeError, match="no task 'clasify': did you mean 'classify'"):
        finetune(model, "clasify", train=EXAMPLES, dev=EXAMPLES, out=tmp_path / "n")
    with pytest.raises(RecipeError, match="no strategy 'frosen': did you mean 'frozen'"):
        tune(model, tmp_path / "n", strategy="frosen")


def test_the_artifact_is_enough(model: Path, tmp_path: Path) -> None:
    tuned = tune(model, tmp_path / "m")
    manifest = open_artifact(tmp_path / "m").manifest
    assert manifest.recipe["labels"] == ["0", "1"]
    assert manifest.metrics["dev"]["examples"] == 20
    assert json.loads(json.dumps(tuned.predict(["w3 w1"])))[0]["label"] in ("0", "1")


@pytest.mark.parametrize(("count", "batch", "epochs"), [(2, 16, 100), (60, 16, 25), (400, 16, 20), (1500, 32, 10)])
def test_few_examples_are_read_often(count: int, batch: int, epochs: int) -> None:
    examples = [TextExample("w1", None, (str(number % 2),)) for number in range(count)]
    learning = resolve_task("classify", small(), examples, None, []).learning
    assert (learning.batch, learning.epochs) == (batch, epochs)
    assert resolve_task("classify", small(), examples, None, ["learning.epochs=2"]).learning.epochs == 2
