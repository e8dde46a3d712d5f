"""Tests over every task and kind of model: a few examples are memorised, random labels are not predicted."""

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
        "encoder.ffn_width=64",
        "encoder.layers=1",
        "encoder.heads=2",
    ],
    "gpt": [
        *SMALL,
        "embedding.width=32",
        "encoder.width=32",
        "encoder.ffn_width=64",
        "encoder.layers=1",
        "encoder.heads=2",
    ],
    "elmo": [*SMALL, "embedding.width=16", "encoder.width=16", "encoder.ffn_width=0", "embedding.characters=false"],
    "lstm": [*SMALL, "embedding.width=32", "encoder.width=32"],
    "skipgram": ["tokenizer.min_count=1", "dimension=16", "epochs=1"],
}
QUICK = [
    *("head.dropout=0", "network.encoder.dropout=0", "network.embedding.dropout=0"),
    *("learning.epochs=150", "learning.batch=4", "learning.lr=0.01"),
]

SLOWER = {"choice": ["head.pooler=false"], "generate": ["beams=2", "max_length=4", "learning.epochs=200"]}
"""A saturated pooler may stop training, and copying takes longer to learn."""


def make_examples(task: str) -> list[Any]:
    """Four examples, each of which contains its answer."""
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
            answers = [{"text": second, "answer_start": f"{one} {two}".index(second)}]
            found.append({"passage": f"{one} {two}", "question": f"{other} has a", "answers": answers})
        elif task == "typing":
            found.append(([thing, colour], one, one.index(thing), one.index(thing) + len(thing)))
        elif task == "relation":
            spans = [(one.index(part), one.index(part) + len(part)) for part in (name, thing)]
            found.append(("owns", one, *spans) if number % 2 else ("owned", one, *reversed(spans)))
        elif task == "choice":
            found.append({"context": one, "question": "it is", "choices": [hue, colour], "label": 1})
        else:
            found.append((one, f"{thing} {colour}"))
    return found


def main_metric(found: dict[str, Any]) -> float:
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


def can_solve(model: str, task: str) -> bool:
    """Only models with one direction, or whose attention mask can be causal, generate."""
    return task != "generate" or model in ("bert", "gpt", "lstm")


EVERY = pytest.mark.parametrize(("model", "task"), [(m, t) for m in MODELS for t in TASKS if can_solve(m, t)])


@EVERY
def test_a_few_examples_are_memorised(model: str, task: str, models: dict[str, Path], tmp_path: Path) -> None:
    examples = make_examples(task)
    settings = [*QUICK, *SLOWER.get(task, []), *(["learning.lr=0.004"] if model in ("bert", "gpt") else [])]
    tuned = finetune(
        models[model], task, train=examples, dev=examples, out=tmp_path / "m", settings=settings, threads=1
    )
    assert main_metric(open_artifact(tmp_path / "m").manifest.metrics["dev"]) == pytest.approx(1.0, abs=1e-6)
    again = load(tmp_path / "m")
    inputs = [unlabelled(task, example) for example in examples]
    assert again.predict(inputs) == tuned.predict(inputs)


def unlabelled(task: str, example: Any) -> Any:
    if task in ("classify", "pair"):
        return example[1] if task == "classify" else example[1:]
    if task in ("typing", "relation"):
        return example[1:]
    return example if isinstance(example, dict) else example[0]


@pytest.mark.parametrize("model", MODELS)
def test_random_labels_are_not_predicted(model: str, models: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    examples = [(str(rng.integers(2)), f"{n} has a {c} {t} .") for n in NAMES for c in COLOURS for t in THINGS]
    order = rng.permutation(len(examples)).tolist()
    settings = ["learning.epochs=4", "learning.lr=0.003"]
    seen, unseen = [examples[one] for one in order[:32]], [examples[one] for one in order[32:]]
    finetune(models[model], "classify", train=seen, dev=seen, test=unseen, out=tmp_path / "m", settings=settings)
    found = open_artifact(tmp_path / "m").manifest.metrics["test"]
    assert found["accuracy"] < 0.8, "of 32 random labels; five standard deviations above a half is 0.94"
