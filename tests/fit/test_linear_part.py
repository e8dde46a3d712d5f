"""The linear part of a fine-tuned model: mixtures by hand and by enumeration, the choice of its weight, artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy import special

from firth.artifact.folder import open_artifact
from firth.artifact.formats import export_model
from firth.artifact.models import load
from firth.errors import ArtifactError, CorpusError, RecipeError
from firth.fit.finetune import finetune
from firth.fit.linear_part import WEIGHTS, measure_weights
from firth.tasks.linear_classifier import LinearClassifier
from firth.tasks.linear_part import LinearPart
from firth.tasks.linear_tagger import LinearTagger
from firth.tasks.readers.reader import read_items
from firth.tasks.recipe import TaskRecipe
from firth.tasks.tag import TagTask
from firth.tasks.task import TaskModel
from tests.fit.small_nets import sentences, small_bert

LINES = sentences(60, seed=5)
TEXTS = [("yes" if "w3" in line.split() else "no", line) for line in LINES]
SEVERAL = [{"labels": [one for one in ("w1", "w3") if one in line.split()], "text": line} for line in LINES]
PAIRS = [
    ("same" if number % 2 else "other", line, line if number % 2 else LINES[0]) for number, line in enumerate(LINES)
]
NUMBERS = [(f"{number / 10}", line, LINES[0]) for number, line in enumerate(LINES)]
TAGGED = [(line.split(), ["B-X" if word == "w3" else "O" for word in line.split()]) for line in LINES]
GIVEN: dict[str, Any] = {"classify": TEXTS, "several": SEVERAL, "pair": PAIRS, "numbers": NUMBERS, "tag": TAGGED}
KINDS = {"several": "classify", "numbers": "pair"}
QUICK = ["learning.epochs=1", "learning.batch=16"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_bert(tmp_path_factory.mktemp("linear-part"), "2ktok") as folder:
        yield folder


def tune(model: Path, kind: str, out: Path, *settings: str, **options: Any) -> TaskModel:
    given = GIVEN[kind]
    task, more = KINDS.get(kind, kind), [*QUICK, *settings]
    found = finetune(model, task, train=given[:40], dev=given[40:], out=out, settings=more, threads=1, **options)
    return cast(TaskModel, found)


def examples_of(kind: str) -> Any:
    return list(read_items(KINDS.get(kind, kind), GIVEN[kind], labelled=True))


def parts_of(model: TaskModel) -> tuple[TaskModel, LinearPart]:
    """The network alone, and the linear part."""
    assert model.head.linear is not None
    return model.without_linear(), model.head.linear


@pytest.mark.parametrize("kind", ["classify", "pair"])
def test_the_mixture_of_two_softmaxes_is_their_normalised_geometric_mean(
    kind: str, model: Path, tmp_path: Path
) -> None:
    tuned = tune(model, kind, tmp_path / "m", "linear_weight=0.3")
    network, linear = parts_of(tuned)
    examples = examples_of(kind)
    one, two, both = (
        np.array([list(answer["probabilities"].values()) for answer in each.predict_examples(examples)])
        for each in (network, linear.model, tuned)
    )
    mean = one**0.7 * two**0.3
    assert np.abs(one - two).max() > 0.05
    assert both == pytest.approx(mean / mean.sum(1, keepdims=True), abs=1e-5)


def test_several_labels_mix_their_log_odds_and_numbers_their_values(model: Path, tmp_path: Path) -> None:
    tuned = tune(model, "several", tmp_path / "several", "linear_weight=0.25")
    network, linear = parts_of(tuned)
    examples = examples_of("several")
    one, two, both = (
        special.logit([list(answer["probabilities"].values()) for answer in each.predict_examples(examples)])
        for each in (network, linear.model, tuned)
    )
    assert both == pytest.approx(0.75 * one + 0.25 * two, abs=1e-4)
    tuned = tune(model, "numbers", tmp_path / "numbers", "linear_weight=0.25")
    network, linear = parts_of(tuned)
    examples = examples_of("numbers")
    one, two, both = (
        np.array([answer["score"] for answer in each.predict_examples(examples)])
        for each in (network, linear.model, tuned)
    )
    assert both == pytest.approx(0.75 * one + 0.25 * two, abs=1e-5)


@pytest.mark.parametrize("crf", ["true", "false"])
def test_mixed_tags_are_those_of_all_sequences_enumerated(crf: str, model: Path, tmp_path: Path) -> None:
    """Scores of a tag sequence: (1 - w) times those of the head plus w times those of the linear tagger."""
    tuned = tune(model, "tag", tmp_path / "m", "linear_weight=0.4", f"head.crf={crf}")
    task, linear = cast(TagTask, tuned.head), parts_of(tuned)[1].model
    assert isinstance(linear, LinearTagger)
    labels = tuned.labels
    own = np.zeros((len(labels) + 1,) * 2) if task.crf is None else task.crf.transitions()
    for example in examples_of("tag")[:12]:
        ((_, (head,)),) = task.score_examples(tuned.base.network, [example], tuned.builder)
        (added,) = linear.scores([example])
        found: dict[tuple[int, ...], float] = {}
        for path in product(range(len(labels)), repeat=len(example.words)):
            steps = list(zip((len(labels), *path), (*path, len(labels)), strict=True))
            one = head[range(len(path)), path].sum() + sum(own[step] for step in steps)
            two = added[range(len(path)), path].sum() + sum(linear.transitions[step] for step in steps)
            found[path] = 0.6 * float(one) + 0.4 * float(two)
        best = max(found, key=found.__getitem__)
        (answer,) = tuned.predict_examples([example])
        assert answer["tags"] == [labels[tag] for tag in best]
        total = special.logsumexp(list(found.values()))
        for place, tag in enumerate(best):
            alike = [score for path, score in found.items() if path[place] == tag]
            assert answer["probabilities"][place] == pytest.approx(np.exp(special.logsumexp(alike) - total), abs=1e-5)


@pytest.mark.parametrize("kind", list(GIVEN))
def test_the_weight_is_the_best_on_the_dev_examples(
    kind: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tune(model, kind, tmp_path / "m")
    metrics = open_artifact(tmp_path / "m").manifest.metrics
    said, dev = metrics["linear"], metrics["dev"]
    assert "by a linear model" in capsys.readouterr().err
    assert said["metric"] == dev["main"]
    assert said["mixed"] == pytest.approx(dev[dev["main"]])
    assert said["mixed"] >= max(said["head"], said["linear"])
    assert tuned.recipe.linear_weight == said["weight"]
    if tuned.head.linear is not None:
        network, linear = parts_of(tuned)
        values = measure_weights(network, linear.model, examples_of(kind)[40:], WEIGHTS).values
        assert values[said["weight"]] == said["mixed"] == max(values.values())
        assert all(value < said["mixed"] for weight, value in values.items() if weight < said["weight"])
        assert (values[0.0], values[1.0]) == (said["head"], said["linear"])
    again = load(tmp_path / "m")
    asked = examples_of(kind)
    assert again.predict_examples(asked) == tuned.predict_examples(asked)


def test_a_planted_rule_that_the_network_misses_is_found_by_the_linear_part(model: Path, tmp_path: Path) -> None:
    tuned = tune(model, "classify", tmp_path / "m")
    said = open_artifact(tmp_path / "m").manifest.metrics["linear"]
    assert said["mixed"] > said["head"]
    assert isinstance(parts_of(tuned)[1].model, LinearClassifier)


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_weight_0_leaves_it_out(kind: str, model: Path, tmp_path: Path) -> None:
    tuned = tune(model, kind, tmp_path / "m", "linear_weight=0")
    assert tuned.head.linear is None
    assert tuned.recipe.linear is None
    assert "linear" not in open_artifact(tmp_path / "m").manifest.metrics
    assert not any(".linear." in name for name in tuned.arrays())


def test_a_weight_is_from_0_to_1(model: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"linear_weight=1\.5 must be from 0 to 1"):
        tune(model, "classify", tmp_path / "m", "linear_weight=1.5")


def test_a_model_with_a_linear_part_is_fine_tuned_again(model: Path, tmp_path: Path) -> None:
    tune(model, "classify", tmp_path / "one", "linear_weight=0.5")
    again = tune(tmp_path / "one", "pair", tmp_path / "two", "linear_weight=0")
    assert again.head.linear is None


@pytest.mark.parametrize(
    ("kind", "names"), [("classify", ["the linear part"]), ("tag", ["the CRF", "the linear part"])]
)
def test_exports_say_what_they_leave_out(
    kind: str, names: list[str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tune(model, kind, tmp_path / "m", "linear_weight=0.5")
    report = export_model(tuned, "huggingface", tmp_path / "hf")
    assert report["left_out"] == names
    assert f"no place for {' and '.join(names)}" in capsys.readouterr().err
    stored = json.loads((tmp_path / "hf" / "config.json").read_text())["firth_task"]
    assert stored["linear"] is None
    assert not stored["head"]["crf"]
    assert tuned.head.linear is not None  # the exported model stays whole


def test_damaged_parts_are_refused(model: Path, tmp_path: Path) -> None:
    tuned = tune(model, "classify", tmp_path / "m", "linear_weight=0.5")
    arrays, tokenizer = tuned.arrays(), tuned.tokenizer
    from firth.tasks.registry import restore_task

    cut = {name: array for name, array in arrays.items() if not name.endswith(".linear.idf")}
    with pytest.raises(ArtifactError, match="linear model are damaged"):
        restore_task(tuned.recipe, cut, tokenizer, "lines")
    plain = cast(TaskRecipe, replace(tuned.recipe, linear=None, linear_weight=0.0))
    with pytest.raises(ArtifactError, match="has no linear part, but the weights do"):
        restore_task(plain, arrays, tokenizer, "lines")


def test_examples_too_few_for_a_linear_part_are_enough_for_a_network(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few: dict[str, Any] = {"train": [("a", "w1"), ("b", "w2")], "dev": [("a", "w1")], "settings": QUICK, "threads": 1}
    tuned = cast(TaskModel, finetune(model, "classify", out=tmp_path / "m", **few))
    assert tuned.head.linear is None
    assert "without a linear part: no token occurs in 2 texts\n" in capsys.readouterr().err
    with pytest.raises(CorpusError, match="no token occurs in 2 texts"):
        finetune(model, "classify", out=tmp_path / "n", **few | {"settings": [*QUICK, "linear_weight=0.3"]})


def test_a_sentence_of_several_windows_is_decoded_as_a_whole(model: Path, tmp_path: Path) -> None:
    """With the linear part alone the tags are its own, also beside the borders of windows."""
    rng = np.random.default_rng(2)
    words = [[f"w{word}" for word in rng.integers(20, size=60)] for _ in range(40)]
    tags = [["B-X"] + ["I-X" if draw < 0.5 else "B-X" if draw < 0.7 else "O" for draw in rng.random(59)] for _ in words]
    for one in tags:
        for place in range(1, 60):
            one[place] = "O" if one[place - 1] == "O" and one[place] == "I-X" else one[place]
    given: Any = list(zip(words, tags, strict=True))
    settings = [*QUICK, "linear_weight=1"]
    tuned = finetune(model, "tag", train=given, dev=given[:5], out=tmp_path / "m", settings=settings, threads=1)
    _, linear = parts_of(cast(TaskModel, tuned))
    items: Any = list(read_items("tag", [(one, None) for one in words], labelled=False))
    found, expected = (each.predict_examples(items) for each in (cast(TaskModel, tuned), linear.model))
    assert [one["tags"] for one in found] == [one["tags"] for one in expected]
    for one, two in zip(found, expected, strict=True):
        assert one["probabilities"] == pytest.approx(two["probabilities"], abs=1e-6)
