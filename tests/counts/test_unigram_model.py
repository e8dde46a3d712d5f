"""The unigram model: generation, budgets, adding up, saving and loading."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import firth
from firth.abilities import Generates, Scores, total
from firth.counts.unigram import UnigramModel, UnigramRecipe, sharpen, train_unigram
from firth.errors import ArtifactError, RecipeError
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store
from firth.tokens.tokenizer import EOS
from tests.samples import CHINESE, ENGLISH, KINDS


@pytest.fixture
def model(tmp_path: Path) -> UnigramModel:
    loaded = firth.train("unigram", [ENGLISH, CHINESE], out=tmp_path / "model")
    assert isinstance(loaded, UnigramModel)
    return loaded


def test_it_offers_its_abilities(model: UnigramModel) -> None:
    assert isinstance(model, Scores)
    assert isinstance(model, Generates)


def test_scores_add_up(model: UnigramModel) -> None:
    texts = [*ENGLISH, *CHINESE]
    together = total(model.score(texts))
    alone = total(model.score([text])[0] for text in texts)
    assert together.logprob == pytest.approx(alone.logprob)
    assert (together.tokens, together.bytes, together.oov) == (alone.tokens, alone.bytes, alone.oov)
    assert together.words == sum(len(read_corpus([["x"]]).words(text)) for text in texts)


def test_generation_follows_the_seed_and_the_counts(tmp_path: Path) -> None:
    model = firth.train("unigram", [["a a a b"] * 100], out=tmp_path / "m")
    assert model.generate(seed=3, count=2) == model.generate(seed=3, count=2) != model.generate(seed=4, count=2)
    words = Counter(" ".join(model.generate(count=2000, length=20)).split())
    assert words["a"] / words["b"] == pytest.approx(3, rel=0.1)
    assert set(model.generate(count=50, top_k=1)) <= {"a " * 49 + "a", "a"}
    assert model.generate("b", length=1, top_k=1) == ["b a"]


def test_sharpening_by_hand() -> None:
    logs = np.log([0.5, 0.25, 0.125, 0.125])
    squared = sharpen(logs, temperature=0.5, top_k=None, top_p=None)
    assert squared.tolist() == pytest.approx(np.array([16, 4, 1, 1]) / 22)
    assert sharpen(logs, temperature=1, top_k=None, top_p=0.7).tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    with pytest.raises(RecipeError, match="above 0"):
        sharpen(logs, temperature=0, top_k=None, top_p=None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_tokenizer_carries_it(kind: str, tmp_path: Path) -> None:
    size = "tokenizer.vocab_size=300" if kind not in ("words", "chars") else "delta=1"
    model = firth.train("unigram", [ENGLISH, CHINESE], out=tmp_path / "m", settings=[f"tokenizer={kind}", size])
    scores = model.score([*ENGLISH, *CHINESE])
    assert all(np.isfinite(score.logprob) and score.logprob < 0 for score in scores)
    assert total(scores).oov == 0
    again = firth.load(tmp_path / "m")
    assert again.score(ENGLISH) == model.score(ENGLISH)


def test_a_budget_of_tokens_stops_at_a_sentence(model: UnigramModel) -> None:
    store = open_store(read_corpus([["a b c", "d e", "f"]]), model.tokenizer)
    for most, counted, sentences in ((5, 5, 2), (4, 3, 1), (1, 3, 1), (100, 6, 3)):
        found, tokens = train_unigram(UnigramRecipe(), store, model.tokenizer, "lines", most_tokens=most)
        assert (tokens, found.counts[EOS]) == (counted, sentences)


def test_a_budget_of_time_is_kept(model: UnigramModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.counts.unigram._STEP", 2)
    store = open_store(read_corpus([["a b c"] * 100]), model.tokenizer)
    _, tokens = train_unigram(UnigramRecipe(), store, model.tokenizer, "lines", deadline=time.monotonic() - 1)
    assert tokens == 3


def test_wrong_arrays_are_refused(model: UnigramModel) -> None:
    good = model.arrays()
    for arrays in ({}, {**good, "counts": good["counts"][1:]}, {**good, "counts": good["counts"].astype(float)}):
        with pytest.raises(ArtifactError, match="train it again"):
            UnigramRecipe().restore(arrays, model.tokenizer, "lines")


def test_no_smoothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="above 0"):
        UnigramRecipe(delta=0)
