"""firth predict and firth evaluate classify: output, fixed JSON keys, and errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth as library
from firth.abilities import Embeds, HasVectors, Predicts
from firth.metrics.labels import label_scores
from firth.report.classify import macro_f1_interval
from tests.command import firth

ROWS = [("pos", "a good film"), ("neg", "a bad film"), ("pos", "good fun"), ("neg", "bad bore")] * 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        train = folder / "train.tsv.gz"
        train.write_bytes(gzip.compress("\n".join(["label\ttext_a", *("\t".join(row) for row in ROWS)]).encode()))
        outcome = firth("train", "fasttext-classifier", train, "-o", folder / "m", "--set", "epochs=30", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["metrics"]["labels"] == 2
    return folder / "m"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_text_has_a_prediction(model: Path, tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.txt", "a good one\n\nbad\n")
    report = firth("predict", model, texts, "-o", tmp_path / "out.jsonl", "--json").json
    assert (report["texts"], report["out"]) == (3, str(tmp_path / "out.jsonl"))
    rows = read_jsonl(tmp_path / "out.jsonl")
    assert [row["line"] for row in rows] == [0, 1, 2]
    assert (rows[0]["label"], rows[2]["label"]) == ("pos", "neg")
    assert all(0.5 <= row["probability"] <= 1 for row in rows)
    firth("predict", model, texts, "-o", tmp_path / "top.jsonl", "--count", 5)
    top = read_jsonl(tmp_path / "top.jsonl")[0]["top"]
    assert [one["label"] for one in top] == ["pos", "neg"]
    assert sum(one["probability"] for one in top) == pytest.approx(1)


def test_score_predict_and_embed_number_lines_alike(model: Path, tmp_path: Path) -> None:
    """A row for each line of a file, numbered from 0, blank lines included."""
    texts = write(tmp_path / "texts.txt", "\na good film\n\n  \nbad\n\n")
    library.train("unigram", [["a good film"]], out=tmp_path / "unigram")
    for verb, folder in (("score", tmp_path / "unigram"), ("predict", model)):
        outcome = firth(verb, folder, texts, "-o", tmp_path / verb)
        assert outcome.code == 0, outcome.err
        assert [row["line"] for row in read_jsonl(tmp_path / verb)] == [0, 1, 2, 3, 4, 5]
    assert firth("embed", model, texts, "-o", tmp_path / "embed", "--json").json["rows"] == 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.tsv", "label\ttext_a\nneg\tgood\npos\tbad\n"),
        ("x.jsonl", '{"text": "good"}\n{"label": 3, "text": "bad"}\n'),
        ("x.txt", "__label__neg good\nbad\n"),
    ],
)
def test_labels_in_the_file_are_ignored(model: Path, tmp_path: Path, name: str, text: str) -> None:
    report = firth("predict", model, write(tmp_path / name, text), "--json").json
    assert [row["label"] for row in report["predictions"]] == ["pos", "neg"]


def test_text_output(model: Path, tmp_path: Path) -> None:
    shown = firth("predict", model, "-", stdin=b"good\nbad\n").out
    assert [line.split()[1] for line in shown.splitlines()] == ["pos", "neg"]
    shown = firth("predict", model, "-", "--count", 2, stdin=b"good\n").out
    assert shown.split()[1::2] == ["pos", "neg"]
    out = firth("predict", model, write(tmp_path / "t", "good\nbad\nbad\n"), "-o", tmp_path / "o").out
    assert out.split() == ["texts", "3", "neg", "2", "pos", "1"]


def test_evaluation(model: Path, tmp_path: Path) -> None:
    gold = "label\ttext_a\n" + "pos\tgood\n" * 6 + "pos\tbad\n" * 2 + "neg\tbad\n" * 3 + "other\tgood\n"
    report = firth("evaluate", model, "classify", write(tmp_path / "dev.tsv", gold), "--json").json
    assert report.keys() >= {"accuracy", "accuracy_interval", "macro_f1", "examples", "majority", "labels"}
    assert (report["suite"], report["examples"], report["classes"]) == ("classify", 12, 3)
    assert report["accuracy"] == 9 / 12
    assert report["majority"] == 8 / 12
    low, high = report["accuracy_interval"]
    assert low < 0.75 < high
    assert report["macro_f1"] == pytest.approx((2 * 6 / (8 + 7) + 2 * 3 / (3 + 5) + 0) / 3)
    low, high = report["macro_f1_interval"]
    assert low < report["macro_f1"] < high
    assert report["unknown_labels"] == ["other"]
    assert [*report["labels"]] == ["pos", "neg", "other"]
    assert report["labels"]["pos"] == {"precision": 6 / 7, "recall": 6 / 8, "f1": 12 / 15, "examples": 8}
    text = firth("evaluate", model, "classify", tmp_path / "dev.tsv").out
    assert "label pos: precision 0.857  recall 0.750  f1 0.800  of 8 texts" in text
    both = firth("evaluate", model, "classify", tmp_path / "dev.tsv", tmp_path / "dev.tsv", "--json").json
    assert (both["examples"], both["accuracy"]) == (24, 0.75)


def test_any_of_several_labels_is_correct(model: Path, tmp_path: Path) -> None:
    lines = write(tmp_path / "x.txt", "__label__neg __label__pos good\n__label__neg bad\n")
    assert firth("evaluate", model, "classify", lines, "--json").json["accuracy"] == 1.0


def test_f1_matches_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 4, 200), rng.integers(1, 6, 200)
    cells: dict[tuple[str, str], int] = {}
    for pair in zip(map(str, gold), map(str, predicted), strict=True):
        cells[pair] = cells.get(pair, 0) + 1
    table = label_scores(cells)
    macro = np.mean([row["f1"] for row in table.values()])
    assert macro == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    interval = macro_f1_interval(cells)
    assert interval is not None
    drawn = [rng.integers(0, 200, 200) for _ in range(300)]
    values = [f1_score(gold[at], predicted[at], average="macro", zero_division=0) for at in drawn]
    assert interval == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.015)


def test_abilities_and_refusals(model: Path, tmp_path: Path) -> None:
    loaded = library.load(model)
    assert isinstance(loaded, Predicts)
    assert isinstance(loaded, HasVectors)
    assert isinstance(loaded, Embeds)
    assert firth("similar", model, "good", "--json").json["neighbours"][0]["word"] == "fun"
    text = write(tmp_path / "t.txt", "good\n")
    library.train("unigram", [["to be or not to be"]], out=tmp_path / "uni")
    for outcome, message in (
        (firth("predict", tmp_path / "uni", text), "predicts no labels"),
        (firth("evaluate", tmp_path / "uni", "classify", text), "predicts no labels"),
        (firth("evaluate", model, "classify", text), "there is no label"),
        (firth("predict", model, write(tmp_path / "empty", "")), "no text"),
        (firth("predict", model, tmp_path / "nowhere"), "no such file"),
        (firth("predict", model, write(tmp_path / "c.tsv", "label\tbody\n1\tx\n")), "has the columns"),
    ):
        assert outcome.code == 1
        assert message in outcome.err
        assert outcome.err.strip().count("\n") == 0
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert firth("predict", model, tmp_path / "binary", "-o", tmp_path / "none").code == 1
    assert not (tmp_path / "none").exists()
    assert firth("predict", model, text, "--count", 0).code == 2


@pytest.mark.shared
def test_real_news(shared_data: Path, tmp_path: Path) -> None:
    data = shared_data / "classify"
    for name, min_accuracy in (("thucnews_title", 0.7), ("ag_news_small", 0.8)):
        folder = tmp_path / name
        assert firth("train", "fasttext-classifier", data / f"{name}.train.tsv.gz", "-o", folder).code == 0
        assert firth("evaluate", folder, "classify", data / f"{name}.dev.tsv", "--json").json["accuracy"] > min_accuracy
