"""Search among sentences: the nearest by cosine, without the query itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.apply.sentences import SentenceIndex
from firth.errors import AbilityError, CorpusError
from tests.command import assert_refused
from tests.command import firth as command

TEXTS = ["the dog ran home", "the cat sat down", "", "a dog sat here", "the dog ran home", "cats and dogs"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = {"tokenizer.min_count": 1, "base.dimension": 6, "base.epochs": 2}
    return firth.train("sif", [TEXTS] * 9, out=tmp_path_factory.mktemp("sif") / "m", settings=settings)


def test_the_nearest_are_those_of_a_loop(model: Any) -> None:
    index = SentenceIndex(model, TEXTS)
    assert index.texts == ["the dog ran home", "the cat sat down", "a dog sat here", "cats and dogs"]
    found = index.similar("the dog sat", 3)
    rows, (query,) = model.embed(index.texts), model.embed(["the dog sat"])
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    order = np.argsort(-cosines)[:3]
    assert [text for text, _ in found] == [index.texts[row] for row in order]
    np.testing.assert_allclose([score for _, score in found], cosines[order], atol=1e-5)
    assert "cats and dogs" not in dict(index.similar(" cats and dogs ", 4))
    assert len(index.similar("the dog sat", 10)) == 4


def test_the_index_finds_most_of_the_nearest(model: Any) -> None:
    rng = np.random.default_rng(0)
    words = sorted({word for text in TEXTS for word in text.split()})
    texts = [" ".join(rng.choice(words, 6)) for _ in range(3000)]
    index = SentenceIndex(model, texts)
    hits = 0
    for query in texts[:30]:
        exact, near = (dict(index.similar(query, 10, approximate=one)) for one in (False, True))
        hits += len(set(exact) & set(near))
    assert hits >= 0.85 * 300


def test_the_command_line(model: Any, tmp_path: Path) -> None:
    firth.train("sif", [TEXTS] * 9, out=tmp_path / "m", settings=["tokenizer.min_count=1", "base.dimension=6"])
    (tmp_path / "s.txt").write_text("\n".join(TEXTS))
    found = command("similar", tmp_path / "m", "the dog", "a cat sat", "--sentences", tmp_path / "s.txt", "--json").json
    assert found["sentences"] == 4
    assert [one["query"] for one in found["queries"]] == ["the dog", "a cat sat"]
    assert len(found["queries"][0]["neighbours"]) == 4
    printed = command("similar", tmp_path / "m", "the dog", "--sentences", tmp_path / "s.txt", "--count", 2).out
    assert len(printed.splitlines()) == 2
    wrong = [(["--odd"], "no option of words"), (["--minus", "cat"], "no option of words")]
    for options, message in wrong:
        given = ("similar", tmp_path / "m", "the dog", "--sentences", tmp_path / "s.txt", *options)
        assert_refused(command(*given), message, code=2)
    assert_refused(command("similar", tmp_path / "m", "dog", "--pooling", "mean"), "--sentences", code=2)


def test_what_cannot_be_searched_is_refused(model: Any, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no text to search"):
        SentenceIndex(model, ["", " "])
    with pytest.raises(AbilityError):
        SentenceIndex(firth.train("unigram", [["a b"]], out=tmp_path / "u"), ["a"])
