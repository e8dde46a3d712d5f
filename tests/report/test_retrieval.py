"""Retrieval of translations: hand-made vectors, repeated texts, ties, languages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.errors import AbilityError, CorpusError
from firth.report.retrieval import evaluate_retrieval, nearest_hits

VECTORS = {
    "one": [1.0, 0.0, 0.0],
    "two": [0.0, 2.0, 0.0],
    "three": [0.0, 0.1, 3.0],
    "eins": [5.0, 1.0, 0.0],
    "zwei": [0.0, 1.0, 0.9],
    "drei": [0.0, 1.0, 0.2],
    "nichts": [0.0, 0.0, 0.0],
}


class HandMade:
    """A model with given vectors of texts."""

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        return np.array([VECTORS[text] for text in texts], dtype=np.float32)


class Bilingual(HandMade):
    """The same, which records the language of each call."""

    languages = ("en", "de")

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def in_language(self, language: str) -> HandMade:
        if language not in self.languages:
            raise AbilityError(f"the model does not know the language {language!r}.")
        self.asked.append(language)
        return self


def write(folder: Path, *pairs: tuple[str, str], header: str = "en\tde") -> list[Path]:
    (folder / "p.tsv").write_text("\n".join([header, *map("\t".join, pairs)]) + "\n", encoding="utf-8")
    return [folder / "p.tsv"]


def test_accuracy_of_hand_made_vectors_both_ways(tmp_path: Path) -> None:
    """one -> eins, two -> drei (wrong), three -> zwei (wrong); eins -> one, zwei -> two, drei -> two (wrong)."""
    files = write(tmp_path, ("one", "eins"), ("two", "zwei"), ("three", "drei"))
    report = evaluate_retrieval(HandMade(), files)
    assert report["accuracy_forward"] == pytest.approx(1 / 3)
    assert report["accuracy_backward"] == pytest.approx(2 / 3)
    assert report["pairs"] == 3
    assert report["languages"] == ["en", "de"]
    assert report["chance_forward"] == pytest.approx(1 / 3)
    low, high = report["accuracy_backward_interval"]
    assert low < 2 / 3 < high
    assert report["interval"] == "Wilson, 95%"


def test_each_translation_of_a_text_is_right(tmp_path: Path) -> None:
    """The nearest of `two` is `drei`, which is another translation of it here; as a candidate it counts once."""
    files = write(tmp_path, ("two", "zwei"), ("two", "drei"), ("one", "eins"))
    report = evaluate_retrieval(HandMade(), files)
    assert report["accuracy_forward"] == 1.0
    assert report["chance_backward"] == 0.5


def test_ties_are_shared() -> None:
    zeros = np.zeros((4, 3))
    assert nearest_hits(zeros, np.eye(4, 3), np.arange(4), np.arange(4)) == 1.0  # each of four counts 1 / 4
    assert nearest_hits(np.eye(2), np.array([[1.0, 0.0], [2.0, 0.0]]), np.arange(2), np.arange(2)) == 1.0


def test_the_length_of_vectors_does_not_matter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(30, 8))
    two = one + rng.normal(size=(30, 8))  # so that some are found and some are not
    scaled = two * rng.uniform(0.1, 10, size=(30, 1))
    assert nearest_hits(one, two, np.arange(30), np.arange(30)) == nearest_hits(
        one, scaled, np.arange(30), np.arange(30)
    )
    slow = sum(
        max(range(30), key=lambda other: one[n] @ two[other] / np.linalg.norm(two[other])) == n for n in range(30)
    )
    assert nearest_hits(one, two, np.arange(30), np.arange(30)) == slow
    assert 5 < slow < 25


def test_texts_are_read_in_the_languages_of_the_header(tmp_path: Path) -> None:
    asked: list[str] = []
    evaluate_retrieval(Bilingual(asked), write(tmp_path, ("eins", "one"), header="de\ten"))
    assert asked == ["de", "en"]
    with pytest.raises(AbilityError, match="does not know the language 'fr'"):
        evaluate_retrieval(Bilingual(asked), write(tmp_path, ("eins", "one"), header="de\tfr"))


def test_what_does_not_embed_or_has_no_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="makes no vectors of texts"):
        evaluate_retrieval(object(), write(tmp_path, ("one", "eins")))
    with pytest.raises(CorpusError, match="no pair"):
        evaluate_retrieval(HandMade(), write(tmp_path))
    with pytest.raises(AbilityError, match="no layers of hidden states"):
        evaluate_retrieval(HandMade(), write(tmp_path, ("one", "eins")), layer=1)
