"""A fine-tuned model as a starting point: of other tasks, of the same, of pre-training, and its network in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth as package
from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError
from firth.fit.adapt import adapt
from firth.fit.finetune import finetune
from firth.fit.search import finetune_all
from tests.command import firth
from tests.fit.small_nets import sentences, small_bert, text

LINES = sentences(60, seed=5)
TEXTS = [(str(int("w3" in line.split())), line) for line in LINES]
OTHER = [("long" if len(line.split()) > 6 else "short", line) for line in LINES]
PAIRS = [("same" if one == two else "other", one, two) for one, two in zip(LINES, LINES[:30] * 2, strict=True)]
TUNING = ["learning.epochs=2", "learning.batch=8", "learning.lr=0.005"]
STILL = ["learning.epochs=1", "learning.lr=1e-12", "learning.weight_decay=0"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A BERT and what it was fine-tuned for."""
    home = tmp_path_factory.mktemp("again")
    with small_bert(home, "5ktok") as bert:
        tune(bert, home / "tuned", "classify", TEXTS)
        yield {"bert": bert, "tuned": home / "tuned"}


def tune(model: Path, out: Path, task: str, examples: list[Any], **given: Any) -> Any:
    settings = given.pop("settings", TUNING)
    return finetune(model, task, train=examples, dev=examples[-20:], out=out, settings=settings, threads=1, **given)


def arrays(path: Path) -> dict[str, Any]:
    return dict(load(path).arrays())


def same(one: dict[str, Any], two: dict[str, Any], *beginnings: str) -> bool:
    names = [name for name in one if name.startswith(beginnings)]
    return bool(names) and all(np.allclose(one[name], two[name], rtol=0, atol=1e-8) for name in names)


def test_the_same_task_goes_on_with_its_head(folders: dict[str, Path], tmp_path: Path) -> None:
    tune(folders["tuned"], tmp_path / "m", "classify", TEXTS, settings=STILL)
    before, after = arrays(folders["tuned"]), arrays(tmp_path / "m")
    assert same(before, after, "heads.classify", "encoders", "embedding", "heads.nsp")
    assert open_artifact(tmp_path / "m").manifest.name == "bert-classify"


def test_other_labels_have_a_new_classifier_on_the_tuned_network(folders: dict[str, Path], tmp_path: Path) -> None:
    tune(folders["tuned"], tmp_path / "m", "classify", OTHER, settings=STILL)
    before, after = arrays(folders["tuned"]), arrays(tmp_path / "m")
    assert same(before, after, "encoders", "embedding", "heads.classify.head.pooler")
    assert not same(before, after, "heads.classify.head.classifier")


def test_another_task_starts_from_the_tuned_network(folders: dict[str, Path], tmp_path: Path) -> None:
    tune(folders["tuned"], tmp_path / "m", "pair", PAIRS, settings=STILL)
    before, after, plain = arrays(folders["tuned"]), arrays(tmp_path / "m"), arrays(folders["bert"])
    assert same(before, after, "encoders", "embedding", "heads.nsp")
    assert not same(plain, after, "encoders")
    assert not [name for name in after if name.startswith("heads.classify")], "the old head is left behind"
    assert load(tmp_path / "m").predict([("w1 w2", "w3")])[0]["label"] in ("same", "other")
    manifest = open_artifact(tmp_path / "m").manifest
    assert manifest.name == "bert-pair"
    assert manifest.corpus["model"] == open_artifact(folders["tuned"]).manifest.files["model.safetensors"].sha256


def test_random_parameters_take_over_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    tune(folders["tuned"], tmp_path / "m", "classify", TEXTS, settings=STILL, random=True)
    assert not same(arrays(folders["tuned"]), arrays(tmp_path / "m"), "heads.classify.head.classifier")


