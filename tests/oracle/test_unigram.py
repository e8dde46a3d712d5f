"""The unigram model against numbers worked out by hand, and against the exact entropy."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import firth
from firth.abilities import total
from firth.lm.language_model import END, UnknownWordModel
from firth.tokens.tokenizer import EOS, UNK

TEXT = [["BROWN READ HOLY BIBLE", "MARK READ A TEXT BOOK", "HE READ A BOOK BY DAVID"]]


def test_probabilities_by_hand(tmp_path: Path) -> None:
    """15 words of 11 types and 3 ends: N = 18, V = 11 + <unk> + </s> = 13, so p(w) = (c + 1) / 31."""
    model = firth.train("unigram", TEXT, out=tmp_path / "m")
    score = model.score(["BROWN READ A BOOK"])[0]
    expected = Fraction(2, 31) * Fraction(4, 31) * Fraction(3, 31) ** 2 * Fraction(4, 31)
    assert score.logprob == pytest.approx(math.log(expected), abs=1e-12)
    assert (score.tokens, score.words, score.sentences, score.bytes, score.oov) == (5, 4, 1, 17, 0)
    assert score.perplexity == pytest.approx(float(expected) ** (-1 / 5))
    assert score.word_perplexity == pytest.approx(float(expected) ** (-1 / 5))
    assert score.bits_per_byte == pytest.approx(-math.log2(expected) / 17)


def test_unknown_words_are_scored_by_their_characters(tmp_path: Path) -> None:
    model = firth.train("unigram", TEXT, out=tmp_path / "m")
    score = model.score(["DAVID ATE"])[0]
    assert score.oov == 1
    assert score.logprob == pytest.approx(math.log(Fraction(2, 31) * Fraction(1, 31) * Fraction(4, 31)), abs=1e-12)
    assert score.spelling == pytest.approx(model.unknown_word_model.log_probability("ATE"))
    assert score.bits_per_byte == pytest.approx(-(score.logprob + score.spelling) / math.log(2) / 9)


def test_spelling_is_a_distribution() -> None:
    """Words of at most n bytes have a mass that grows to 1: checked by the chain of bytes, END absorbing."""
    spelling = UnknownWordModel.train(["ab", "ba", "b", "a" * 5])
    step = np.exp(spelling._log)
    assert np.allclose(step.sum(axis=1), 1)
    alive = step[END].copy()
    ended = alive[END]
    for _ in range(20_000):
        alive = alive[:END] @ step[:END]
        ended += alive[END]
    assert ended == pytest.approx(1, abs=1e-6)


def test_probabilities_sum_to_one(tmp_path: Path) -> None:
    for delta in ("1", "0.01"):
        model = firth.train("unigram", TEXT, out=tmp_path / delta, settings=[f"delta={delta}"])
        p = np.exp(model.next_logprobs([]))
        assert p.sum() == pytest.approx(1, abs=1e-12)
        assert p[[UNK, EOS]].min() > 0


def test_a_special_token_in_the_text_is_an_unknown_word(tmp_path: Path) -> None:
    model = firth.train("unigram", [["a b </s> <pad> a <unk>"]], out=tmp_path / "m")
    assert np.asarray(model.trie.counts)[:5].tolist() == [0, 3, 1, 1, 0]
    score = model.score(["a </s>"])[0]
    assert math.isfinite(score.logprob)
    assert model.score(["a <unk>"])[0].oov == 0


@pytest.mark.parametrize("source", ["oracle", "oracle-chinese", "oracle-markov1"])
def test_no_model_beats_the_entropy(source: str, tmp_path: Path) -> None:
    corpus = firth.read_corpus(f"builtin:{source}")
    train, _, test = corpus.parts(0.1, 0.2)
    model = firth.train("unigram", train, out=tmp_path / "m")
    score = total(model.score(list(test.sentences())))
    entropy = corpus.entropy()
    assert entropy is not None
    assert entropy["bits_per_byte"] < score.bits_per_byte < 4 * entropy["bits_per_byte"]
