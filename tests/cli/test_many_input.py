"""Wrong files of tasks and wrong options of several tasks: one sentence each, before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.models import load, save
from firth.errors import ArtifactError, FirthError
from firth.fit.finetune import finetune
from firth.nets.restore import HEADS
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.tasks.many import ManyModel, restore_many
from firth.tasks.recipe import ManyRecipe, NamedTask, TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.task import TaskModel
from firth.tasks.task_file import read_tasks
from tests.artifact.formats.small_tasks import task_model
from tests.command import assert_refused, firth
from tests.fit.small_nets import small_bert

TASK = '[[task]]\nname = "texts"\ntask = "classify"\ntrain = "texts.tsv"\ndev = "texts.tsv"\n'


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("input")
    with small_bert(home, "500tok", layers=1) as folder:
        (home / "texts.tsv").write_text("label\ttext_a\n0\tw1 w2\n1\tw3 w4\n" * 1 + "0\tw5\n1\tw6\n")
        yield folder


def tune(bert: Path, content: str | bytes, tmp_path: Path, *more: object) -> Any:
    path = bert.parent / "tasks.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return firth("finetune", bert, "many", "--tasks", path, "-o", tmp_path / "m", "--threads", 1, *more)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["lists no tasks", "[[task]]"]),
        ("task = []", ["lists no tasks"]),
        ("task = 3", ["lists no tasks"]),
        ('task = ["a"]', ["task 1 is no table"]),
        ("[[task]\n", ["is not TOML", "[[task]]"]),
        (b"\xff\xfe\x00", ["is not TOML"]),
        ("mixin = 1\n" + TASK, ["unknown key 'mixin'", "did you mean 'mixing'?"]),
        (TASK + "wieght = 2", ["unknown key 'wieght'", "did you mean 'weight'?"]),
        ('mixing = "sizes"\n' + TASK, ["no mixing 'sizes'", "did you mean 'size'?"]),
        ("mixing = 3\n" + TASK, ["no mixing 3"]),
        (TASK.replace("classify", "clasify"), ["no task 'clasify'", "did you mean 'classify'?"]),
        (TASK.replace("classify", "generate"), ["no task 'generate'", "share a network"]),
        (TASK.replace('"classify"', "[1]"), ["no task [1]"]),
        (TASK.replace('dev = "texts.tsv"\n', ""), ["task 1 lacks dev"]),
        (TASK.replace('"texts.tsv"', '"nothing.tsv"'), ["nothing.tsv"]),
        (TASK.replace('"texts.tsv"', "7"), ["train must be the path of a file, not 7"]),
        (TASK + TASK, ["two tasks are named texts"]),
        (TASK.replace('"texts"', '"a b"'), ["letters, digits, - and _"]),
        (TASK.replace('"texts"', "3"), ["name must be a string, not 3"]),
        (TASK.replace('"texts"', '"mlm"'), ["mlm is the name of an objective"]),
        (TASK + "weight = 0", ["the weight of texts is 0"]),
        (TASK + "weight = -1", ["the weight of texts is -1"]),
        (TASK + "weight = nan", ["the weight of texts is nan"]),
        (TASK + "weight = inf", ["the weight of texts is inf"]),
        (TASK + "weight = true", ["weight must be a number above 0, not True"]),
        (TASK + 'weight = "much"', ["weight must be a number above 0, not 'much'"]),
        (TASK + "columns = 3", ["columns must be a table"]),
        (TASK + 'columns = { txt = "a" }', ["no part 'txt'"]),
        (TASK + 'set = { "learning.lr" = 0.1 }', ["learning.lr=0.1 concerns all tasks", "--set"]),
        (TASK + 'set = { "network.encoder.dropout" = 0.1 }', ["concerns all tasks"]),
        (TASK + "set = { head = [1] }", ["set.head must be text"]),
        (TASK + 'set = { "head.dropout" = 2 }', ["head.dropout=2"]),
        (TASK + 'set = { "head.answer" = "san" }', ["head.answer=san gives the labels of pairs"]),
    ],
)
def test_wrong_files_of_tasks(content: str | bytes, parts: list[str], bert: Path, tmp_path: Path) -> None:
    assert_refused(tune(bert, content, tmp_path), *parts)
    assert not (tmp_path / "m").exists()


def test_an_unknown_field_of_a_head_is_wrong_usage(bert: Path, tmp_path: Path) -> None:
    assert_refused(tune(bert, TASK + 'set = { "head.dropot" = 0 }', tmp_path), "head.dropot", code=2)


def test_no_file_of_tasks(bert: Path, tmp_path: Path) -> None:
    given = ("finetune", bert, "many", "-o", tmp_path / "m")
    assert_refused(firth(*given, "--tasks", tmp_path / "tasks.toml"), "tasks.toml cannot be read")
    assert_refused(firth(*given, "--tasks", tmp_path), "cannot be read")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    assert_refused(firth(*given, "--tasks", tmp_path / "large.toml"), "larger than 1 MB")


def test_options_that_do_not_go_with_several_tasks(bert: Path, tmp_path: Path) -> None:
    out, file = ("-o", tmp_path / "m"), bert.parent / "texts.tsv"
    many = ("finetune", bert, "many", *out)
    assert_refused(firth(*many), "many needs the file that lists the tasks: give --tasks", code=2)
    for option in ("--train", "--dev", "--test", "--decoder"):
        assert_refused(firth(*many, "--tasks", "t.toml", option, file), f"leave {option} out", code=2)
    assert_refused(firth(*many, "--tasks", "t.toml", "--field", "label=a"), "leave --field out", code=2)
    single = ("finetune", bert, "classify", *out)
    assert_refused(
        firth(*single, "--train", file, "--dev", file, "--tasks", "t.toml"), "--tasks is for several", code=2
    )
    assert_refused(firth(*single), "classify needs labelled examples: give --train and --dev", code=2)
    assert_refused(firth(*single, "--train", file), "give --dev", code=2)
    assert_refused(firth("finetune", bert, "mny", *out), "did you mean 'many'?", code=2)
    with pytest.raises(FirthError, match="many needs the file that lists the tasks: give tasks"):
        finetune(bert, "many", out=tmp_path / "m")


def test_models_without_a_network(bert: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("w1 w2 w3\n" * 20)
    assert firth("train", "mkn3", text, "-o", tmp_path / "kn").code == 0
    (bert.parent / "tasks.toml").write_text(TASK)
    given = ("finetune", tmp_path / "kn", "many", "--tasks", bert.parent / "tasks.toml", "-o", tmp_path / "m")
    assert_refused(firth(*given), "has no network that tasks could share")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    path = tmp_path / "sets" / "tasks.toml"
    path.write_text(TASK.replace('dev = "texts.tsv"', 'dev = "builtin:pydoc"') + 'columns = { text_a = "review" }\n')
    (found,) = read_tasks(path).tasks
    assert (found.train, found.dev, found.test) == (tmp_path / "sets" / "texts.tsv", "builtin:pydoc", None)
    assert (found.columns, found.weight, read_tasks(path).mixing) == (("text_a=review",), 1.0, "size")


def small_many() -> ManyModel:
    """An untrained BERT with two heads."""
    one = task_model("bert", "classify")
    recipe = TaskRecipe(task="tag", network=one.recipe.network, labels=("O", "B-X"), learning=one.recipe.learning)
    tag = TaskModel(recipe, one.base, make_task(recipe, one.base.network.vocabulary))
    named = tuple(NamedTask(name=name, recipe=each.recipe) for name, each in (("texts", one), ("tags", tag)))
    many = ManyRecipe(network=one.recipe.network, tasks=named, learning=one.recipe.learning)
    return ManyModel(many, one.base, {"texts": one, "tags": tag})


def restore(model: ManyModel, arrays: dict[str, Any]) -> ManyModel:
    return restore_many(model.recipe, arrays, model.tokenizer, model.base.layout)


def test_heads_that_do_not_fit_the_recipe() -> None:
    model = small_many()
    arrays = model.arrays()
    assert restore(model, arrays).arrays().keys() == arrays.keys()
    head = "tasks.tags.head.classifier.weight"
    without = {name: array for name, array in arrays.items() if name != head}
    with pytest.raises(ArtifactError, match=r"'head.classifier.weight' is missing"):
        restore(model, without)
    with pytest.raises(ArtifactError, match=r"has the shape \(3, .*\), not \(2, "):
        restore(model, arrays | {head: np.concatenate([arrays[head], arrays[head][:1]])})
    for name in ("tasks.other.head.classifier.weight", "tasks.tags"):
        with pytest.raises(ArtifactError, match="the recipe has no task with the tensor"):
            restore(model, arrays | {name: arrays[head]})
    with pytest.raises(ArtifactError, match="no tensor"):
        restore(model, arrays | {"tasks.tags.more": arrays[head]})
    assert not any(name.startswith(f"{HEADS}tags") for name in arrays)


def test_recipes_that_are_damaged(tmp_path: Path) -> None:
    model = small_many()
    save(
        tmp_path / "m",
        model,
        name="bert-many",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": 0.0}},
        corpus={"layout": "lines"},
        seed=0,
        metrics={},
    )
    again = load(tmp_path / "m")
    assert again.predict(["a"], task="texts") == model.predict(["a"], task="texts")
    data = json.loads(json.dumps(recipe_to_json(model.recipe)))
    wrong: list[dict[str, Any]] = [
        data | {"tasks": [1]},
        data | {"tasks": {"texts": 3}},
        data | {"tasks": {"texts": data["tasks"]["texts"] | {"weight": "x"}}},
        data | {"tasks": {"texts": data["tasks"]["texts"] | {"weight": -1.0}}},
        data | {"tasks": {"texts": data["tasks"]["texts"] | {"labels": 3}}},
        data | {"tasks": {"te xts": data["tasks"]["texts"]}},
        data | {"tasks": {"texts": data["tasks"]["texts"] | {"task": "generate"}}},
        data | {"mixing": "other"},
        {name: value for name, value in data.items() if name != "network"},
    ]
    assert recipe_from_json(data) == model.recipe
    for one in wrong:
        with pytest.raises(FirthError):
            recipe_from_json(one)
    with pytest.raises(ArtifactError, match="names no task"):
        restore_many(ManyRecipe(network=model.recipe.network), model.arrays(), model.tokenizer, model.base.layout)
