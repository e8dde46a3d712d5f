"""Models, tokenizers, token stores and scores print what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import firth
from firth.abilities import Score
from firth.summaries import Summarised, format_fact, html_table
from tests.fit.small_nets import small

TEXT = [["a b c", "b a"], ["c c a b"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("summaries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(path / "cache"))
        firth.train("mkn3", TEXT, out=path / "kn")
    return path


def test_a_language_model(folder: Path) -> None:
    model = firth.load(folder / "kn")
    assert repr(model) == (
        "<NgramModel: smoothing modified-kneser-ney, order 3, tokenizer words, vocabulary 8, "
        "methods score, generate, next, explain>"
    )
    assert "<tr><th>order</th><td>3</td></tr>" in model._repr_html_()  # type: ignore[attr-defined]


def test_a_tokenizer_and_a_token_store(folder: Path) -> None:
    tokenizer = firth.load(folder / "kn").tokenizer
    assert repr(tokenizer) == "<Tokenizer: model words, vocabulary 8, normalise nfc>"
    store = firth.open_store(firth.read_corpus(TEXT), tokenizer)
    assert repr(store).startswith("<TokenStore: tokens 9, words 9, sentences 3, documents 2, unknown 0, folder ")


def test_a_network() -> None:
    """Of a network only the recipe is read, so that printing it costs nothing."""
    from firth.nets.masked import MaskedNet

    model = object.__new__(MaskedNet)
    model.recipe = small()
    found = model.summary()
    assert found["encoder"] == small().encoder.kind
    assert found["methods"] == "score, fill, similar, vector, embed, layers"


def test_a_score_is_a_table_in_notebooks() -> None:
    score = Score(logprob=-2.0, tokens=2, words=1, sentences=1, bytes=1234)
    assert "<th>bytes</th><td>1,234</td>" in score._repr_html_()
    assert "<th>perplexity</th><td>2.718</td>" in score._repr_html_()


def test_nothing_in_a_table_is_markup() -> None:
    assert "<script>" not in html_table("<script>", {"<script>": "<script>"})


@pytest.mark.parametrize(
    ("value", "text"), [(12345, "12,345"), (0.25, "0.25"), (True, "True"), ("a" * 99, "a" * 57 + "...")]
)
def test_values_are_short(value: Any, text: str) -> None:
    assert format_fact(value) == text


def test_without_facts_there_is_still_a_name() -> None:
    assert repr(Summarised()) == "<Summarised>"
