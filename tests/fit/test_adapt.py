"""Growing a vocabulary: old ids stay, new words become tokens, nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import firth
from firth.errors import AbilityError, RecipeError, TokenizerError
from firth.tokens.tokenizer import UNK
from tests.command import firth as command
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe

DOMAIN = ["The electrocardiogram shows tachycardia; the electrocardiogram is Ωβδ abnormal."] * 20


@pytest.mark.parametrize("kind", KINDS)
def test_old_ids_stay(kind: str, tmp_path: Path) -> None:
    old = firth.train(small_recipe(kind), [ENGLISH, CHINESE], out=tmp_path / "old")
    size = len(old) + 30
    new = firth.adapt(tmp_path / "old", [DOMAIN], out=tmp_path / "new", settings=[f"vocab_size={size}"])
    assert new.vocabulary[: len(old)] == old.vocabulary
    assert len(old) < len(new) <= size
    assert len(new.encode(DOMAIN[0]).ids) <= len(old.encode(DOMAIN[0]).ids)
    if kind in ("words", "chars", "bpe", "pieces"):
        assert UNK in old.encode(DOMAIN[0]).ids
    if kind != "wordpiece":
        assert UNK not in new.encode(DOMAIN[0]).ids
    again = firth.load(tmp_path / "new")
    assert again.encode(DOMAIN[0]) == new.encode(DOMAIN[0])


@pytest.mark.parametrize("kind", ["words", "chars", "bpe", "byte-bpe"])
def test_old_text_keeps_its_tokens(kind: str, tmp_path: Path) -> None:
    """Where nothing of the domain occurs in the old text, it is cut as before."""
    old = firth.train(small_recipe(kind), [CHINESE], out=tmp_path / "old")
    new = firth.adapt(tmp_path / "old", [["zzz yyy zzz yyy"] * 5], out=tmp_path / "new")
    for text in CHINESE:
        assert new.encode(text).ids == old.encode(text).ids


def test_the_command_prints_the_effect(tmp_path: Path) -> None:
    firth.train("words", [ENGLISH], out=tmp_path / "old")
    domain = tmp_path / "domain.txt"
    domain.write_text("\n".join(DOMAIN), encoding="utf-8")
    metrics = command("adapt", tmp_path / "old", domain, "-o", tmp_path / "new", "--json").json["metrics"]
    assert metrics["added"] == 6  # electrocardiogram shows tachycardia is Ωβδ abnormal
    assert metrics["unknown_share_before"] > metrics["unknown_share"] == 0


def test_impossible_requests_are_refused(tmp_path: Path) -> None:
    old = firth.train("words", [ENGLISH], out=tmp_path / "old")
    firth.train("unigram", [ENGLISH], out=tmp_path / "model")
    with pytest.raises(TokenizerError, match="more than that"):
        firth.adapt(tmp_path / "old", [DOMAIN], out=tmp_path / "x", settings=[f"vocab_size={len(old)}"])
    with pytest.raises(TokenizerError, match="nothing to add"):
        firth.adapt(tmp_path / "old", [ENGLISH], out=tmp_path / "x")
    with pytest.raises(RecipeError, match="keeps the kind"):
        firth.adapt(tmp_path / "old", [DOMAIN], out=tmp_path / "x", settings=["model=chars"])
    with pytest.raises(AbilityError, match="no counts to add to"):
        firth.adapt(tmp_path / "old", out=tmp_path / "x", add=[tmp_path / "model"])


def test_a_domain_of_unknown_words_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    firth.train("mkn3", [ENGLISH], out=tmp_path / "old")
    firth.adapt(tmp_path / "old", [ENGLISH[:2]], out=tmp_path / "same")
    assert "unknown" not in capsys.readouterr().err
    firth.adapt(tmp_path / "old", [DOMAIN], out=tmp_path / "new")
    assert "of the words are unknown to the tokenizer" in capsys.readouterr().err
