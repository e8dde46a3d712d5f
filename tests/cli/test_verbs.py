"""Output of the verbs: fixed JSON keys, files, text for people."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import firth as library
from tests.command import assert_refused, firth
from tests.samples import CHINESE, ENGLISH

CHECK_KEYS = {
    "documents", "sentences", "words", "characters", "bytes", "encodings", "scripts", "duplicates", "near_duplicates",
    "problems", "lengths", "languages", "control_characters", "replacement_characters", "longest_line", "overlap",
}  # fmt: skip
SCORE_KEYS = {"bits_per_byte", "perplexity", "word_perplexity", "tokens", "words", "bytes", "oov", "kind"}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(f"{ENGLISH[0]}\n\n  \n{CHINESE[0]}\nan unseen zebra\n", encoding="utf-8")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    library.train("unigram", [ENGLISH, CHINESE], out=tmp_path / "model")
    return tmp_path / "model"


def test_check_has_its_keys(lines: Path) -> None:
    report = firth("check", lines, "--json").json
    assert set(report) >= CHECK_KEYS
    assert report["documents"] == 2
    assert report["sentences"] == 3
    assert report["encodings"] == {str(lines): "utf-8"}
    text = firth("check", lines).out
    for key in ("documents", "near_duplicates", "tiny-corpus"):
        assert key in text


def test_check_finds_leakage(lines: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.txt"
    test.write_text(f"{ENGLISH[0]}\nsomething else entirely\n", encoding="utf-8")
    report = firth("check", lines, "--against", test, "--json").json
    assert report["overlap"]["sentences"] == 0.5
    assert any(problem["what"].startswith("leaked") for problem in report["problems"])


def test_scores_line_by_line(model: Path, lines: Path, tmp_path: Path) -> None:
    summary = firth("score", model, lines, "-o", tmp_path / "out.jsonl", "--json").json
    assert set(summary) >= SCORE_KEYS
    assert summary["kind"] == "causal"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["bytes"] for row in rows] == [len(ENGLISH[0]), 0, 0, len(CHINESE[0].encode()), 15]
    assert [row["oov"] for row in rows] == [0, 0, 0, 0, 3]
    for name in ("tokens", "bytes", "oov"):
        assert summary[name] == sum(row[name] for row in rows)
    logprob = sum(row["logprob"] for row in rows)
    assert summary["perplexity"] == pytest.approx(math.exp(-logprob / summary["tokens"]))
    bits = -sum(row["logprob"] + row["spelling"] for row in rows) / math.log(2)
    assert summary["bits_per_byte"] == pytest.approx(bits / summary["bytes"])
    python = library.load(model).score([ENGLISH[0]])[0]
    assert rows[0]["logprob"] == pytest.approx(python.logprob)


def test_standard_input_is_scored(model: Path, lines: Path) -> None:
    from_file = firth("score", model, lines, "--json").json
    assert firth("score", model, "-", "--json", stdin=lines.read_bytes()).json == from_file


def test_scores_are_written_completely_or_not_at_all(model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n" * 5000 + b"\0")
    (tmp_path / "out.jsonl").write_text("older")
    assert firth("score", model, tmp_path / "bad.txt", "-o", tmp_path / "out.jsonl", "--force").code == 1
    assert (tmp_path / "out.jsonl").read_text() == "older"
    assert not list(tmp_path.glob(".*"))


def test_files_are_replaced_by_force_alone_and_never_the_input(model: Path, lines: Path, tmp_path: Path) -> None:
    library.train("tfidf", [ENGLISH], out=tmp_path / "bag", settings=["tokenizer.min_count=1"])
    before = lines.read_bytes()
    for verb, folder in (("score", model), ("embed", tmp_path / "bag")):
        out = tmp_path / f"{verb}.out"
        assert firth(verb, folder, lines, "-o", out).code == 0
        made = out.read_bytes()
        out.write_bytes(b"mine")
        assert_refused(firth(verb, folder, lines, "-o", out), "exists already", "--force")
        assert out.read_bytes() == b"mine"
        assert firth(verb, folder, lines, "-o", out, "--force").code == 0
        assert out.read_bytes() == made
        assert_refused(firth(verb, folder, lines, "-o", lines, "--force"), "is read by this command")
        assert_refused(firth(verb, folder, lines, "-o", folder / "manifest.json", "--force"), "is read by this command")
    assert lines.read_bytes() == before


def test_scoring_needs_text(model: Path, tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    for name in ("blank.txt", "none.txt"):
        outcome = firth("score", model, tmp_path / name)
        assert outcome.code == 1
        assert name in outcome.err


def test_generation(model: Path) -> None:
    texts = firth("generate", model, "--count", 3, "--length", 5, "--seed", 9, "--json").json["texts"]
    assert len(texts) == 3
    assert firth("generate", model, "--count", 3, "--length", 5, "--seed", 9).out.splitlines() == texts


def test_recipes_and_diff() -> None:
    recipes = firth("recipes", "--json").json["recipes"]
    assert recipes["byte-bpe"]["parents"] == ["bpe"]
    described = firth("recipes", "wordpiece", "--json").json
    assert described["recipe"]["vocab_size"] == 16000
    assert "--set" in firth("recipes", "unigram").out
    assert firth("diff", "bpe", "byte-bpe", "--json").json["differences"] == {
        "model": {"bpe": "bpe", "byte-bpe": "byte-bpe"}
    }
    assert "same recipe" in firth("diff", "bpe", "bpe").out


def test_every_verb_has_an_example() -> None:
    from firth.cli.main import app

    for command in app.registered_commands:
        assert command.callback is not None
        name = str(command.name)
        assert f"Example: firth {name}" in (command.callback.__doc__ or ""), name
        assert firth(name, "--help").code == 0


def test_help_is_quick() -> None:
    """The best of three, in seconds of the processor, because the machine may be busy."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", "from firth.cli.main import main; main()", "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5


def test_closed_output_pipes_are_ignored(lines: Path) -> None:
    """`firth check ... | head -1` ends without a traceback."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", "from firth.cli.main import main; main()", "check", str(lines)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(reader)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
