"""Networks whose tokens begin with the vectors of CBOW."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import RecipeError
from firth.fit import nets
from firth.fit import trainer as trainers
from firth.fit.nets import embedding_init
from firth.fit.train import train
from firth.nets.adjacent_heads import wave_rates, waves
from firth.nets.linear import INIT_STD
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import EmbeddingRecipe, NetRecipe
from firth.recipes.nets import bert, resize
from firth.recipes.values import override
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from tests.fit.small_nets import text

KINDS = ("animal", "tool")


def planted(count: int = 3000) -> list[list[str]]:
    """Sentences in which ten words of each of two kinds stand among the words of their kind alone."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(count):
        kind = KINDS[int(rng.integers(2))]
        lines.append(" ".join(f"{kind}{number}" for number in rng.integers(10, size=6)))
    return [lines[begin : begin + 10] for begin in range(0, count, 10)]


@pytest.fixture(scope="module")
def tokens() -> tuple[Any, Any]:
    return open_tokens(TokenizerRecipe(model="words"), read_corpus(planted(), layout="lines"), 1)


def test_words_of_a_kind_point_the_same_way(tokens: tuple[Any, Any]) -> None:
    tokenizer, store = tokens
    found = embedding_init(tokenizer, store, 16, 3_000_000, seed=0, threads=1)
    words = list(tokenizer.vocabulary)
    kinds = np.array([[word.startswith(kind) for word in words] for kind in KINDS])
    alike = found @ found.T
    own = np.mean([alike[np.ix_(kind, kind)].mean() for kind in kinds])
    other = alike[np.ix_(kinds[0], kinds[1])].mean()
    assert own > 0.5 > -0.3 > other
    assert np.allclose(np.linalg.norm(found[kinds.any(0)], axis=1), 1)
    assert not found[: words.index(next(word for word in words if word.startswith(KINDS)))].any()


def test_the_number_of_threads_changes_nothing(tokens: tuple[Any, Any]) -> None:
    one, two = (embedding_init(*tokens, 16, 40_000, seed=3, threads=threads) for threads in (1, 2))
    assert np.array_equal(one, two)


def test_a_table_takes_directions_and_waves_keep_up_with_it() -> None:
    recipe = cast(NetRecipe, override(resize(bert(), "tiny"), ["encoder.init=adjacent"]))
    words = Vocabulary([f"w{number}" for number in range(300)], np.ones(300, dtype=np.int64))
    directions = np.zeros((300, 128), dtype=np.float32)
    directions[5:, 7] = 1.0
    directions[5::2, 7] = -1.0
    network, random = build_network(recipe, words, 0, embedding_init=directions), build_network(recipe, words, 0)
    table = network.embedding.table.detach()
    assert torch.equal(table[:5], random.embedding.table[:5])
    assert torch.allclose(table[5:], 4 * INIT_STD * math.sqrt(128) * torch.from_numpy(directions[5:]))
    expected = float(table.std()) * math.sqrt(2) * waves(torch.arange(8.0), wave_rates(32))
    assert network.embedding.positions is not None
    assert torch.allclose(network.embedding.positions.weight[:8, :64], expected, atol=1e-6)


def test_character_embeddings_have_no_table() -> None:
    with pytest.raises(RecipeError, match="character-based"):
        EmbeddingRecipe(characters=True, init="vectors")


def test_a_run_that_was_interrupted_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["tokenizer=words", "tokenizer.min_count=1", "sequence.length=16", "embedding.init=vectors"]
    given: dict[str, Any] = {"size": "tiny", "budget": "3ktok", "threads": 1, "settings": settings, "reload": False}
    train("bert", text(600), out=tmp_path / "whole", **given)
    train("bert", text(600), out=tmp_path / "random", **given | {"settings": [*settings[:3], "embedding.init=random"]})
    steps = trainers.NetTrainer.steps

    def stop(trainer: Any) -> Any:
        for number, step in enumerate(steps(trainer)):
            yield step
            if number == 2:
                trainer.save()
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainers.NetTrainer, "steps", stop)
        with pytest.raises(KeyboardInterrupt):
            train("bert", text(600), out=tmp_path / "parts", **given)
    train("bert", text(600), out=tmp_path / "parts", resume=True, **given)
    whole, parts, random = (dict(load(tmp_path / name).arrays()) for name in ("whole", "parts", "random"))
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)
    assert any(not np.array_equal(whole[name], random[name]) for name in whole)


def test_a_budget_of_time_is_not_spent_on_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "compile_kernels", lambda *given: time.sleep(5))
    settings = ["tokenizer=words", "tokenizer.min_count=1", "sequence.length=16", "embedding.init=vectors"]
    train("bert", text(600), out=tmp_path / "b", size="tiny", budget="1s", threads=1, settings=settings, reload=False)
    assert open_artifact(tmp_path / "b").manifest.budget["spent"]["seconds"] < 5
