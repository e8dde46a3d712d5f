"""Every kind of head is built, trained, saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.models import load
from firth.fit.finetune import finetune
from tests.fit.small_nets import sentences, small_bert

WORDS = [line.split() for line in sentences(12, seed=5)]
TAGGED = [(words, ["B-X" if word == "w3" else "O" for word in words]) for words in WORDS]
LABELLED = [{"labels": [one for one in ("w1", "w3") if one in words], "text": " ".join(words)} for words in WORDS]
PAIRS = [(f"{number / 10}", " ".join(words), " ".join(words[::-1])) for number, words in enumerate(WORDS * 2)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_bert(tmp_path_factory.mktemp("heads"), "2ktok") as folder:
        yield folder


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("tag", ["head.crf=true"]),
        ("tag", ["head.encoder=cnn", "head.width=16", "head.layers=mix"]),
        ("tag", ["head.encoder=lstm", "head.width=16", "head.token_width=8", "head.placement=between"]),
        (
            "tag",
            ["head.encoder=lstm", "head.width=16", "head.token_width=8", "head.placement=around", "head.layers=mix"],
        ),
        ("tag", ["head.token_width=8"]),
        ("tag", ["head.balanced=true", "head.label_smoothing=0.1"]),
        ("classify", ["head.pooling=max"]),
        ("pair", []),
        ("pair", ["symmetric=true"]),
    ],
)
def test_a_head_learns_and_comes_back(task: str, settings: list[str], model: Path, tmp_path: Path) -> None:
    given: list[Any] = {"tag": TAGGED, "classify": LABELLED, "pair": PAIRS}[task]
    more = ["learning.epochs=2", "learning.batch=8", "learning.lr=0.01"]
    tuned = finetune(model, task, train=given, dev=given, out=tmp_path / "m", settings=[*settings, *more], threads=1)
    asked = [item[0] if task == "tag" else item["text"] if task == "classify" else item[1:] for item in given]
    answers = load(tmp_path / "m").predict(asked)
    assert answers == tuned.predict(asked)
    if task == "tag":
        assert [len(answer["tags"]) for answer in answers] == [len(words) for words in WORDS]
    elif task == "classify":
        assert all(set(answer["probabilities"]) == {"w1", "w3"} for answer in answers)
    else:
        assert np.isfinite([answer["score"] for answer in answers]).all()


@pytest.mark.parametrize(
    ("tag", "settings", "joint"), [("B-X", [], True), ("B-X", ["head.crf=false"], False), ("N", [], False)]
)
def test_tags_of_spans_are_decoded_jointly_unless_set(
    tag: str, settings: list[str], joint: bool, model: Path, tmp_path: Path
) -> None:
    given = [(words, [tag if word == "w3" else "O" for word in words]) for words in WORDS]
    given = given if tag == "B-X" else [(words, ["V" if one == "O" else one for one in tags]) for words, tags in given]
    more = ["learning.epochs=1", "learning.batch=8"]
    tuned = finetune(model, "tag", train=given, dev=given, out=tmp_path / "m", settings=[*settings, *more], threads=1)
    assert tuned.recipe.head.crf == joint
