"""Imported and exported fastText classifiers predict the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.formats import export_model, import_model
from firth.artifact.models import load
from firth.vectors.classifier_model import ClassifierModel
from firth.vectors.recipe import ClassifierRecipe
from tests.command import firth

fasttext = pytest.importorskip("fasttext")

TOPICS = {
    "sea": "boat ship wave harbour sail anchor",
    "farm": "cow plough field barn hay goat",
    "town": "tram shop bank",
}
STRANGE = ["a boat and a zebra", "", "zeppelin", "Cow barn", "日本 boat ñandú goat", "the the the tram ship"]
KINDS: dict[str, dict[str, Any]] = {
    "words": {"wordNgrams": 1},
    "pairs": {"wordNgrams": 2, "bucket": 500},
    "triples, few buckets": {"wordNgrams": 3, "bucket": 7},
    "characters": {"wordNgrams": 2, "minn": 2, "maxn": 4, "bucket": 1000},
    "single characters": {"wordNgrams": 1, "minn": 0, "maxn": 2, "bucket": 100},
    "rare words left out": {"wordNgrams": 2, "minCount": 30, "bucket": 300},
    "tree": {"wordNgrams": 2, "bucket": 500, "loss": "hs"},
    "balanced tree": {"wordNgrams": 1, "loss": "hs"},
    "negative sampling": {"wordNgrams": 2, "bucket": 500, "loss": "ns"},
    "one versus all": {"wordNgrams": 2, "bucket": 500, "loss": "ova"},
}


def labelled(count: int = 400, even: bool = False) -> list[tuple[str, str]]:
    """Texts of three topics; if `even`, the first has as many as the two others together."""
    rng = np.random.default_rng(4)
    rows = []
    for number in range(count):
        label = [*TOPICS, "sea"][number % 4] if even else str(rng.choice([*TOPICS], p=[0.5, 0.3, 0.2]))
        words = [*rng.choice(TOPICS[label].split(), 3), *rng.choice(["the", "a", "über", "我们", "of"], 3)]
        rows.append((label, " ".join(map(str, rng.permutation(words)))))
    return rows


def theirs(model: Any, text: str, count: int) -> dict[str, float]:
    """fastText's probabilities; it adds 0.00001 before it takes a logarithm."""
    found = model.f.predict(text + "\n", count, 0.0, "strict")
    return {label.removeprefix("__label__"): probability - 1e-5 for probability, label in found}


def assert_agrees(model: ClassifierModel, other: Any, tolerance: float) -> None:
    texts = [*STRANGE, *(text for _, text in labelled()[:50])]
    for text, found in zip(texts, model.predict(texts, 3), strict=True):
        wanted = theirs(other, text, 3)
        assert {label for label, probability in found if probability > tolerance} <= wanted.keys()
        for label, probability in found:  # fastText omits labels below 0.00001
            assert probability == pytest.approx(wanted.get(label, 0.0), abs=tolerance), (text, label)
        first, second = found[0], found[1]
        if first[1] - second[1] > 2 * tolerance:
            assert first[0] == max(wanted, key=wanted.__getitem__)


def tolerance(loss: str) -> float:
    """fastText has a table of 512 sigmoids, and adds 0.00001 at every node of a tree."""
    return {"softmax": 1e-5, "hs": 5e-5, "hierarchical": 5e-5}.get(loss, 0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_imported_models_predict_the_same(kind: str, tmp_path: Path) -> None:
    lines, rows = tmp_path / "train.txt", labelled(even="balanced" in kind)
    lines.write_text("".join(f"__label__{label} {text}\n" for label, text in rows), encoding="utf-8")
    options = {"dim": 10, "epoch": 5, "lr": 0.5, "thread": 1, "verbose": 0} | KINDS[kind]
    trained = fasttext.train_supervised(str(lines), **options)
    trained.save_model(str(tmp_path / "m.bin"))
    report = import_model("fasttext", tmp_path / "m.bin", tmp_path / "m")
    assert report["labels"] == 3
    model = load(tmp_path / "m")
    assert isinstance(model, ClassifierModel)
    assert_agrees(model, trained, tolerance(KINDS[kind].get("loss", "softmax")))
    assert np.allclose(model.vector("boat"), trained.get_word_vector("boat"), atol=1e-6)
    # exported again
    export_model(model, "fasttext", tmp_path / "back.bin")
    again = fasttext.load_model(str(tmp_path / "back.bin"))
    for text in STRANGE:
        assert theirs(again, text, 3) == pytest.approx(theirs(trained, text, 3), abs=1e-6)


@pytest.mark.parametrize("loss", ["softmax", "hierarchical", "negative"])
@pytest.mark.parametrize("subwords", [False, True])
def test_exported_models_predict_the_same(loss: Any, subwords: bool, tmp_path: Path) -> None:
    from firth.fit.train import train

    sizes = {"min_n": 2, "max_n": 3} if subwords else {}
    recipe = ClassifierRecipe(dimension=12, loss=loss, word_ngrams=3, **sizes)
    model = train(recipe, labelled(), out=tmp_path / "m", settings=["tokenizer.split=space"])
    outcome = firth("export", tmp_path / "m", "fasttext", tmp_path / "m.bin", "--json")
    assert outcome.code == 0, outcome.err
    texts = [text.lower() for text in STRANGE]
    ours = model.predict(texts, 3)
    other = fasttext.load_model(str(tmp_path / "m.bin"))
    for text, found in zip(texts, ours, strict=True):
        assert dict(found) == pytest.approx(theirs(other, text, 3), abs=tolerance(loss))
    assert np.mean([theirs(other, text, 1).keys() == {label} for label, text in labelled()]) > 0.95
    # imported again
    import_model("fasttext", tmp_path / "m.bin", tmp_path / "back")
    back = load(tmp_path / "back")
    assert back.labels == model.labels
    for one, two in zip(back.predict(texts, 3), ours, strict=True):
        assert dict(one) == pytest.approx(dict(two), abs=1e-6)
