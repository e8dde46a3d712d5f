"""Minimal pairs: hand-made scores, ties, floors, bad files, the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import firth
from firth.abilities import Score
from firth.cli.main import app
from firth.errors import AbilityError, ArgumentError, CorpusError
from firth.report.minimal_pairs import evaluate_pairs, read_minimal_pairs
from tests.nets.small_nets import small_net

PAIRS = [
    {"good": "she sleeps", "bad": "she sleep", "phenomenon": "agreement", "paradigm": "verb"},
    {"good": "they sleep", "bad": "they sleeps", "phenomenon": "agreement", "paradigm": "verb"},
    {"good": "a dog", "bad": "a dogs", "phenomenon": "agreement", "paradigm": "noun"},
    {"good": "who left", "bad": "left who"},
]


class HandMade:
    """Prefers sentences with the letters of `liked`."""

    score_kind = "causal"

    def __init__(self, liked: str, unknown: float = 0.0) -> None:
        self.liked, self.unknown = liked, unknown

    def score(self, texts: Sequence[str]) -> list[Score]:
        return [
            Score(logprob=float(sum(text.count(one) for one in self.liked)), spelling=self.unknown * text.count("a"))
            for text in texts
        ]

    def score_pieces(self, pieces: Any) -> Any:
        return map(self.score, pieces)


def write(folder: Path, *rows: Any) -> list[Path]:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "p.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [folder / "p.jsonl"]


def test_accuracy_by_hand_with_a_tie(tmp_path: Path) -> None:
    """The model counts the letter s: right, wrong, wrong, and a tie of "who left"."""
    report = evaluate_pairs(HandMade("s"), write(tmp_path, *PAIRS))
    assert report["accuracy"] == pytest.approx((1 + 0 + 0 + 0.5) / 4)
    assert (report["pairs"], report["ties"]) == (4, 1)
    assert report["score"] == "log-probability"
    assert report["sections"]["agreement"]["accuracy"] == pytest.approx(1 / 3)
    assert {name: one["accuracy"] for name, one in report["by_paradigm"].items()} == {"verb": 0.5, "noun": 0.0}


def test_floors_are_chance_length_and_given_models(tmp_path: Path) -> None:
    """The right one is shorter in two pairs, longer in one, and of the same length in one."""
    report = evaluate_pairs(HandMade("s"), write(tmp_path, *PAIRS), {"other": HandMade("z")})
    assert report["floors"] == {"chance": 0.5, "shorter": pytest.approx(2.5 / 4), "other": 0.5}


def test_the_characters_of_unknown_words_count(tmp_path: Path) -> None:
    files = write(tmp_path, {"good": "b", "bad": "a"})
    assert evaluate_pairs(HandMade("z"), files)["accuracy"] == 0.5
    assert evaluate_pairs(HandMade("z", unknown=-1.0), files)["accuracy"] == 1.0


@pytest.mark.parametrize(
    "row", ["nonsense", '{"good": "one"}', '{"good": "one", "bad": " "}', '{"good": 1, "bad": 2}', "[1]", ""]
)
def test_bad_files_are_refused(tmp_path: Path, row: str) -> None:
    with pytest.raises(CorpusError):
        list(read_minimal_pairs(write(tmp_path, row)[0]))


def test_a_model_without_probabilities_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="gives no probabilities"):
        evaluate_pairs(object(), write(tmp_path, *PAIRS))


def test_the_command_compares_with_floors(tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("she sleeps\nthey sleep\na dog\nwho left\n" * 5, encoding="utf-8")
    for recipe in ("kn3", "unigram"):
        firth.train(recipe, text, out=tmp_path / recipe)
    (file,) = write(tmp_path, *PAIRS)
    arguments = ["evaluate", str(tmp_path / "kn3"), "pairs", str(file), "--floor", str(tmp_path / "unigram")]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    report = json.loads(shown.stdout)
    assert report["suite"] == "pairs"
    assert report["accuracy"] == 1.0
    assert report["floors"]["unigram"] < 1
    assert "floor: unigram" in CliRunner().invoke(app, arguments).stdout


def test_floors_belong_to_pairs(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="belongs to the suite pairs"):
        firth.evaluate(tmp_path, "words", tmp_path / "w.tsv", floors=[tmp_path])


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("bert", "(each token given all others)"),
        ("bart", "(each token given the text with a mask in its place)"),
        ("mass", "(each token given the text with a mask in its place)"),
        ("t5", "(each word as the span of a sentinel, given all others)"),
    ],
)
def test_the_kind_of_score_is_named(name: str, meaning: str, tmp_path: Path) -> None:
    """The wins are those of the model's own scores."""
    model: Any = small_net(name)
    report = evaluate_pairs(model, write(tmp_path, *PAIRS))
    assert report["score"] == f"pseudo-log-likelihood {meaning}"
    scores = [[one.logprob + one.spelling for one in model.score([pair["good"], pair["bad"]])] for pair in PAIRS]
    expected = [0.5 if good == bad else float(good > bad) for good, bad in scores]
    assert report["accuracy"] == pytest.approx(sum(expected) / 4)


def test_a_translator_has_no_scores_of_texts(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="score"):
        evaluate_pairs(small_net("transformer"), write(tmp_path, *PAIRS))
