"""The demo: its output, that it can be run again, and that it removes only its own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firth.artifact.folder import verify_artifact
from firth.report import demo
from firth.report.demo import DemoModel, DemoTask
from firth.text.oracle import MARKOV_WORDS
from tests.command import Outcome, firth


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick corpus and two tokenizers instead of six."""
    monkeypatch.setattr(demo, "CORPUS", "builtin:oracle-markov1")
    monkeypatch.setattr(demo, "TOKENIZERS", (DemoModel("words"), DemoModel("chars")))
    monkeypatch.setattr(demo, "VECTORS", (DemoModel("skipgram", ("epochs=1",)),))
    monkeypatch.setattr(demo, "NEIGHBOURS_OF", ("ba", "nowhere"))
    few = ("encoder.width=16", "embedding.width=16", "encoder.heads=2", "encoder.ffn_width=32", "encoder.layers=1")
    monkeypatch.setattr(demo, "NETS", (DemoModel("bert", (*few, "sequence.length=32"), "words", budget="3ktok"),))
    monkeypatch.setattr(demo, "CONTEXTS", ("ba", "ta ba ta.", "di ba ko."))
    monkeypatch.setattr(demo, "_PSEUDO", 20)
    monkeypatch.setattr(demo, "TASKS", (DemoTask("tag", "bert-words", settings=("learning.epochs=1",)),))
    monkeypatch.setattr(demo, "TASK_EXAMPLES", (16, 8))
    oracle = (
        DemoModel("unigram"),
        DemoModel("mkn5"),
        DemoModel("skipgram", ("dimension=20",)),
        DemoModel("bert", few, budget="2ktok"),
    )
    monkeypatch.setattr(demo, "SHOWN", ("mkn5", "skipgram", "bert"))
    monkeypatch.setattr(demo, "ORACLE_MODELS", oracle)
    monkeypatch.setattr(
        demo, "MODELS", (DemoModel("unigram", tokenizer="words"), DemoModel("unigram", tokenizer="chars"))
    )


def run(out: Path) -> Outcome:
    return firth("demo", "-o", out, "--json")


@pytest.mark.usefixtures("small")
def test_it_trains_compares_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(tmp_path / "out")
    assert outcome.code == 0, outcome.err
    report = outcome.json
    assert json.loads((tmp_path / "out" / "report.json").read_bytes()) == report
    assert [row["name"] for row in report["runs"]] == ["unigram-words", "unigram-chars", "bert-words"]
    for row in report["runs"]:
        assert 0 < row["bits_per_byte"] < 8
        assert bool(row["samples"]) == (row["kind"] == "causal")
        assert verify_artifact(tmp_path / "out" / "models" / row["name"])["ok"]
        assert row["digest"][:12] in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    (vectors,) = report["vectors"]["runs"]
    assert list(vectors["neighbours"]) == ["ba"]
    assert {word for word, _ in vectors["neighbours"]["ba"]} <= set(MARKOV_WORDS) | {"."}
    assert "Word vectors" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    (net,) = report["nets"]["runs"]
    assert net["parameters"] > 100
    assert net["curve"][-1][0] == net["tokens"]
    (context,) = report["nets"]["contexts"]
    assert [len(one["neighbours"]) for one in context["rows"]] == [4, 4]
    assert "Training of networks" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    (task,) = report["tasks"]
    assert task["metric"] == "entity_f1"
    assert 0 <= task["interval"][0] <= task["value"] <= task["interval"][1] <= 1
    assert "Fine-tuning" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert report["oracle"]["runs"][0]["bits_per_byte"] > report["oracle"]["entropy_per_byte"]
    learned = {(one["name"], one["given"]): one["found"] for one in report["oracle"]["learned"]}
    assert {"goat", "hen"} <= set(learned["skipgram", "horse"]), "as much as five million words teach"
    assert all(text.startswith("the old horse") for text in learned["mkn5", "the old horse"])
    assert len(learned["bert", demo.MASKED[0]]) == 5
    assert {name for name, _ in learned} == set(demo.SHOWN)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What the models learned" in page
    assert "Most probable words for the mask, by bert" in page
    monkeypatch.setattr(demo, "ORACLE_MODELS", (DemoModel("unigram"),))
    monkeypatch.setattr(demo, "TASKS", ())
    assert run(tmp_path / "out").json["runs"][0]["digest"] == report["runs"][0]["digest"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("names", [["models/mine"], ["report.json", "report.html", "models/mine"], ["notes.txt"]])
def test_what_is_not_its_own_is_left_alone(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    outcome = run(tmp_path / "out")
    assert outcome.code == 1
    assert "already holds" in outcome.err
    assert all((tmp_path / "out" / name).read_text() == "mine" for name in names)


@pytest.mark.usefixtures("small")
def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ORACLE", "builtin:nowhere")
    assert run(tmp_path / "out").code == 1
    assert list(tmp_path.iterdir()) == []
