"""Counts are sums: adding and removing text gives the very bytes that training on the rest gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import firth
from firth.counts.recipe import SMOOTHINGS
from firth.errors import AbilityError, CorpusError, RecipeError
from tests.command import firth as command


def write(path: Path, seed: int, sentences: int = 60) -> Path:
    rng = np.random.default_rng(seed)
    lines = [" ".join(f"w{rng.zipf(1.4) % 300}" for _ in range(rng.integers(1, 12))) for _ in range(sentences)]
    path.write_text("\n".join(lines) + "\n")
    return path


def files_of(folder: Path) -> dict[str, str]:
    """The digests of all files but the card, which says how a model was made."""
    return {name: entry["sha256"] for name, entry in firth.info(folder)["files"].items() if name != "card.md"}


def train(smoothing: str, *texts: Path, out: Path) -> Path:
    order = 2 if smoothing == "church-gale" else 3
    firth.train("ngram", *texts, out=out, layout="lines", settings=[f"order={order}", f"smoothing={smoothing}"])
    return out


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_adding_and_removing_equals_training(smoothing: str, tmp_path: Path) -> None:
    a, b, c = (write(tmp_path / f"{name}.txt", seed) for seed, name in enumerate("abc"))
    whole = train(smoothing, a, b, c, out=tmp_path / "abc")
    first, second = train(smoothing, a, out=tmp_path / "a"), train(smoothing, b, c, out=tmp_path / "bc")
    firth.adapt(first, out=tmp_path / "text", add=[b, c], layout="lines")
    firth.adapt(first, out=tmp_path / "model", add=[second])
    assert files_of(tmp_path / "text") == files_of(tmp_path / "model") == files_of(whole)
    firth.adapt(whole, out=tmp_path / "less", remove=[second], layout="lines")
    firth.adapt(whole, out=tmp_path / "less-text", remove=[c, b], layout="lines")
    assert files_of(tmp_path / "less") == files_of(tmp_path / "less-text") == files_of(first)
    info = firth.info(tmp_path / "model")
    assert {key: info["corpus"][key] for key in ("documents", "sentences", "words")} == {
        key: firth.info(whole)["corpus"][key] for key in ("documents", "sentences", "words")
    }


def test_a_given_vocabulary_stays(tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{name}.txt", seed) for seed, name in enumerate("ab"))
    firth.train("bpe", a, b, out=tmp_path / "bpe", settings=["vocab_size=100"])
    for name, texts in (("ab", (a, b)), ("a", (a,)), ("b", (b,))):
        firth.train("mkn3", *texts, out=tmp_path / name, tokenizer=tmp_path / "bpe", layout="lines")
    firth.adapt(tmp_path / "a", b, out=tmp_path / "added", layout="lines")
    firth.adapt(tmp_path / "a", out=tmp_path / "merged", add=[tmp_path / "b"])
    assert files_of(tmp_path / "added") == files_of(tmp_path / "merged") == files_of(tmp_path / "ab")


def test_from_the_command_line(tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{name}.txt", seed) for seed, name in enumerate("ab"))
    train("kneser-ney", a, out=tmp_path / "a")
    added = command("adapt", tmp_path / "a", "--add", b, "-o", tmp_path / "ab", "--layout", "lines", "--json")
    assert added.code == 0, added.err
    assert added.json["corpus"]["sentences"] == 120
    back = command("adapt", tmp_path / "ab", "--remove", b, "-o", tmp_path / "again", "--layout", "lines")
    assert back.code == 0, back.err
    assert files_of(tmp_path / "again") == files_of(tmp_path / "a")
    assert command("verify", tmp_path / "again").code == 0
    assert command("adapt", tmp_path / "a", "-o", tmp_path / "none").code == 2


def test_what_was_never_added_cannot_be_removed(tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{name}.txt", seed) for seed, name in enumerate("ab"))
    train("kneser-ney", a, out=tmp_path / "a")
    with pytest.raises(CorpusError, match="was not part of"):
        firth.adapt(tmp_path / "a", out=tmp_path / "out", remove=[b])
    assert not (tmp_path / "out").exists()


def test_counts_that_are_not_whole_or_do_not_fit_are_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a.txt", 1)
    firth.train("mkn3", a, out=tmp_path / "pruned", settings=["min_counts=1,1,2"])
    firth.train("mkn3", a, out=tmp_path / "three")
    firth.train("kn5", a, out=tmp_path / "five")
    firth.train("mkn3", a, out=tmp_path / "chars", settings=["tokenizer=chars"])
    with pytest.raises(AbilityError, match="pruned"):
        firth.adapt(tmp_path / "pruned", a, out=tmp_path / "out")
    with pytest.raises(RecipeError, match="same order"):
        firth.adapt(tmp_path / "three", out=tmp_path / "out", add=[tmp_path / "five"])
    with pytest.raises(RecipeError, match="other tokens"):
        firth.adapt(tmp_path / "three", out=tmp_path / "out", add=[tmp_path / "chars"])
    with pytest.raises(RecipeError, match="train again"):
        firth.adapt(tmp_path / "three", a, out=tmp_path / "out", settings=["order=2"])
