"""Bags of words: worked by hand, against scikit-learn, from the command line, and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError
from firth.text.oracle import oracle_source
from firth.vectors import bag
from firth.vectors.bag import BagModel, TfidfModel, restore_bag
from tests.command import firth

DOCUMENTS = ["red cat\nred dog", "red cat cat", "blue dog dog", "blue bird"]
NEW = ["red red unicorn dog", "", "bird cat blue", "unicorn"]


def train(kind: str, folder: Path, documents: list[str] = DOCUMENTS) -> Any:
    (folder / "text.txt").write_text("\n\n".join(documents))
    settings = ("--set", "tokenizer.min_count=1", "--set", "tokenizer.split=space", "--json")
    outcome = firth("train", kind, folder / "text.txt", "-o", folder / kind, *settings)
    assert outcome.code == 0, outcome.err
    assert outcome.json["metrics"]["words"] > 1
    return load(folder / kind)


@pytest.fixture(scope="module")
def onehot(tmp_path_factory: pytest.TempPathFactory) -> BagModel:
    model = train("onehot", tmp_path_factory.mktemp("onehot"))
    assert type(model) is BagModel
    return model


@pytest.fixture(scope="module")
def tfidf(tmp_path_factory: pytest.TempPathFactory) -> TfidfModel:
    model = train("tfidf", tmp_path_factory.mktemp("tfidf"))
    assert type(model) is TfidfModel
    return model


def test_no_word_is_like_another(onehot: BagModel) -> None:
    """Scores are 0 by construction, so that words are ranked by frequency."""
    found = onehot.similar("red", 10)
    assert found[:2] == [("cat", 0.0), ("dog", 0.0)]
    assert dict(found) == {"cat": 0, "dog": 0, "blue": 0, "bird": 0}
    assert onehot.similarity("red", "red") == 1
    assert onehot.similarity("red", "cat") == 0
    assert onehot.similar("red", 1) == [("cat", 0.0)]
    assert onehot.similar("red", -1) == []
    for query in (onehot.similar, onehot.row):
        with pytest.raises(AbilityError, match="unicorn"):
            query("unicorn")


def test_texts_are_counts(onehot: BagModel) -> None:
    found = onehot.embed(NEW)
    assert found.dtype == np.float32
    names = sorted(onehot.rows, key=onehot.rows.__getitem__)
    theirs = CountVectorizer(vocabulary=names, token_pattern=r"\S+").transform(NEW).toarray()
    assert found.toarray()[:, 5:].tolist() == theirs.tolist()
    assert found.sum() == theirs.sum() == 6
    assert onehot.embed([]).shape == (0, len(onehot.words))


def test_weights_by_hand(tfidf: TfidfModel) -> None:
    """bird is in 1 of 4 documents, blue in 2 of them."""
    bird, blue = np.log(5 / 2) + 1, np.log(5 / 3) + 1
    assert tfidf.idf[[tfidf.row("bird"), tfidf.row("blue")]].tolist() == pytest.approx([bird, blue])
    vector = tfidf.embed(["blue bird bird"]).toarray()[0]
    length = np.hypot(2 * bird, blue)
    assert vector[[tfidf.row("bird"), tfidf.row("blue")]].tolist() == pytest.approx([2 * bird / length, blue / length])


def sklearn_twin(documents: list[str], words: dict[str, int]) -> TfidfVectorizer:
    names = sorted(words, key=words.__getitem__)
    return TfidfVectorizer(vocabulary=names, token_pattern=r"\S+", lowercase=False).fit(documents)


def test_scikit_learn_gives_the_same(tfidf: TfidfModel) -> None:
    theirs = sklearn_twin(DOCUMENTS, tfidf.rows)
    found = tfidf.embed(NEW)
    assert found.dtype == np.float32
    assert found.toarray()[:, 5:] == pytest.approx(theirs.transform(NEW).toarray(), abs=1e-6)
    assert not found.toarray()[:, :5].any()
    assert tfidf.matrix.toarray()[5:] == pytest.approx(theirs.transform(DOCUMENTS).toarray().T, abs=1e-6)


def test_scikit_learn_gives_the_same_for_more_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bag, "_CHUNK", 500)
    documents = [document.text.replace(".", "").lower() for document in oracle_source("english").sample(3, 6, 60)]
    model = train("tfidf", tmp_path, documents)
    theirs = sklearn_twin(documents, model.rows)
    assert model.embed(documents).toarray()[:, 5:] == pytest.approx(theirs.transform(documents).toarray(), abs=1e-6)
    matrix = theirs.transform(documents).toarray().T
    lengths = np.linalg.norm(matrix, axis=1)
    row = model.row("the")
    cosines = matrix @ matrix[row - 5] / lengths / lengths[row - 5]
    found = model.similar("the", len(matrix))
    assert [score for _, score in found] == pytest.approx(sorted(np.delete(cosines, row - 5), reverse=True), abs=1e-6)
    for word, score in found[:20]:
        assert score == pytest.approx(cosines[model.row(word) - 5], abs=1e-6)
        assert model.similarity("the", word) == pytest.approx(score, abs=1e-12)


def test_words_of_the_same_documents_are_near(tfidf: TfidfModel) -> None:
    assert tfidf.similar("red", 1)[0][0] == "cat"
    assert tfidf.similarity("red", "red") == pytest.approx(1)
    assert tfidf.similarity("red", "bird") == 0
    assert 0 < tfidf.similarity("red", "dog") < tfidf.similarity("red", "cat") < 1


def test_a_single_document_is_cut_into_sentences(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("red cat\nblue dog\n")
    settings = ("--set", "tokenizer.min_count=1", "--json")
    outcome = firth("train", "tfidf", tmp_path / "text.txt", "-o", tmp_path / "model", *settings)
    assert "single document" in outcome.err
    assert outcome.json["metrics"]["documents"] == 2
    assert load(tmp_path / "model").similarity("red", "blue") == 0


def test_documents_without_known_words(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("red cat\n\nrare\n\nred cat\n\nred dog\n\ndog")
    settings = ("--set", "tokenizer.min_count=2", "--json")
    outcome = firth("train", "tfidf", tmp_path / "text.txt", "-o", tmp_path / "model", *settings)
    assert outcome.json["metrics"]["documents"] == 5
    model = load(tmp_path / "model")
    assert model.matrix.shape[1] == 4
    assert model.idf[model.row("dog")] == pytest.approx(np.log(6 / 3) + 1)


@pytest.mark.parametrize("kind", ["onehot", "tfidf"])
def test_texts_that_are_too_small(kind: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("word word\n" * 9)
    outcome = firth("train", kind, tmp_path / "text.txt", "-o", tmp_path / "model")
    assert outcome.code == 1
    assert "1 word" in outcome.err
    (tmp_path / "text.txt").write_text("one two\n" * 9)
    outcome = firth("train", kind, tmp_path / "text.txt", "-o", tmp_path / "model", "--budget", "10s")
    assert outcome.code == 2
    assert "leave --budget out" in outcome.err


def test_damaged_arrays(tfidf: TfidfModel) -> None:
    arrays = tfidf.arrays()

    def again(**changed: Any) -> BagModel:
        return restore_bag(tfidf.recipe, arrays | changed, tfidf.tokenizer, tfidf.layout)

    assert again().similar("red") == tfidf.similar("red")
    for name, value in [
        ("counts", arrays["counts"][1:]),
        ("idf", arrays["idf"].astype(np.float32)),
        ("idf", arrays["idf"] * np.nan),
        ("begins", arrays["begins"][:-1]),
        ("begins", arrays["begins"][::-1]),
        ("documents", arrays["documents"] - np.int32(5)),
        ("documents", arrays["documents"] + np.int32(2_000_000_000)),
        ("weights", arrays["weights"] * np.float32(np.inf)),
        ("weights", arrays["weights"][1:]),
        ("weights", None),
    ]:
        with pytest.raises(ArtifactError, match="train the model again"):
            again(**{name: value})
