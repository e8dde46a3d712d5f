"""Parallel text on the command line: training, translating, scoring, evaluating, checking, and bad input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Outcome, firth
from tests.fit.test_parallel import pairs

FEW = [
    *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=16", "sequence.length=32", "learning.batch=128"),
    *(
        f"{part}.{one}"
        for part in ("encoder", "decoder")
        for one in ("width=16", "ffn_width=32", "heads=2", "layers=1")
    ),
]
SETTINGS = [part for one in FEW for part in ("--set", one)]


def table(path: Path, rows: list[list[str]], header: str = "en\tde") -> Path:
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with parallel files, a model of them and a language model."""
    home = tmp_path_factory.mktemp("pairs")
    table(home / "pairs.tsv", pairs())
    table(home / "dev.tsv", pairs(8, seed=1))
    (home / "a.en").write_text("".join(f"{one}\n" for one, _ in pairs()))
    (home / "a.de").write_text("".join(f"{two}\n" for _, two in pairs()))
    (home / "pairs.jsonl").write_text("".join(json.dumps({"en": one, "de": two}) + "\n" for one, two in pairs()))
    (home / "text.txt").write_text("".join(f"{one}\n" for one, _ in pairs()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(home / "cache"))
        made = train(home, "model", home / "pairs.tsv", "--valid", home / "dev.tsv")
        assert made.code == 0, made.err
        assert firth("train", "mkn3", home / "text.txt", "-o", home / "lm").code == 0
        yield home


def train(home: Path, out: str, *given: object) -> Outcome:
    arguments = ["--budget", "4ktok", "--threads", "1", "-o", home / out, *SETTINGS, "--json"]
    return firth("train", "transformer", *given, *arguments)


def test_tables_json_and_two_files_give_the_same_model(folder: Path) -> None:
    digests = {
        firth("info", folder / "model", "--json").json["files"]["model.safetensors"]["sha256"],
        train(folder, "json", folder / "pairs.jsonl", "--pair", "en,de").json["files"]["model.safetensors"]["sha256"],
        train(folder, "files", "--pair", f"{folder}/a.en,{folder}/a.de").json["files"]["model.safetensors"]["sha256"],
    }
    assert len(digests) == 1
    other = train(folder, "back", folder / "pairs.tsv", "--pair", "de,en")
    assert other.json["files"]["model.safetensors"]["sha256"] not in digests


def test_generate_from_a_text_and_a_file(folder: Path) -> None:
    source = pairs()[0][0]
    one = firth("generate", folder / "model", "--source", source, "--json").json
    assert one["sources"] == len(one["texts"]) == 1
    assert one["lines"][0].keys() == {"line", "text", "logprob", "tokens", "finished"}
    (folder / "sources.txt").write_text(f"{source}\n\n{pairs()[1][0]}\n")
    many = firth("generate", folder / "model", "--source", folder / "sources.txt", "--beams", "2", "--json").json
    assert many["texts"][1] == ""
    assert len(many["texts"]) == 3
    wrote = firth("generate", folder / "model", "--source", folder / "sources.txt", "--beams", "2", "-o", folder / "t")
    assert wrote.code == 0
    assert (folder / "t").read_text().split("\n")[:-1] == [" ".join(text.split()) for text in many["texts"]]
    rows = folder / "t.jsonl"
    assert firth("generate", folder / "model", "--source", folder / "sources.txt", "-o", rows).code == 0
    assert [json.loads(line)["line"] for line in rows.read_text().splitlines()] == [0, 1, 2]


def test_a_limit_that_is_reached_is_said(folder: Path) -> None:
    found = firth("generate", folder / "model", "--source", pairs()[0][0], "--length", "1", "--beams", "1", "--json")
    assert found.json["unfinished"] == int(not found.json["lines"][0]["finished"])
    if found.json["unfinished"]:
        assert "reached the limit of their length" in found.err
    assert firth("generate", folder / "model", "--source", "w1", "--length", "32").code == 1


def test_scores_have_the_same_keys_as_those_of_texts(folder: Path) -> None:
    found = firth("score", folder / "model", folder / "dev.tsv", "-o", folder / "s.jsonl", "--json").json
    keys = {"bits_per_byte", "perplexity", "word_perplexity", "tokens", "words", "bytes", "oov", "kind"}
    assert keys <= found.keys()
    assert (found["kind"], found["context"], found["pairs"]) == ("causal", "source", 8)
    rows = [json.loads(line) for line in (folder / "s.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == list(range(8))
    assert sum(row["logprob"] for row in rows) == pytest.approx(found["logprob"])
    info = firth("info", folder / "model", "--json").json
    assert info["metrics"]["valid_perplexity"] == pytest.approx(found["perplexity"], rel=1e-5)


def test_evaluation_and_embedding(folder: Path) -> None:
    found = firth("evaluate", folder / "model", "translation", folder / "dev.tsv", "--beams", "2", "--json").json
    for name in ("bleu", "chrf", "rouge_l"):
        low, high = found[f"{name}_interval"]
        assert low <= found[name] <= high
    assert found["pairs"] == 8
    assert found["baseline"]["kind"] == "source copied"
    assert firth("embed", folder / "model", folder / "text.txt", "-o", folder / "e.npy", "--json").code == 0


def test_adapting_and_fine_tuning(folder: Path) -> None:
    adapted = firth(
        "adapt", folder / "model", folder / "dev.tsv", "-o", folder / "adapted", "--budget", "1ktok", "--json"
    )
    assert adapted.code == 0, adapted.err
    table(folder / "labels.tsv", [["a", "w1 w2 w3"], ["b", "w7 w8 w9"]] * 6, "label\ttext_a")
    given = ["--train", folder / "labels.tsv", "--dev", folder / "labels.tsv", "--set", "learning.epochs=1"]
    tuned = firth("finetune", folder / "model", "classify", *given, "-o", folder / "tuned", "--threads", "1", "--json")
    assert tuned.code == 0, tuned.err
    assert tuned.json["recipe"]["network"]["decoder"] is None
    assert firth("verify", folder / "tuned").code == 0


def test_check_knows_pairs(folder: Path) -> None:
    rows = [["a dog", "ein Hund"], ["a dog", "ein Hund"], ["same", "same"], ["", "leer"], ["x", "y " * 40]]
    report = firth("check", table(folder / "bad.tsv", rows), "--against", folder / "dev.tsv", "--json").json
    assert (report["pairs"], report["columns"], report["empty"]) == (5, ["en", "de"], {"en": 1, "de": 0})
    assert (report["duplicates"], report["identical"]) == (0.2, 0.2)
    assert report["overlap"] == {"pairs": 0.0, "sources": 0.0}
    kinds = {problem["what"] for problem in report["problems"]}
    assert {"few-pairs", "empty-sides", "duplicate-pairs", "identical-sides", "unlikely-lengths"} <= kinds
    assert "empty-sides" in firth("check", folder / "bad.tsv").out
    both = firth("check", "--pair", f"{folder}/a.en,{folder}/a.de", "--json").json
    assert both["pairs"] == 60
    labelled = table(folder / "l.tsv", [["a", "w1"]], "label\ttext_a")
    assert "documents" in firth("check", labelled, "--json").json


def test_bad_input_is_refused_in_a_sentence(folder: Path) -> None:
    (folder / "short.de").write_text("one line\n")
    cases = [
        (1, "more lines than", ["train", "transformer", "--pair", f"{folder}/a.en,{folder}/short.de"]),
        (1, "has no text in de", ["train", "transformer", table(folder / "empty.tsv", [["a", ""]])]),
        (1, "parallel text has two", ["train", "transformer", folder / "text.txt"]),
        (1, "no column", ["train", "transformer", folder / "pairs.tsv", "--pair", "en,fr"]),
        (2, "name a corpus", ["train", "transformer"]),
        (2, "leave it out", ["train", "mkn3", folder / "pairs.tsv", "--pair", "en,de"]),
    ]
    for code, message, arguments in cases:
        found = firth(*arguments, "-o", folder / "never")
        assert (found.code, message in found.err) == (code, True), found.err
        assert not (folder / "never" / "manifest.json").exists()
    uses = [
        (1, "give it with --source", ["generate", folder / "model"]),
        (1, "reads no source", ["generate", folder / "lm", "--source", "w1"]),
        (2, "leave --temperature out", ["generate", folder / "model", "--source", "w1", "--temperature", "0.5"]),
        (2, "leave -o out", ["generate", folder / "lm", "-o", folder / "never.txt"]),
        (1, "holds pairs", ["generate", folder / "model", "--source", folder / "pairs.tsv"]),
        (1, "parallel text has two", ["score", folder / "model", folder / "text.txt"]),
        (1, "by themselves", ["score", folder / "lm", folder / "pairs.tsv", "--pair", "en,de"]),
        (2, "leave --explain out", ["score", folder / "model", folder / "dev.tsv", "--explain"]),
        (2, "name the files", ["score", folder / "model"]),
        (1, "reads no source", ["evaluate", folder / "lm", "translation", folder / "dev.tsv"]),
        (2, "belong to the suite", ["evaluate", folder / "lm", "words", folder / "dev.tsv", "--beams", "2"]),
    ]
    for code, message, arguments in uses:
        found = firth(*arguments)
        assert (found.code, message in found.err) == (code, True), (arguments, found.err)
        assert found.err.strip().count("\n") <= 3, found.err
