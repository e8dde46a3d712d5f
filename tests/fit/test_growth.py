"""More tokens for a network: what it says of old ones stays, new ones begin as the mean of their pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from firth.errors import AbilityError
from firth.fit.adapt import adapt
from firth.fit.backbones import grow_vocabulary
from firth.fit.train import train
from firth.text.corpus import read_corpus

TEXT = [["low lower lowest", "new newer newest"]] * 40
DOMAIN = [["widest widest widest newest", "wide wider widest"]] * 40
SETTINGS = [
    *("tokenizer.vocab_size=24", "embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.heads=2"),
    *("encoder.layers=1", "sequence.length=16"),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))


def test_new_tokens_are_the_mean_of_what_they_were_cut_into(tmp_path: Path) -> None:
    model = train("bert", TEXT, out=tmp_path / "m", settings=SETTINGS, budget="1ktok", threads=1)
    grown = grow_vocabulary(model, read_corpus(DOMAIN), 40)
    old, new = len(model.tokenizer), len(grown.tokenizer)
    assert old < new <= 40
    assert np.array_equal(grown.vectors[:old], model.vectors)
    token = grown.tokenizer.vocabulary[old]
    pieces = model.tokenizer.encode(token.removeprefix("##")).ids
    assert np.allclose(grown.vectors[old], model.vectors[pieces].mean(0), atol=1e-6)
    before, after = model.score(["low new"])[0], grown.score(["low new"])[0]
    assert 0 < before.logprob - after.logprob < before.tokens * np.log(new / old) + 0.1, "new tokens take their share"


def test_adapting_grows_the_vocabulary_and_trains(tmp_path: Path) -> None:
    train("bert", TEXT, out=tmp_path / "m", settings=SETTINGS, budget="1ktok", threads=1)
    settings = ["tokenizer.vocab_size=40"]
    grown = adapt(tmp_path / "m", DOMAIN, out=tmp_path / "n", settings=settings, budget="1ktok", threads=1)
    assert len(grown.tokenizer) > 24
    assert grown.fill("the [MASK] one")


def test_trees_cannot_grow(tmp_path: Path) -> None:
    settings = ["tokenizer.min_count=1", "embedding.width=16", "encoder.width=16"]
    model = train("hlbl", TEXT, out=tmp_path / "m", settings=settings, budget="1ktok", threads=1)
    with pytest.raises(AbilityError, match="cannot grow"):
        grow_vocabulary(model, read_corpus(DOMAIN), 40)


def test_finished_adapting_is_resumed_at_once(tmp_path: Path) -> None:
    """Also when it was killed after the model was saved, and has left its checkpoint."""
    train("bert", TEXT, out=tmp_path / "m", settings=SETTINGS, budget="1ktok", threads=1)
    first = adapt(tmp_path / "m", DOMAIN, out=tmp_path / "new", budget="1ktok", threads=1)
    (tmp_path / "new" / "checkpoint").mkdir()
    again = adapt(tmp_path / "m", DOMAIN, out=tmp_path / "new", budget="1ktok", threads=1, resume=True)
    assert again.score(["low new"]) == first.score(["low new"])
    assert not (tmp_path / "new" / "checkpoint").exists()
