"""Character n-grams: which there are, where they hash to, and what words are made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.errors import AbilityError, ArtifactError
from firth.vectors.subwords import SubwordModel, compose_vectors, ngram_buckets, restore_subwords
from tests.artifact.formats.small_vectors import SPECIALS, subword_model


def fnv(ngram: str) -> int:
    """FNV-1a in 32 bits over signed bytes, as fastText computes it."""
    value = 2166136261
    for byte in ngram.encode():
        value ^= byte if byte < 128 else byte | 0xFFFFFF00
        value = value * 16777619 % 2**32
    return value


def twin(word: str, min_n: int, max_n: int) -> list[str]:
    """The n-grams of a word in fastText's order: by position, then by length."""
    if word == "</s>":
        return []
    signed = f"<{word}>"
    return [
        signed[begin : begin + n]
        for begin in range(len(signed))
        for n in range(max(min_n, 1), max_n + 1)
        if begin + n <= len(signed) and not (n == 1 and begin in (0, len(signed) - 1))
    ]


def test_by_hand() -> None:
    starts, rows = ngram_buckets(["cat", "a", ""], 3, 4, 2**31 - 1)
    grams = ["<ca", "<cat", "cat", "cat>", "at>", "<a>"]
    assert starts.tolist() == [0, 5, 6, 6]
    assert rows.tolist() == [fnv(gram) % (2**31 - 1) for gram in grams]
    assert (starts.dtype, rows.dtype) == (np.int64, np.int32)
    assert fnv("a") == 0xE40C292C  # of the published test values
    assert fnv("foobar") == 0xBF9CF968


@given(
    st.lists(st.text(max_size=8) | st.sampled_from(["</s>", "我们", "naïve", "😀"]), max_size=5),
    st.integers(0, 3),
    st.integers(0, 7),
    st.integers(1, 1000),
)
def test_twin(words: list[str], min_n: int, max_n: int, buckets: int) -> None:
    starts, rows = ngram_buckets(words, min_n, max_n, buckets)
    assert len(starts) == len(words) + 1
    for word, begin, end in zip(words, starts[:-1], starts[1:], strict=True):
        assert rows[begin:end].tolist() == [fnv(gram) % buckets for gram in twin(word, min_n, max_n)]


def test_words_are_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.vectors.subwords._BLOCK", 3)
    model = subword_model()
    assert not model.vectors[: len(SPECIALS)].any()
    for row, word in enumerate(model.words[len(SPECIALS) :], len(SPECIALS)):
        buckets = [fnv(gram) % 50 for gram in twin(word, 2, 4)]
        expected = np.mean([model.own[row], *model.ngrams[buckets]], axis=0)
        assert np.allclose(model.vector(word), expected, atol=1e-6)
    again = compose_vectors(model.words, model.own, model.ngrams, 2, 4)
    assert again.tobytes() == model.vectors.tobytes()


def test_unknown_words_are_made_of_ngrams() -> None:
    model = subword_model()
    buckets = [fnv(gram) % 50 for gram in twin("unseen", 2, 4)]
    assert np.allclose(model.vector("unseen"), model.ngrams[buckets].mean(axis=0), atol=1e-6)
    assert model.oov_vector("\udcff") is not None
    assert model.oov_vector("</s>") is None
    with pytest.raises(AbilityError, match="there is no vector for '</s>'"):
        model.vector("</s>")
    nearest = [word for word, _ in model.similar("cats", count=3)]
    assert len(nearest) == 3


def test_a_model_is_restored_from_its_arrays() -> None:
    model = subword_model()
    arrays = model.arrays()
    assert sorted(arrays) == ["counts", "ngrams", "outputs", "own", "vectors"]
    back = restore_subwords(model.recipe, arrays, model.tokenizer, "lines")
    assert isinstance(back, SubwordModel)
    assert (back.vector("cat") == model.vector("cat")).all()
    wrong: list[dict[str, Any]] = [
        {"ngrams": model.ngrams[:-1]},
        {"ngrams": model.ngrams[:, :2]},
        {"own": model.own[:-1]},
        {"counts": np.zeros(3, dtype=np.int64)},
    ]
    for change in wrong:
        with pytest.raises(ArtifactError):
            restore_subwords(model.recipe, arrays | change, model.tokenizer, "lines")
