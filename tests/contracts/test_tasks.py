"""One test over every task and every kind of model: a few examples are learnt by heart, labels by chance are not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.tasks.recipe import TASKS

NAMES = ("anna", "bert", "carl", "dora")
THINGS = ("ball", "book", "lamp", "ship")
COLOURS = ("red", "blue", "green", "white")
TEXT = [[f"{name} has a {colour} {thing} ." for thing in THINGS for colour in COLOURS] for name in NAMES] * 4
SMALL = ["tokenizer=words", "tokenizer.min_count=1"]
MODELS: dict[str, list[str]] = {
    "bert": [
        *SMALL,
        "embedding.width=32",
        "encoder.width=32",
        "encoder.inner=64",
        "encoder.layers=1",
        "encoder.heads=2",
    ],
    "gpt": [
        *SMALL,
        "embedding.width=32",
        "encoder.width=32",
        "encoder.inner=64",
        "encoder.layers=1",
        "encoder.heads=2",
    ],
    "elmo": [*SMALL, "embedding.width=16", "encoder.width=16", "encoder.inner=0", "embedding.characters=false"],
    "lstm": [*SMALL, "embedding.width=32", "encoder.width=32"],
    "skipgram": ["tokenizer.min_count=1", "dimension=16", "epochs=1"],
}
QUICK = [
    *("head.dropout=0", "network.encoder.dropout=0", "network.embedding.dropout=0"),
    *("learning.epochs=150", "learning.batch=4", "learning.rate=0.01"),
]

SLOWER = {"choice": ["head.pooler=false"], "generate": ["beams=2", "longest=4", "learning.epochs=200"]}
"""A pooler may be so sure that it stops learning, and a copy takes longer to learn."""


def items(task: str) -> list[Any]:
    """Four examples, each with its answer in it."""
    rng = random.Random(task)
    found: list[Any] = []
    for number in range(4):
        name, other = rng.sample(NAMES, 2)
        thing, second = rng.sample(THINGS, 2)
        colour, hue = rng.sample(COLOURS, 2)
        one, two = f"{name} has a {colour} {thing} .", f"{other} has a {hue} {second} ."
        if task == "classify":
            found.append((thing, one))
        elif task == "pair":
            found.append(("same", one, one) if number % 2 else ("other", one, two))
        elif task == "tag":
            found.append((one.split(), ["B-NAME", "O", "O", "O", "B-THING", "O"]))
        elif task == "span":
            place = f"{one} {two}".index(second)
            answers = [{"text": second, "answer_start": place}]
            found.append({"passage": f"{one} {two}", "question": f"{other} has a", "answers": answers})
        elif task == "choice":
            found.append({"context": one, "question": "it is", "choices": [hue, colour], "label": 1})
        else:
            found.append((one, f"{thing} {colour}"))
    return found


def measured(found: dict[str, Any]) -> float:
    names = ("entity_f1", "f1", "chrf", "accuracy")
    name = next(name for name in names if name in found)
    return float(found[name]) / (100 if name == "chrf" else 1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        for name, settings in MODELS.items():
            budget = None if name == "skipgram" else "10ktok"
            train(name, TEXT, out=folder / name, settings=settings, budget=budget, threads=1, reload=False)
        yield {name: folder / name for name in MODELS}


def can(model: str, task: str) -> bool:
    """Whether it makes sense: what does not write in one direction does not write."""
    return task != "generate" or model in ("bert", "gpt", "lstm")


EVERY = pytest.mark.parametrize(("model", "task"), [(m, t) for m in MODELS for t in TASKS if can(m, t)])


@EVERY
def test_a_few_examples_are_learnt_by_heart(model: str, task: str, models: dict[str, Path], tmp_path: Path) -> None:
    given = items(task)
    settings = [*QUICK, *SLOWER.get(task, []), *(["learning.rate=0.004"] if model in ("bert", "gpt") else [])]
    tuned = finetune(models[model], task, train=given, dev=given, out=tmp_path / "m", settings=settings, threads=1)
    assert measured(open_artifact(tmp_path / "m").manifest.metrics["dev"]) == pytest.approx(1.0, abs=1e-6)
    again = load(tmp_path / "m")
    asked = [unlabelled(task, item) for item in given]
    assert again.predict(asked) == tuned.predict(asked)


def unlabelled(task: str, item: Any) -> Any:
    if task in ("classify", "pair"):
        return item[1] if task == "classify" else item[1:]
    return item if isinstance(item, dict) else item[0]


@pytest.mark.parametrize("model", MODELS)
def test_labels_by_chance_are_not_predicted(model: str, models: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = [(str(rng.integers(2)), f"{n} has a {c} {t} .") for n in NAMES for c in COLOURS for t in THINGS]
    order = rng.permutation(len(given)).tolist()
    settings = ["learning.epochs=4", "learning.rate=0.003"]
    learnt, others = [given[one] for one in order[:32]], [given[one] for one in order[32:]]
    finetune(models[model], "classify", train=learnt, dev=learnt, test=others, out=tmp_path / "m", settings=settings)
    found = open_artifact(tmp_path / "m").manifest.metrics["test"]
    assert found["accuracy"] < 0.8, "32 labels by chance: five standard deviations above a half is 0.94"