def test_an_interrupted_second_tuning_ends_with_the_same_bits(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firth.fit.trainer import NetTrainer

    tune(folders["tuned"], tmp_path / "whole", "classify", TEXTS)
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    kept, count = NetTrainer.save, 0

    def stop(trainer: Any) -> None:
        nonlocal count
        kept(trainer)
        count += 1
        if count == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(NetTrainer, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            tune(folders["tuned"], tmp_path / "parts", "classify", TEXTS)
    tune(folders["tuned"], tmp_path / "parts", "classify", TEXTS, resume=True)
    one, two = arrays(tmp_path / "whole"), arrays(tmp_path / "parts")
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_task_that_generates_goes_on_with_its_decoder(folders: dict[str, Path], tmp_path: Path) -> None:
    pairs = [(line, " ".join(line.split()[:2])) for line in LINES[:24]]
    first, bert = tmp_path / "first", folders["bert"]
    quick = [*TUNING, "beams=1", "max_length=4"]
    tune(bert, first, "generate", pairs, settings=quick, decoder=bert)
    tune(first, tmp_path / "m", "generate", pairs, settings=[*quick, *STILL])
    before, after = arrays(first), arrays(tmp_path / "m")
    assert same(before, after, "heads.generate.decoder", "encoders")
    tune(first, tmp_path / "classify", "classify", TEXTS, settings=STILL)
    assert same(before, arrays(tmp_path / "classify"), "encoders")


def test_a_stage_of_pretraining_before_another_task(folders: dict[str, Path], tmp_path: Path) -> None:
    tune(folders["tuned"], tmp_path / "m", "pair", PAIRS, settings=STILL, domain=text(30, seed=8), budget="1ktok")
    assert open_artifact(tmp_path / "m").manifest.metrics["stages"][0]["budget"]["spent"]["tokens"] >= 900


def test_pretraining_goes_on_from_a_tuned_network(folders: dict[str, Path], tmp_path: Path) -> None:
    adapt(folders["tuned"], text(30, seed=8), out=tmp_path / "m", budget="1ktok", threads=1)
    manifest, tuned = open_artifact(tmp_path / "m").manifest, arrays(folders["tuned"])
    assert (manifest.kind, manifest.name) == ("nets", "bert")
    adapted = arrays(tmp_path / "m")
    assert {name for name in tuned if not name.startswith("heads.classify")} == set(adapted)
    change = np.abs(
        adapted["encoders.0.layers.0.attention.qkv.weight"] - tuned["encoders.0.layers.0.attention.qkv.weight"]
    )
    assert 0 < change.max() < 0.5, "it starts from the tuned parameters"


def test_tuned_word_vectors_have_no_objective(tmp_path: Path) -> None:
    package.train("skipgram", text(), out=tmp_path / "v", settings={"dimension": 8, "epochs": 1}, threads=1)
    tune(tmp_path / "v", tmp_path / "m", "classify", TEXTS, settings=["learning.epochs=1", "head.width=8"])
    with pytest.raises(AbilityError, match="adapt the vectors instead"):
        adapt(tmp_path / "m", text(), out=tmp_path / "n")
    assert load(tmp_path / "m").pretrained.embed(["w1 w2"]).shape == (1, 8)


def test_the_network_of_a_tuned_model_in_use(folders: dict[str, Path], tmp_path: Path) -> None:
    """Every verb gives what the network, saved by itself, gives."""
    tuned, alone = folders["tuned"], load(folders["tuned"]).pretrained
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(LINES[:5]) + "\n")
    vectors = tmp_path / "v.npy"
    assert firth("embed", tuned, lines, "-o", vectors, "--pooling", "first").code == 0
    assert np.allclose(np.load(vectors), alone.embed(LINES[:5], pooling="first"), atol=1e-6)
    assert np.allclose(package.embed(tuned, LINES[:5]), alone.embed(LINES[:5]), atol=1e-6)
    found = firth("score", tuned, lines, "--json")
    assert found.json["logprob"] == pytest.approx(sum(one.logprob for one in alone.score(LINES[:5])))
    assert "was fine-tuned: its network answers" in found.err
    masks = firth("fill", tuned, "w1 [MASK] w2", "--json").json["masks"]
    assert masks[0][0]["token"] == alone.fill("w1 [MASK] w2")[0][0].token
    near = firth("similar", tuned, "w3", "--json").json["neighbours"]
    assert near[0]["word"] == alone.similar("w3")[0][0] == package.similar(tuned, "w3")[0][0]
    assert firth("similar", tuned, "w1", "--context", "w1 w2 w3", "--json").json["neighbours"]
    assert len(load(tuned).pretrained.layers(["w1 w2"])[0]) == 3
    exported = firth("export", tuned, "huggingface", tmp_path / "hf", "--json")
    assert exported.json["architecture"] == "BertForSequenceClassification"


def test_a_search_starts_from_the_rate_of_the_tuned_network(folders: dict[str, Path], tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look(*given: Any, settings: list[str], **options: Any) -> None:
        seen.append(settings)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("firth.fit.search.finetune", look)
        for name in ("bert", "tuned"):
            with pytest.raises(KeyboardInterrupt):
                finetune_all(folders[name], "classify", out=tmp_path / name, search=True)
    assert seen[0] == seen[1]
