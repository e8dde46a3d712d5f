"""Contrastive learning: the loss by a double loop, two readings by dropout, and a network that embeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import firth
from firth.errors import RecipeError
from firth.fit.batches import Cursor
from firth.fit.parallel import make_batches
from firth.fit.resolve import require_dropout
from firth.nets.dropout import DropoutRng
from firth.nets.network import build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.contrastive import Contrastive
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.contrastive import ContrastiveHead
from tests.contracts.small_networks import vocabulary_of
from tests.contracts.test_masks import OWNERS, texts, trained_recipe

SMALL = ["embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.heads=2", "encoder.layers=1"]


def small_recipe(dropout: float = 0.1) -> NetRecipe:
    recipe = trained_recipe("simcse")
    return replace(recipe, encoder=replace(recipe.encoder, dropout=dropout))


def test_the_loss_is_that_of_a_double_loop(tmp_path: Path) -> None:
    recipe = small_recipe()
    network = build_network(recipe, vocabulary_of(len(OWNERS)), seed=1).double()
    head = make_heads(recipe, network)["contrastive"].double()
    assert isinstance(head, ContrastiveHead)
    (batch,), _ = make_batches(recipe, texts(tmp_path), [head], 0).step(Cursor())
    positions = head.positions(batch)
    with torch.no_grad():
        states = network(batch, positions, DropoutRng(0, 3))
        loss = head.loss(network, states, batch, DropoutRng(0, 4))
        one, two = (
            torch.tanh(head.projection(network(batch, positions, DropoutRng(0, seed)).at(positions))) for seed in (3, 4)
        )
    assert not torch.equal(one, two)
    total = 0.0
    for i in range(len(positions)):
        scores = [float(torch.cosine_similarity(one[i], two[j], 0)) / 0.05 for j in range(len(positions))]
        total -= scores[i] - float(np.log(np.sum(np.exp(scores))))
    assert len(positions) > 5
    assert float(loss.total) == pytest.approx(total, rel=1e-9)
    assert loss.count == len(positions)


def test_gradients_come_through_both_readings(tmp_path: Path) -> None:
    recipe = small_recipe()
    network = build_network(recipe, vocabulary_of(len(OWNERS)), seed=1)
    head = make_heads(recipe, network)["contrastive"]
    (batch,), _ = make_batches(recipe, texts(tmp_path), [head], 0).step(Cursor())
    positions = head.positions(batch)
    found = []
    for is_detached in (False, True):
        network.zero_grad()
        states = network(batch, positions, DropoutRng(0, 3))
        if is_detached:
            states = states._replace(last_hidden_state=states.last_hidden_state.detach())
        head.loss(network, states, batch, DropoutRng(0, 4)).total.backward()
        gradient = network.embedding.tokens.weight.grad
        assert gradient is not None
        found.append(gradient.clone())
    assert found[1].abs().sum() > 0
    assert not torch.allclose(found[0], found[1])
    assert head.saved_tensors() == {}


def test_without_dropout_there_is_nothing_to_learn() -> None:
    require_dropout(small_recipe())
    with pytest.raises(RecipeError, match=r"encoder\.dropout"):
        require_dropout(small_recipe(0.0))
    with pytest.raises(RecipeError, match="temperature"):
        Contrastive(temperature=0.0)


def test_sentences_are_told_apart_after_training(tmp_path: Path) -> None:
    """The mean cosine of different sentences falls, of a sentence with itself it stays."""
    settings = [*SMALL, "tokenizer.vocab_size=300", "sequence.length=32", "learning.batch=512"]
    text = [
        [f"the {colour} {thing} is here" for colour in ("red", "blue", "old") for thing in ("cat", "dog", "hen")]
    ] * 30
    model = firth.train("bert", text, out=tmp_path / "b", settings=settings, budget="3ktok", threads=1)
    own = ["objectives=contrastive", "sequence.format=sentences", "encoder.dropout=0.1", "learning.lr=0.003"]
    from firth.fit.adapt import adapt

    tuned = adapt(tmp_path / "b", text, out=tmp_path / "s", settings=own, budget="20ktok", threads=1)

    def mean_cosine(one: object) -> float:
        rows = firth.embed(one, text[0], pooling="first", unit=True)
        return float((rows @ rows.T)[~np.eye(len(rows), dtype=bool)].mean())

    assert mean_cosine(tuned) < mean_cosine(model) - 0.1
