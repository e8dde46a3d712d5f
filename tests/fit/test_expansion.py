"""Vocabulary expansion: words by a linear map from other vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import firth
from firth.errors import AbilityError, RecipeError
from firth.fit.adapt import adapt
from firth.fit.expansion import expand_vocabulary
from firth.nets.sentence_net import SentenceNet
from firth.tokens.tokenizer import FIRST_WORD
from tests.command import firth as command

KNOWN = [f"word{number}" for number in range(40)]
NEW = [f"rare{number}" for number in range(10)]


def text(words: list[str], seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[" ".join(rng.choice(words, 5)) for _ in range(4)] for _ in range(60)]


@pytest.fixture(scope="module", params=["quick-thoughts", "skip-thoughts"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("expansion")
    settings = ["embedding.width=6", "encoder.width=8", "learning.batch=256"]
    firth.train(request.param, text(KNOWN, 0), out=home / "m", settings=settings, budget="2ktok", threads=1)
    made = ["dimension=5", "epochs=1", "tokenizer.min_count=1"]
    firth.train("skipgram", text([*KNOWN, *NEW, "Word3", "Rare1"], 1), out=home / "v", settings=made, threads=1)
    return home / "m", home / "v"


def test_new_words_are_mapped_by_least_squares(folders: tuple[Path, Path]) -> None:
    model, vectors = firth.load(folders[0]), firth.load(folders[1])
    assert isinstance(model, SentenceNet)
    large, metrics = expand_vocabulary(model, vectors)
    assert isinstance(large, SentenceNet)
    assert metrics["shared"] == 40
    assert metrics["added"] == 10
    inputs = {word: np.append(vectors.vector(word), 1.0) for word in [*KNOWN, *NEW]}
    known = np.array([inputs[word] for word in KNOWN])
    for small_net, large_net in zip(model.networks, large.networks, strict=True):
        old, table = (one.embedding.table.detach().numpy() for one in (small_net, large_net))
        np.testing.assert_array_equal(table[: len(old)], old)
        targets = old[[model.rows[word] for word in KNOWN]]
        solution = np.linalg.pinv(known) @ targets
        for word in NEW:
            np.testing.assert_allclose(table[large.rows[word]], inputs[word] @ solution, atol=1e-5)
    texts = ["word1 word2 word3", "word7"]
    np.testing.assert_array_equal(large.embed(texts), model.embed(texts))
    assert not np.allclose(large.embed(["word1 rare2"]), large.embed(["word1 rare3"]))
    np.testing.assert_array_equal(model.embed(["word1 rare2"]), model.embed(["word1 rare3"]))


def test_the_command_saves_a_model_that_loads(folders: tuple[Path, Path], tmp_path: Path) -> None:
    done = command("adapt", str(folders[0]), "--expand", str(folders[1]), "-o", str(tmp_path / "large"))
    assert done.code == 0, done.err
    large = firth.load(tmp_path / "large")
    assert "rare9" in large.words
    assert len(large.words) == FIRST_WORD + 50
    assert large.embed(["rare9 word1"]).any()


def test_what_cannot_be_expanded_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    model, vectors = firth.load(folders[0]), firth.load(folders[1])
    large, _ = expand_vocabulary(model, vectors)
    with pytest.raises(AbilityError, match="nothing to add"):
        expand_vocabulary(large, vectors)
    with pytest.raises(RecipeError, match="expand adds words"):
        adapt(folders[0], text(KNOWN, 3), out=tmp_path / "a", expand=folders[1])
    with pytest.raises(AbilityError, match="no network"):
        adapt(folders[1], out=tmp_path / "b", expand=folders[1])
    with pytest.raises(AbilityError, match="no word vectors"):
        adapt(folders[0], out=tmp_path / "c", expand=folders[0])
    firth.train("skipgram", text([*KNOWN[:3], *NEW], 1), out=tmp_path / "v", settings=["dimension=5", "epochs=1"])
    with pytest.raises(AbilityError, match="in common"):
        expand_vocabulary(model, firth.load(tmp_path / "v"))
