"""Cross-attention heads initialised to attend to equal tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import firth
from firth.errors import RecipeError
from firth.nets.encoders.transformer import Layer, Transformer
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import resize
from firth.recipes.table import find_recipe

WORDS, TOKENS = 300, 40


def build(name: str, start: str = "matching", *, skip_init: bool = False) -> Network:
    recipe = resize(cast(NetRecipe, find_recipe(name)), "mini")
    assert recipe.decoder is not None
    recipe = replace(recipe, decoder=replace(recipe.decoder, cross_init=start))
    vocabulary = Vocabulary([f"w{number}" for number in range(WORDS)], np.ones(WORDS, dtype=np.int64))
    return build_network(recipe, vocabulary, 1, skip_init=skip_init)


def attention_weights(network: Network) -> torch.Tensor:
    """(heads, queries, keys): weights of the first cross-attention for random states, the keys in reverse order."""
    attention: Any = cast(Layer, cast(Transformer, network.decoder).layers[0]).cross_attention
    width, heads = attention.recipe.width, attention.recipe.heads
    states = torch.nn.functional.layer_norm(torch.from_numpy(np.random.default_rng(2).normal(size=(TOKENS, width))),
                                            (width,)).float()  # fmt: skip
    with torch.no_grad():
        queries, keys = attention.query(states), attention.keys(states.flip(0))[:, :width]
    queries, keys = (part.view(TOKENS, heads, -1).transpose(0, 1) for part in (queries, keys))
    scale = queries.shape[-1] ** -0.5 if attention.is_scaled else 1.0
    return (scale * queries @ keys.transpose(1, 2)).softmax(-1)


@pytest.mark.parametrize("name", ["bart", "mass", "t5", "transformer"])
def test_half_of_the_heads_find_the_state_itself(name: str) -> None:
    found = [float(head.flip(1).diagonal().mean()) for head in attention_weights(build(name))]
    half = len(found) // 2
    assert min(found[:half]) > 0.8
    assert max(found[half:]) < 0.1
    assert max(float(head.flip(1).diagonal().mean()) for head in attention_weights(build(name, "random"))) < 0.1


def test_saved_weights_are_not_overwritten() -> None:
    # Restoring a network builds it first: nothing may be drawn for weights that are to be replaced.
    found = attention_weights(build("bart", skip_init=True))
    assert float(found[0].flip(1).diagonal().mean()) < 0.1


def test_an_lstm_has_no_such_heads() -> None:
    recipe = cast(NetRecipe, find_recipe("cove"))
    assert recipe.decoder is not None
    with pytest.raises(RecipeError, match=r"set decoder\.cross_init=random"):
        replace(recipe, decoder=replace(recipe.decoder, cross_init="matching"))


def test_short_runs_of_models_that_restore_text_start_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the old barns burn in the night .\nthe sailors mend the ropes .\n\n" * 40)
    model = firth.train("bart", text, out=tmp_path / "bart", size="tiny", budget="1ktok", threads=1)
    assert model.recipe.decoder.cross_init == "matching"
    assert "cross-attention that starts by matching tokens" in capsys.readouterr().err
    model = firth.train("bart", text, out=tmp_path / "plain", size="tiny", budget="1ktok", threads=1,
                        settings=["decoder.cross_init=random"])  # fmt: skip
    assert model.recipe.decoder.cross_init == "random"
