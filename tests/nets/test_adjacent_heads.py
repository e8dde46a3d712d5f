"""Attention heads initialised to attend to adjacent tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import firth
from firth.errors import RecipeError
from firth.nets.adjacent_heads import shift, wave_rates, waves
from firth.nets.encoders.transformer import Layer, Transformer
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import resize
from firth.recipes.table import find_recipe

WORDS = 300


def with_init(name: str, start: str = "adjacent", **encoder: object) -> NetRecipe:
    recipe = resize(cast(NetRecipe, find_recipe(name)), "mini")
    return replace(recipe, encoder=replace(recipe.encoder, init=start, **encoder))


def build(recipe: NetRecipe, seed: int = 0) -> Network:
    vocabulary = Vocabulary([f"w{number}" for number in range(WORDS)], np.ones(WORDS, dtype=np.int64))
    return build_network(recipe, vocabulary, seed)


def attention_weights(network: Network) -> torch.Tensor:
    """(heads, queries, keys): attention weights of the first layer for random tokens."""
    recipe = network.recipe.encoder
    layer = cast(Layer, cast(Transformer, network.encoders[0]).layers[0])
    ids = torch.from_numpy(np.random.default_rng(1).integers(5, WORDS, (1, network.recipe.sequence.length)))
    with torch.no_grad():
        entered = network.embedding(ids)
        seen = layer.norm1(entered) if recipe.norm == "pre" else entered
        queries, keys, _ = layer.attention.qkv(seen)[0].split(recipe.width, -1)
    size = recipe.width // recipe.heads
    queries, keys = (part.view(-1, recipe.heads, size).transpose(0, 1) for part in (queries, keys))
    return (queries @ keys.transpose(1, 2) / size**0.5).softmax(-1)


@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_half_of_the_heads_attend_to_adjacent_tokens(name: str) -> None:
    found = attention_weights(build(with_init(name)))
    before, after, third, fourth = (
        {distance: float(head.diagonal(distance).mean()) for distance in (-2, -1, 0, 1, 2)} for head in found
    )
    assert before[-1] > 0.8
    assert after[1] > 0.8
    assert max(*third.values(), *fourth.values()) < 0.1


def test_pre_norm_networks_attend_there_too() -> None:
    found = attention_weights(build(with_init("bert", norm="pre")))
    assert found[0].diagonal(-1).mean() > 0.8
    assert found[1].diagonal(1).mean() > 0.8


@pytest.mark.parametrize("start", ["adjacent", "random"])
def test_terms_of_distances_prefer_adjacent_tokens(start: str) -> None:
    recipe = with_init("t5", start)
    network = build(replace(recipe, embedding=replace(recipe.embedding, init="random")))
    attention = cast(Any, network.encoders[0]).layers[1].attention  # all layers share the terms
    states = torch.nn.functional.normalize(torch.randn(30, recipe.width), dim=-1) * recipe.width**0.5
    with torch.no_grad():
        queries, keys, _ = attention.qkv(states).split(recipe.width, -1)
        queries, keys = (part.view(30, recipe.encoder.heads, -1).transpose(0, 1) for part in (queries, keys))
        found = (queries @ keys.transpose(1, 2) + attention.table(30, 30, False)[0]).softmax(-1)
    before, after, third, fourth = (
        {distance: float(head.diagonal(distance).mean()) for distance in (-2, -1, 0, 1, 2)} for head in found
    )
    assert (before[-1] > 0.8) == (after[1] > 0.8) == (start == "adjacent")
    assert max(*third.values(), *fourth.values()) < 0.1


def test_scaled_outputs_of_small_token_vectors_start_as_if_they_were_not() -> None:
    def spread(init: str) -> float:
        recipe = with_init("t5", "random")
        network = build(replace(recipe, embedding=replace(recipe.embedding, init=init)))
        states = torch.randn(50, recipe.width)
        with torch.no_grad():
            normed = cast(Any, network.decoder).norm(states)
            found = network.output.log_probabilities(normed)
        return float(found[:, found[0].isfinite()].std(-1).mean())

    width = with_init("t5").width
    assert spread("random") == pytest.approx(0.02 * width**0.5, rel=0.1)  # that of BERT's output
    assert spread("unit") == pytest.approx(1.0, rel=0.1)


def test_recurrent_networks_may_have_scaled_outputs() -> None:
    recipe = resize(cast(NetRecipe, find_recipe("lstm")), "tiny")
    width = recipe.encoder.width
    scaled = replace(recipe.output, kind="tied", scaled=True)
    assert build(replace(recipe, embedding=replace(recipe.embedding, width=width), output=scaled)).recipe.output.scaled


def test_init_depends_on_the_seed_alone_and_random_heads_are_uniform() -> None:
    one, same, other = build(with_init("bert")), build(with_init("bert")), build(with_init("bert"), seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert attention_weights(build(with_init("bert", "random"))).amax() < 0.1


def test_shifts_add_up() -> None:
    rates = wave_rates(16)
    assert torch.allclose(shift(rates, 2) @ shift(rates, -3), shift(rates, -1), atol=1e-5)
    assert torch.allclose(shift(rates, 0), torch.eye(32))


def test_waves_of_different_positions_are_dissimilar() -> None:
    """The mean of cos(rate * distance) is 1 at distance 0, and small everywhere else."""
    found = waves(torch.arange(512.0), wave_rates(32))
    likeness = (found @ found[0]) / 32
    assert likeness[0] == pytest.approx(1)
    assert likeness[1:].max() < 0.4
    assert likeness[1:].abs().mean() < 0.15


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_networks_with_adjacent_init_are_saved_and_loaded(name: str, tmp_path: Path) -> None:
    made = firth.train(name, "builtin:oracle", out=tmp_path / "m", size="tiny", budget="2ktok", threads=1)
    assert firth.info(tmp_path / "m")["recipe"]["encoder"]["init"] == "adjacent"
    text = ["the farmer feeds the horse ."]
    assert np.array_equal(firth.load(tmp_path / "m").embed(text), made.embed(text))


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_causal_models_are_refused(name: str) -> None:
    recipe = cast(NetRecipe, find_recipe(name))
    with pytest.raises(RecipeError, match=r"set encoder\.init=random"):
        replace(recipe, encoder=replace(recipe.encoder, init="adjacent"))


def test_pruned_networks_are_built_for_their_trained_weights() -> None:
    """Whose layers may have fewer heads than would be initialised."""
    pruned = with_init("bert", layer_sizes=("1x64",) * 4)
    network = build(pruned)
    layer = cast(Layer, cast(Transformer, network.encoders[0]).layers[0])
    assert layer.attention.qkv.weight.shape == (3 * 64, 256)
