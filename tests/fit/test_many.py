"""Several tasks in one run: mixing, exact gradients, resuming, the artifact, and starting again from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth as package
from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError, RecipeError
from firth.fit import task_training
from firth.fit.batches import Cursor
from firth.fit.finetune import finetune
from firth.fit.loop import backward
from firth.fit.run import Budget
from firth.fit.search import finetune_all
from firth.fit.task_training import TaskBatches, TaskMixture, TaskTrainingModule, mixing_shares
from firth.fit.trainer import NetTrainer
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.records import loss_curves
from firth.tasks.many import ManyModel
from firth.tasks.recipe import TaskRecipe, default_learning
from firth.tasks.sequences import InputSequence
from tests.command import assert_refused, firth
from tests.contracts.test_tasks import MODELS, TEXT, main_metric, make_examples
from tests.fit.small_nets import sentences, small_bert

LINES = sentences(60, seed=5)
TEXTS = [(str(int("w3" in line.split())), line) for line in LINES]
PAIRS = [("same" if one == two else "other", one, two) for one, two in zip(LINES, LINES[:30] * 2, strict=True)]
TAGS = [(line.split(), ["B-X" if word == "w3" else "O" for word in line.split()]) for line in LINES[:24]]
SCORES = [(f"{number / 10}", line, line) for number, line in enumerate(LINES[:30])]
QUICK = ["learning.epochs=2", "learning.batch=8", "learning.lr=0.005"]
STILL = ["learning.epochs=1", "learning.lr=1e-12", "learning.weight_decay=0", "learning.batch=8"]


def entry(name: str, task: str, examples: list[Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "task": task, "train": examples, "dev": examples[-12:], **more}


def four() -> list[dict[str, Any]]:
    return [
        entry("texts", "classify", TEXTS),
        entry("pairs", "pair", PAIRS, set={"head.answer": "san", "head.turns": 2}, weight=0.5),
        entry("scores", "pair", SCORES),
        entry("tags", "tag", TAGS, test=TAGS[:9]),
    ]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_bert(tmp_path_factory.mktemp("many"), "5ktok") as folder:
        yield folder


@pytest.fixture(scope="module")
def tuned(bert: Path) -> Path:
    """A model of four tasks."""
    tune(bert, bert.parent / "tuned")
    return bert.parent / "tuned"


def tune(model: Path, out: Path, tasks: Any = None, mixing: str = "size", **given: Any) -> Any:
    settings = given.pop("settings", QUICK)
    listed = {"task": four() if tasks is None else tasks, "mixing": mixing}
    return finetune(model, "many", tasks=listed, out=out, settings=settings, threads=1, **given)


def arrays(path: Path) -> dict[str, Any]:
    return dict(load(path).arrays())


def digests(path: Path) -> str:
    return open_artifact(path).manifest.files["model.safetensors"].sha256


def sequence_batches(count: int, batch: int, token: int) -> TaskBatches:
    """Examples of which each is one sequence with its own number, beginning at `token`."""
    recipe = TaskRecipe(learning=default_learning().__class__(batch=batch))
    rows = [[InputSequence(np.array([token + number]), labels={})] for number in range(count)]
    return TaskBatches(rows, recipe, seed=3)


def read_epochs(mixture: TaskMixture, epochs: int) -> list[list[tuple[str, tuple[int, ...]]]]:
    """The task and the examples of each step, epoch by epoch."""
    found: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(epochs)]
    cursor = Cursor(0, 0)
    while cursor.epoch < epochs:
        (batch,), after = mixture.step(cursor)
        assert batch.objectives is not None
        found[cursor.epoch].append((*batch.objectives, tuple(sorted(batch.ids.flatten().tolist()))))
        cursor = after
    return found


def mix(mixing: Any, seed: int = 0) -> TaskMixture:
    tasks = [sequence_batches(30, 3, 100), sequence_batches(6, 3, 500)]
    return TaskMixture(tasks, [frozenset({"large"}), frozenset({"small"})], mixing, seed)


def test_an_epoch_by_size_has_every_example_once_in_a_new_order() -> None:
    epochs = read_epochs(mix("size"), 3)
    for epoch in epochs:
        assert sorted(one for _, ids in epoch for one in ids) == [*range(100, 130), *range(500, 506)]
        assert Counter(name for name, _ in epoch) == {"large": 10, "small": 2}
    assert len({tuple(name for name, _ in epoch) for epoch in epochs}) > 1, "the order of tasks is another one"
    assert read_epochs(mix("size"), 3) == epochs
    assert read_epochs(mix("size", seed=1), 3) != epochs


@pytest.mark.parametrize(("mixing", "shares"), [("size", [10, 2]), ("sqrt", [8, 4]), ("equal", [6, 6])])
def test_the_proportions_of_tasks(mixing: Any, shares: list[int]) -> None:
    mixture = mix(mixing)
    assert mixture.shares == shares == mixing_shares([10, 2], mixing)
    epochs = read_epochs(mixture, 10)
    for epoch in epochs:
        counts = Counter(name for name, _ in epoch)
        assert [counts["large"], counts["small"]] == shares
    # However often a task comes, its examples are read equally often.
    for task, first, count in (("large", 100, 30), ("small", 500, 6)):
        seen = Counter(one for epoch in epochs for name, ids in epoch if name == task for one in ids)
        assert set(seen) == set(range(first, first + count))
        assert max(seen.values()) - min(seen.values()) <= 1
    expected = 30 * shares[0] / 10 + 6 * shares[1] / 2
    assert mixture.tokens == pytest.approx(expected, abs=1)


def test_any_step_can_be_made_directly() -> None:
    mixture, cursor, found = mix("sqrt"), Cursor(0, 0), {}
    for _ in range(60):
        (batch,), after = mixture.step(cursor)
        found[cursor] = batch.ids.tolist()
        cursor = after
    again = mix("sqrt")
    for cursor in sorted(found, reverse=True):
        assert again.step(cursor)[0][0].ids.tolist() == found[cursor]


def module_of(bert: Path, tasks: list[dict[str, Any]], out: Path, settings: list[str]) -> NetTrainer:
    """The trainer of a run, before its first step."""
    seen: list[NetTrainer] = []

    def look(trainer: NetTrainer) -> None:
        seen.append(trainer)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NetTrainer, "train", look)
        with pytest.raises(KeyboardInterrupt):
            tune(bert, out, tasks, settings=settings)
    return seen[0]


CALM = [f"{one}=0" for one in ("head.dropout", "network.embedding.dropout", "network.encoder.dropout")]
CALM += ["network.encoder.attention_dropout=0"]


def test_a_batch_trains_its_task_alone_with_its_weight(bert: Path, tmp_path: Path) -> None:
    trainer = module_of(bert, four(), tmp_path / "m", [*QUICK, *CALM])
    module = trainer.module
    assert isinstance(module, TaskTrainingModule)
    assert module.weights() == {"texts": 1.0, "pairs": 0.5, "scores": 1.0, "tags": 1.0}
    seen = set()
    cursor = Cursor(0, 0)
    for _ in range(20):
        parts, cursor = trainer.batches.step(cursor)
        (name,) = parts[0].objectives or ()
        seen.add(name)
        module.zero_grad()
        losses = backward(module, parts, 0, 0)
        assert set(losses) == {name}
        for key, parameter in module.heads.named_parameters():
            has_gradient = parameter.grad is not None and bool((parameter.grad != 0).any())
            assert not has_gradient or key.startswith(f"task-{name}.")
        assert module.network.embedding.table.grad is not None
        assert module.flops(parts[0]) > 0
    assert seen == set(module.weights())


def test_the_weight_scales_the_gradient(bert: Path, tmp_path: Path) -> None:
    gradients = []
    for weight in (1.0, 0.25):
        tasks = [entry("texts", "classify", TEXTS, weight=weight)]
        trainer = module_of(bert, tasks, tmp_path / f"m{weight}", [*QUICK, *CALM])
        parts, _ = trainer.batches.step(Cursor(0, 0))
        trainer.module.zero_grad()
        backward(trainer.module, parts, 0, 0)
        gradient = trainer.module.network.embedding.table.grad
        assert gradient is not None
        gradients.append(gradient.clone())
    assert torch.allclose(0.25 * gradients[0], gradients[1], atol=1e-9)
    assert float(gradients[0].abs().max()) > 0


def test_one_task_in_the_file_is_that_task_alone(bert: Path, tmp_path: Path) -> None:
    """The same batches in another order; with one batch a pass, the same numbers bit for bit."""
    settings = ["learning.epochs=6", "learning.batch=60", "learning.lr=0.005"]
    tune(bert, tmp_path / "many", [entry("texts", "classify", TEXTS)], settings=settings)
    finetune(bert, "classify", train=TEXTS, dev=TEXTS[-12:], out=tmp_path / "one", settings=settings, threads=1)
    many, one = arrays(tmp_path / "many"), arrays(tmp_path / "one")
    renamed = {name.replace("tasks.texts.", "heads.classify."): array for name, array in many.items()}
    assert renamed.keys() == one.keys()
    assert all(np.array_equal(renamed[name], one[name]) for name in one)


def test_micro_batches_have_the_same_gradients(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [*QUICK, *CALM, "learning.epochs=1", "learning.optimiser=sgd"]
    tasks = [one for one in four() if one["name"] != "pairs"]  # whose turns are left out by chance
    tune(bert, tmp_path / "whole", tasks, settings=settings)
    tune(bert, tmp_path / "parts", tasks, settings=[*settings, "learning.grad_accumulation=3"])
    monkeypatch.setattr(task_training, "_MAX_TOKENS", 60)
    tune(bert, tmp_path / "limited", tasks, settings=settings)
    whole = arrays(tmp_path / "whole")
    for name in ("parts", "limited"):
        other = arrays(tmp_path / name)
        assert all(np.allclose(whole[key], other[key], rtol=0, atol=1e-5) for key in whole)
        assert any(not np.array_equal(whole[key], other[key]) for key in whole)


def test_metrics_and_curves_of_each_task(tuned: Path) -> None:
    manifest = open_artifact(tuned).manifest
    found = manifest.metrics["tasks"]
    assert {name: one["task"] for name, one in found.items()} == {
        "texts": "classify",
        "pairs": "pair",
        "scores": "pair",
        "tags": "tag",
    }
    assert {name: one["dev"]["main"] for name, one in found.items()} == {
        "texts": "accuracy",
        "pairs": "accuracy",
        "scores": "spearman",
        "tags": "entity_f1",
    }
    for one in found.values():
        main = one["dev"]["main"]
        assert len(one["dev"][f"{main}_interval"]) == 2
        assert one["batches"] == -(-one["examples"] // 8)
    assert found["tags"]["test"]["examples"] == 9
    assert "test" not in found["texts"]
    mains = [one["dev"][one["dev"]["main"]] for one in found.values()]
    assert manifest.metrics["mean"] == pytest.approx(np.mean(mains))
    assert manifest.metrics["examples"] == sum(one["examples"] for one in found.values()) == 174
    records = [json.loads(line) for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    assert {name for record in records for name in record["losses"]} == set(found)
    validated = [record for record in records if "valid_tasks" in record]
    assert len(validated) == 2, "one after each epoch"
    for record in validated:
        means = [one["valid_loss"] for one in record["valid_tasks"].values()]
        assert record["valid_loss"] == pytest.approx(np.mean(means))
    best = min(record["valid_loss"] for record in validated)
    alone = [one["linear"]["head"] for one in found.values()]  # the network without linear models, which only add to it
    assert np.mean(alone) == pytest.approx(1 - best), "the saved parameters are the best in the mean"
    assert manifest.metrics["mean"] >= np.mean(alone)
    drawn = [one.name for one in loss_curves(records, "losses")]
    assert sorted(drawn) == sorted(found), "a curve for each"
    assert (tuned / "curve.svg").stat().st_size > 10_000


def test_every_kind_of_task_is_memorised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))
    package.train("bert", TEXT, out=tmp_path / "bert", settings=MODELS["bert"], budget="10ktok", threads=1)
    kinds = ("classify", "pair", "tag", "span", "choice")
    settings = [*CALM, "head.pooler=false", "learning.epochs=150", "learning.batch=4", "learning.lr=0.01"]
    settings += ["head.crf=false", "linear_weight=0"]
    tasks = [entry(task, task, make_examples(task)) for task in kinds]
    tuned = tune(tmp_path / "bert", tmp_path / "m", tasks, settings=settings)
    found = open_artifact(tmp_path / "m").manifest.metrics["tasks"]
    assert {task: main_metric(found[task]["dev"]) for task in kinds} == pytest.approx(dict.fromkeys(kinds, 1.0))
    ranked = {key: value for key, value in make_examples("choice")[0].items() if key != "label"}
    assert tuned.predict([ranked], task="choice")[0]["choice"] == 1


def test_a_causal_network_adds_its_own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))
    package.train("gpt", TEXT, out=tmp_path / "gpt", settings=MODELS["gpt"], budget="5ktok", threads=1)
    tasks = [entry(task, task, make_examples(task)) for task in ("classify", "tag")]
    tune(tmp_path / "gpt", tmp_path / "m", tasks, settings=["learning.epochs=3", "learning.batch=2"])
    records = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    assert {name for record in records for name in record["losses"]} == {"classify", "tag", "clm"}
    assert load(tmp_path / "m").recipe.tasks[0].recipe.lm_weight == 0.5


@pytest.mark.parametrize("budget", ["600tok", "2e7flop", "2s"])
def test_a_budget_limits_all_tasks_together(budget: str, bert: Path, tmp_path: Path) -> None:
    tune(bert, tmp_path / "m", budget=budget, settings=["learning.batch=8"])
    found, asked = open_artifact(tmp_path / "m").manifest.budget, Budget.parse(budget)
    assert found["asked"] == budget
    if asked.unit == "seconds":
        assert 1 < found["spent"]["seconds"] < 4
    else:
        assert found["spent"][asked.unit] == pytest.approx(asked.amount, rel=0.15)


def test_epochs_and_rates_are_those_of_all_examples(bert: Path, tmp_path: Path) -> None:
    trainer = module_of(bert, four(), tmp_path / "m", [])
    assert (trainer.recipe.learning.batch, trainer.recipe.learning.epochs) == (16, 20)
    assert trainer.recipe.learning.lr == pytest.approx(1.064 / 16**1.5)
    large = [entry("texts", "classify", TEXTS * 250)]
    learning = module_of(bert, large, tmp_path / "n", []).recipe.learning
    assert (learning.batch, learning.epochs) == (32, 5), "as published"


def test_a_run_killed_again_and_again_ends_with_the_same_digest(bert: Path, tmp_path: Path) -> None:
    """kill -9 at any moment; resumed with the same file of tasks."""
    for name, examples in (("texts", TEXTS), ("pairs", PAIRS)):
        columns = ["label", "text_a", "text_b"][: len(examples[0])]
        rows = ["\t".join(columns), *("\t".join(one) for one in examples)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "tags.txt").write_text(
        "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in zip(*one, strict=True)) for one in TAGS) + "\n"
    )
    listed = ['mixing = "sqrt"']
    for name, task, ending in (("texts", "classify", "tsv"), ("pairs", "pair", "tsv"), ("tags", "tag", "txt")):
        file = f'"{name}.{ending}"'
        listed.append(f'[[task]]\nname = "{name}"\ntask = "{task}"\ntrain = {file}\ndev = {file}')
    (tmp_path / "tasks.toml").write_text("\n".join([*listed, 'set = ["head.crf=true"]\n']))
    command = [
        *(sys.executable, "-m", "firth", "finetune", str(bert), "many", "--tasks", str(tmp_path / "tasks.toml")),
        *("--threads", "1", "--set", "learning.epochs=12", "--set", "learning.batch=8"),
    ]
    environment = os.environ | {"FIRTH_CHECKPOINT": "0"}
    subprocess.run([*command, "-o", str(tmp_path / "whole")], check=True, env=environment, capture_output=True)
    manifest = tmp_path / "parts" / "checkpoint" / "manifest.json"
    killed = 0
    for steps in (3, 40, 90):
        resume = ["--resume"] if killed else []
        process = subprocess.Popen(
            [*command, "-o", str(tmp_path / "parts"), *resume], env=environment, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not (_steps(manifest) >= steps):
            time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed >= 2
    subprocess.run(
        [*command, "-o", str(tmp_path / "parts"), "--resume"], check=True, env=environment, capture_output=True
    )
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")
    other = firth(*command[3:], "-o", tmp_path / "other", "--seed", 1)
    assert other.code == 0
    assert digests(tmp_path / "other") != digests(tmp_path / "whole")


def _steps(manifest: Path) -> int:
    try:
        return int(json.loads(manifest.read_text())["state"]["state"]["step"])
    except (OSError, ValueError, KeyError):
        return -1


def test_the_model_predicts_any_of_its_tasks(tuned: Path, tmp_path: Path) -> None:
    model: Any = package.load(tuned)
    assert isinstance(model, ManyModel)
    assert model.predict(["w3 w1"], task="texts")[0]["label"] in ("0", "1")
    assert model.predict([("w3", "w1")], task="pairs")[0]["label"] in ("same", "other")
    assert set(model.predict([("w3", "w1")], task="scores")[0]) == {"score"}
    assert len(model.predict([["w3", "w1"]], task="tags")[0]["tags"]) == 2
    assert "texts (classify)" in repr(model)
    with pytest.raises(AbilityError, match="several tasks: name one with task: pairs, scores, tags, texts"):
        model.predict(["w3 w1"])
    with pytest.raises(AbilityError, match="no task 'text': did you mean 'texts'"):
        model.predict(["w3 w1"], task="text")
    assert package.predict(tuned, ["w3 w1"], task="texts") == model.predict(["w3 w1"], task="texts")
    file = tmp_path / "texts.tsv"
    file.write_text("label\ttext_a\n" + "".join(f"{label}\t{text}\n" for label, text in TEXTS[-12:]))
    rows = firth("predict", tuned, file, "--task", "texts", "--json").json
    assert rows["task"] == "classify"
    assert len(rows["predictions"]) == 12
    report = firth("evaluate", tuned, "task", file, "--task", "texts", "--json").json
    saved = open_artifact(tuned).manifest.metrics["tasks"]["texts"]["dev"]
    assert report["accuracy"] == saved["accuracy"] == package.evaluate(tuned, "task", file, task="texts")["accuracy"]
    page = tmp_path / "page.html"
    assert firth("evaluate", tuned, "task", file, "--task", "texts", "-o", page).code == 0
    assert "tuned, texts" in page.read_text()
    assert_refused(firth("predict", tuned, file), "name one with --task: pairs, scores, tags, texts")
    assert_refused(firth("predict", tuned, file, "--task", "tekst"), "did you mean 'texts'?")
    assert_refused(firth("evaluate", tuned, "task", file), "name one with --task")
    assert_refused(firth("evaluate", tuned, "words", file, "--task", "texts"), "--task belongs to", code=2)


def test_one_task_needs_no_name(bert: Path, tmp_path: Path) -> None:
    tune(bert, tmp_path / "m", [entry("texts", "classify", TEXTS)])
    assert load(tmp_path / "m").predict(["w3 w1"])[0]["label"] in ("0", "1")


def test_a_name_of_a_task_for_a_model_of_one(bert: Path, tmp_path: Path) -> None:
    finetune(bert, "classify", train=TEXTS, dev=TEXTS, out=tmp_path / "m", settings=QUICK, threads=1)
    file = tmp_path / "a.txt"
    file.write_text("w1 w2\n")
    assert_refused(firth("predict", tmp_path / "m", file, "--task", "texts"), "leave --task out")


def test_the_artifact_is_described_verified_and_exported(tuned: Path, tmp_path: Path) -> None:
    manifest = open_artifact(tuned).manifest
    assert (manifest.kind, manifest.name, manifest.recipe["type"]) == ("tasks", "bert-many", "many")
    assert "network" not in manifest.recipe["tasks"]["texts"], "it is there once, for all tasks"
    recipe = load(tuned).recipe
    assert recipe_from_json(json.loads(json.dumps(recipe_to_json(recipe)))) == recipe
    assert {one.name: one.weight for one in recipe.tasks}["pairs"] == 0.5
    assert "texts (classify)" in firth("info", tuned).out
    assert firth("verify", tuned).code == 0
    card = (tuned / "card.md").read_text()
    assert "--task NAME" in card
    assert "Fine-tuned for texts, pairs, scores, tags from bert." in card
    assert "tasks.tags.dev.entity_f1" in card
    found = firth("export", tuned, "huggingface", tmp_path / "hf", "--task", "texts", "--json").json
    assert found["architecture"] == "BertForSequenceClassification"
    assert_refused(firth("export", tuned, "huggingface", tmp_path / "hf2"), "name one with --task")
    lines = tmp_path / "a.txt"
    lines.write_text("w1 w2\n")
    assert firth("embed", tuned, lines, "-o", tmp_path / "a.npy").code == 0
    assert firth("score", tuned, lines).code == 0
    assert firth("fill", tuned, "w1 [MASK]").code == 0


def test_starting_again_from_several_tasks(tuned: Path, tmp_path: Path) -> None:
    before = arrays(tuned)

    def same(name: str, old: str, new: str) -> bool:
        after = arrays(tmp_path / name)
        own = [key for key in before if key.startswith(old)]
        return bool(own) and all(np.allclose(before[key], after[key.replace(old, new, 1)], atol=1e-8) for key in own)

    finetune(tuned, "classify", train=TEXTS, dev=TEXTS, out=tmp_path / "one", settings=STILL, threads=1)
    assert same("one", "tasks.texts.", "heads.classify.")
    assert same("one", "encoders.", "encoders.")
    assert open_artifact(tmp_path / "one").manifest.name == "bert-classify"
    tasks = [entry("texts", "classify", TEXTS), entry("tags", "tag", TAGS), entry("more", "pair", SCORES)]
    tune(tuned, tmp_path / "many", tasks, settings=STILL)
    assert same("many", "tasks.texts.", "tasks.texts.")
    assert same("many", "tasks.tags.", "tasks.tags.")
    assert same("many", "tasks.scores.", "tasks.more."), "the only head for similarity, under another name"
    package.adapt(tuned, [LINES], out=tmp_path / "net", budget="500tok", threads=1)
    assert open_artifact(tmp_path / "net").manifest.kind == "nets"


def test_several_seeds_are_compared_by_the_mean(bert: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tasks": {"task": four()}, "settings": QUICK, "threads": 1}
    finetune_all(bert, "many", out=tmp_path / "m", seeds=2, **options)
    metrics = open_artifact(tmp_path / "m").manifest.metrics
    assert metrics["runs"][0]["metric"] == "mean"
    assert metrics["mean"] == max(metrics["runs"][0]["values"])


def test_stages_read_the_text_of_all_tasks(bert: Path, tmp_path: Path) -> None:
    tune(bert, tmp_path / "m", task_text=True, budget="500tok", settings=STILL)
    assert [one["stage"] for one in open_artifact(tmp_path / "m").manifest.metrics["stages"]] == ["task"]


def test_a_resumed_run_must_have_the_same_tasks(bert: Path, tmp_path: Path) -> None:
    module_of(bert, four(), tmp_path / "m", QUICK)
    with pytest.raises(RecipeError, match="unfinished training of something else"):
        tune(bert, tmp_path / "m", four()[:2], resume=True)
    with pytest.raises(RecipeError, match="unfinished training of something else"):
        tune(bert, tmp_path / "m", mixing="equal", resume=True)
