"""Applying models: results of scoring and embedding, and refusals of models without an ability."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.abilities import total
from firth.apply.embed import embed_file, require_embeds
from firth.apply.fill import fill_text
from firth.apply.score import (
    TextFiles,
    directions,
    explain_text,
    line_row,
    next_tokens,
    open_texts,
    score_lines,
    summarise,
)
from firth.apply.similar import find_similar, nearest_occurrences, odd_one_out
from firth.errors import AbilityError, CorpusError
from firth.lm.pieces import score_documents
from firth.text.corpus import read_corpus

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


def test_every_line_is_scored_and_a_blank_one_is_empty(bigram: Any, lines: Path) -> None:
    scored = list(score_lines(bigram, TextFiles([lines])))
    assert [(line.number, line.text, line.starts_document) for line, _ in scored] == [
        (0, "a b", True), (1, "", False), (2, "b", True)
    ]  # fmt: skip
    expected = bigram.score(["a b", "", "b"])
    assert [score for _, score in scored] == expected
    assert expected[1].tokens == expected[1].bytes == 0
    assert line_row(*scored[2])["logprob"] == expected[2].logprob
    assert summarise(total(expected), "causal", "line")["tokens"] == 5


def test_wrapped_lines_are_scored_by_paragraph(bigram: Any, tmp_path: Path) -> None:
    path = tmp_path / "wrapped.txt"
    path.write_text("\na b\nb a.\n\na\n", encoding="utf-8")
    scored = list(score_lines(bigram, TextFiles([path, path], layout="wrapped")))
    assert [(line.number, line.text) for line, _ in scored] == [(1, "a b\nb a."), (4, "a")] * 2
    assert [score.tokens for _, score in scored] == [5, 2] * 2


def test_documents_are_scored_as_their_sentences(bigram: Any) -> None:
    corpus = read_corpus([["a b"], ["b", "a"]])
    assert score_documents(bigram, corpus) == pytest.approx(total(bigram.score(["a b", "b", "a"])), rel=1e-12)


def test_next_tokens_are_sorted_by_probability(bigram: Any) -> None:
    found = next_tokens(bigram, "a", 3)
    assert found[0][0] == "b"
    assert [probability for _, probability in found] == sorted((p for _, p in found), reverse=True)


def test_explanations_give_the_probability_of_the_text(bigram: Any) -> None:
    [sentence] = explain_text(bigram, "a b")
    assert len(sentence) == 3
    assert math.isfinite(bigram.score(["a b"])[0].logprob)


def test_only_bidirectional_models_have_directions(bigram: Any, lines: Path) -> None:
    assert directions(bigram, TextFiles([lines]), total(bigram.score(TEXT))) == {}


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


def test_a_file_without_text_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="no text"):
        TextFiles([empty])


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model: open_texts(model, ["x"]), "gives no probabilities"),
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
