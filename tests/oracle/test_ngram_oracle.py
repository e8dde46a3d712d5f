"""N-gram models against the survey's worked example and against sources whose entropy is known."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest

import firth
from firth.abilities import total
from firth.counts.recipe import SMOOTHINGS, NgramRecipe
from firth.counts.train import train_on_sentences
from tests.command import firth as command

SURVEY = ["BROWN READ HOLY BIBLE", "MARK READ A TEXT BOOK", "HE READ A BOOK BY DAVID"]


def probability(text: str, **fields: object) -> float:
    model = train_on_sentences(SURVEY, NgramRecipe(order=2, **fields))  # type: ignore[arg-type]
    return math.exp(model.score([text])[0].logprob)


def test_the_survey_example_by_maximum_likelihood() -> None:
    """p(BROWN|<s>) p(READ|BROWN) p(A|READ) p(BOOK|A) p(</s>|BOOK) = 1/3 x 1 x 2/3 x 1/2 x 1/2."""
    expected = Fraction(1, 3) * 1 * Fraction(2, 3) * Fraction(1, 2) * Fraction(1, 2)
    assert probability("BROWN READ A BOOK", smoothing="mle") == pytest.approx(float(expected), rel=1e-14)
    assert probability("DAVID READ A BOOK", smoothing="mle") == 0


@pytest.mark.parametrize(("vocabulary", "size"), [("closed", 12), ("open", 13)])
def test_the_survey_example_with_one_added(vocabulary: str, size: int) -> None:
    """Eleven words and the end of the sentence, and one more if unknown words have probability mass."""
    expected = (
        Fraction(1 + 1, 3 + size)  # BROWN after <s>
        * Fraction(1 + 1, 1 + size)  # READ after BROWN
        * Fraction(2 + 1, 3 + size)  # A after READ
        * Fraction(1 + 1, 2 + size)  # BOOK after A
        * Fraction(1 + 1, 2 + size)  # the end after BOOK
    )
    found = probability("BROWN READ A BOOK", smoothing="additive", delta=1.0, vocabulary=vocabulary)
    assert found == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "mle"])
def test_what_was_never_seen_is_possible_under_every_smoothing(smoothing: str) -> None:
    assert 0 < probability("DAVID READ A BOOK", smoothing=smoothing) < 1


def test_a_text_that_is_impossible_has_a_score_in_json(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(SURVEY) + "\n")
    (tmp_path / "test.txt").write_text("DAVID READ A BOOK\nBROWN READ A BOOK\n")
    settings = ("--set", "order=2", "--layout", "lines")
    assert command("train", "mle", tmp_path / "train.txt", "-o", tmp_path / "m", *settings).code == 0
    outcome = command("score", tmp_path / "m", tmp_path / "test.txt", "-o", tmp_path / "rows.jsonl", "--json")
    assert outcome.json["logprob"] == -math.inf
    assert '"logprob": -1e999' in (tmp_path / "rows.jsonl").read_text()


@pytest.mark.parametrize(("source", "order"), [("oracle-markov1", 2), ("oracle-markov2", 3)])
def test_more_text_brings_a_model_down_to_the_entropy(source: str, order: int, tmp_path: Path) -> None:
    """The cross-entropy falls towards the entropy of the source and not below it, but for the chance of the sample."""
    corpus = firth.read_corpus(f"builtin:{source}")
    entropy = corpus.entropy()
    assert entropy is not None
    train, _, test = corpus.parts(0.05, 0.2)
    firth.train("words", corpus, out=tmp_path / "words")
    gaps = []
    for tokens in ("1ktok", "10ktok", "100ktok"):
        out = tmp_path / tokens
        model = firth.train(f"mkn{order}", train, out=out, tokenizer=tmp_path / "words", budget=tokens)
        gaps.append(total(model.score(list(test.sentences()))).bits_per_byte / entropy["bits_per_byte"] - 1)
    assert gaps[0] > gaps[1] > gaps[2] > -0.01
    assert gaps[2] < 0.05
