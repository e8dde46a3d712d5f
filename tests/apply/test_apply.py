"""Applying models: results of scoring and embedding, and refusals of models without an ability."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.abilities import score_documents, total
from firth.apply.embed import embed_file, require_embeds
from firth.apply.fill import fill_text
from firth.apply.score import directions, explain_text, line_row, next_tokens, score_file, summarise
from firth.apply.similar import find_similar, nearest_occurrences, odd_one_out
from firth.errors import AbilityError, CorpusError

TEXT = ["a b", "b a", "a b b"]


@pytest.fixture(scope="module")
def bigram(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("apply")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        return firth.train("mkn3", [TEXT], out=folder / "model")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("a b\n\n  b  \n", encoding="utf-8")
    return path


def test_blank_lines_are_not_scored(bigram: Any, lines: Path) -> None:
    scored = list(score_file(bigram, lines))
    assert [(number, text) for number, text, _ in scored] == [(0, "a b"), (2, "b")]
    expected = bigram.score(["a b", "b"])
    assert [score for *_, score in scored] == expected
    assert line_row(2, expected[1])["logprob"] == expected[1].logprob
    assert summarise(total(expected), "causal")["tokens"] == 5


def test_documents_are_scored_as_their_sentences(bigram: Any) -> None:
    assert score_documents(bigram, [["a b"], ["b", "a"]]) == total(bigram.score(["a b", "b", "a"]))


def test_next_tokens_are_sorted_by_probability(bigram: Any) -> None:
    found = next_tokens(bigram, "a", 3)
    assert found[0][0] == "b"
    assert [probability for _, probability in found] == sorted((p for _, p in found), reverse=True)


def test_explanations_give_the_probability_of_the_text(bigram: Any) -> None:
    [sentence] = explain_text(bigram, "a b")
    assert len(sentence) == 3
    assert math.isfinite(bigram.score(["a b"])[0].logprob)


def test_only_bidirectional_models_have_directions(bigram: Any) -> None:
    assert directions(bigram, TEXT, total(bigram.score(TEXT))) == {}


def test_every_line_is_embedded(lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))
    model = firth.train("tfidf", [TEXT], out=tmp_path / "bag", settings=["tokenizer.min_count=1"])
    report = embed_file(model, lines, tmp_path / "vectors.npy", unit=True)
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.shape == (report["rows"], report["dimension"]) == (3, vectors.shape[1])
    assert report["empty"] == 1
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1, 0, 1])
    with pytest.raises(AbilityError, match="no layers of hidden states"):
        embed_file(model, lines, tmp_path / "other.npy", layer=1)


def test_a_file_without_text_is_refused(bigram: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="no text"):
        list(score_file(bigram, empty))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model: list(score_file(model, Path("x"))), "gives no probabilities"),
        (lambda model: explain_text(model, "a"), "cannot explain"),
        (lambda model: next_tokens(model, "a", 3), "cannot predict the next token"),
        (lambda model: fill_text(model, "a"), "fills no masks"),
        (lambda model: find_similar(model, ["a"]), "no word vectors"),
        (lambda model: odd_one_out(model, ["a", "b"]), "no word vectors"),
        (lambda model: nearest_occurrences(model, "a", "a b"), "no contextual vectors"),
        (require_embeds, "makes no vectors"),
    ],
)
def test_models_without_an_ability_are_refused(use: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(AbilityError, match=message):
        use(object())
