"""One number for a text: scores of files, of lines, of documents in batches and of `train --valid` agree."""

from __future__ import annotations

import json
import random
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth as library
from firth.abilities import TextPiece, total
from firth.apply.score import TextFiles, score_lines, summarise
from firth.artifact.folder import artifact_info
from firth.artifact.models import load
from firth.fit.mixing import mix
from firth.fit.train import _validate
from firth.text.check import check_corpus
from firth.text.corpus import read_corpus
from tests.command import assert_refused, firth
from tests.nets.small_nets import small_net
from tests.samples import CHINESE, ENGLISH

PARAGRAPHS = [
    f"{ENGLISH[0]} The dog ran, didn't it? {ENGLISH[1]}", "It was lazy. The fox quickly jumped over it!", "",
    f"{CHINESE[0]}{CHINESE[1]}", "The  dog: “quoted”...  naïve text; 我们  喜欢 zebras.", "", "  ", CHINESE[2],
]  # fmt: skip
LINES = ["The quick brown fox", "the lazy dog, doesn't it?", "我们喜欢语言", "The dog", "over zebras"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(PARAGRAPHS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that carries context over the words of `small_net`."""
    folder = tmp_path_factory.mktemp("scores")
    tokenizer = small_net("lstm").tokenizer
    text = [[*ENGLISH, *CHINESE]]
    library.train("kn5-cache", text, out=folder / "cache", tokenizer=tokenizer, valid=[LINES], layout="lines")
    return folder / "cache"


@pytest.mark.parametrize("layout", ["lines", "prose", "wrapped"])
@pytest.mark.parametrize("tokenizer", ["words", "bpe"])
def test_training_and_scoring_give_one_number_for_ngrams(
    layout: str, tokenizer: str, text: Path, tmp_path: Path
) -> None:
    size = "none" if tokenizer == "words" else "400"
    settings = [f"tokenizer.model={tokenizer}", f"tokenizer.vocab_size={size}", "tokenizer.min_count=1"]
    library.train("mkn3", text, out=tmp_path / "m", valid=text, layout=layout, settings=settings)
    trained = artifact_info(tmp_path / "m")["metrics"]
    for context in ("line", "document"):  # n-grams do not pass the end of a sentence
        scored = firth("score", tmp_path / "m", text, "--context", context, "--json").json
        assert scored["context"] == context
        for name in ("bits_per_byte", "perplexity", "word_perplexity"):
            assert scored[name] == pytest.approx(trained[f"valid_{name}"], rel=1e-12)
    checked = check_corpus(read_corpus(text, layout=layout))
    assert (scored["words"], scored["bytes"], scored["sentences"]) == (checked.words, checked.bytes, checked.sentences)


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_training_and_scoring_give_one_number_for_networks(name: str, kind: str, text: Path) -> None:
    model: Any = small_net(name, kind)
    model.network.double()
    corpus = read_corpus(text, layout="lines")
    trained, checked = _validate(model, corpus), check_corpus(corpus)
    scored = summarise(total(score for _, score in score_lines(model, TextFiles([text], "document"))), "causal")
    for name in ("bits_per_byte", "perplexity", "word_perplexity"):
        assert scored[name] == pytest.approx(trained[f"valid_{name}"], rel=1e-9)
    assert (scored["words"], scored["bytes"]) == (checked.words, checked.bytes)
    by_line = total(score for _, score in score_lines(model, TextFiles([text])))
    assert abs(by_line.perplexity / scored["perplexity"] - 1) > 1e-6, "a stream has context from earlier lines"


@pytest.mark.parametrize("name", ["gpt", "lstm", "bert", "cache"])
def test_the_score_of_a_line_is_its_own(name: str, cached: Path, tmp_path: Path) -> None:
    model: Any = load(cached) if name == "cache" else small_net(name)
    if name != "cache":
        model.network.double()
    shuffled = random.Random(1).sample(LINES * 2, 10)
    (tmp_path / "a.txt").write_text("\n".join(LINES), encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n".join(shuffled), encoding="utf-8")
    found = {line.text: score for line, score in score_lines(model, TextFiles([tmp_path / "a.txt"]))}
    assert list(found) == LINES
    for line, score in score_lines(model, TextFiles([tmp_path / "b.txt"])):
        assert score == pytest.approx(found[line.text], abs=1e-9)
    np.testing.assert_allclose(list(found.values()), model.score(LINES), atol=1e-9)


def test_a_blank_line_ends_the_context(cached: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.txt"
    path.write_text("The dog\nThe dog\n\nThe dog\nThe dog\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    both = firth("score", cached, path, path, "--context", "document", "-o", out, "--json")
    assert both.code == 0, both.err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["file"], row["line"]) for row in rows] == [(str(path), line) for line in range(5)] * 2
    first, second, blank = (row["logprob"] for row in rows[:3])
    assert [row["logprob"] for row in rows] == [first, second, blank, first, second] * 2
    assert second > first + 0.01, "the cache has its words"
    assert blank == 0
    assert both.json["tokens"] == 8 * 3


def test_documents_longer_than_a_batch_carry_their_context(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = mix([load(cached), small_net("lstm"), small_net("gpt")], [LINES])
    documents = [LINES * 4, LINES[:1], LINES[1:]]
    expected = [score.logprob for one in documents for score in model.score(one, as_document=True)]
    pieces = [TextPiece([line], not number) for one in documents for number, line in enumerate(one)]
    monkeypatch.setattr("firth.lm.pieces._PIECES", 7)
    found = [score.logprob for score in model.score_pieces(pieces)]
    np.testing.assert_allclose(found, expected, atol=2e-5)  # networks compute in single precision
    endless = model.score_pieces(TextPiece([LINES[0]], False) for _ in repeat(None))
    assert [next(endless).tokens for _ in range(20)] == [5] * 20


def test_wrong_choices_are_refused_before_anything_is_loaded(text: Path) -> None:
    assert_refused(firth("score", "none", text, "--context", "documents"), "'document'", code=2)
    assert_refused(firth("score", "none", text, "--layout", "line"), "'lines'", code=2)
    assert_refused(firth("score", "none", text, "--context", "document", "--explain"), "--explain", code=2)


def test_text_that_does_not_fit_is_noted(cached: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("зебры бегут over there\n", encoding="utf-8")
    assert "of the words are unknown" in firth("score", cached, path).err
    path.write_text("The lazy dog\n", encoding="utf-8")
    assert firth("score", cached, path, "--threads", 1, "--layout", "auto").err == ""
