"""One test over every neural recipe: what may not be seen is not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.objective import Objective, make_objectives, union
from firth.recipes.nets import SIZES, resize
from firth.recipes.table import RECIPES

NETS = {name: entry.make() for name, entry in RECIPES.items() if entry.family == "nets"}
VOCABULARY = Vocabulary([f"w{number}" for number in range(40)], np.arange(40, 0, -1))
EVERY = pytest.mark.parametrize("name", NETS)
LENGTH = 12


def small(name: str) -> NetRecipe:
    """The recipe with few numbers everywhere, and no dropout."""
    recipe = resize(NETS[name], "tiny")
    direct = recipe.output.kind == "direct"
    width = len(VOCABULARY) if direct else 16
    inner = 24 if recipe.encoder.inner else 0
    still = {"dropout": 0.0, "attention_dropout": 0.0, "weight_drop": 0.0}
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=width, dropout=0.0),
        encoder=replace(recipe.encoder, width=width, inner=inner, heads=recipe.encoder.heads, **still),
        rows=replace(recipe.rows, length=LENGTH),
    )


def built(name: str) -> Network:
    return build_network(small(name), VOCABULARY, seed=1).double().eval()


def some_ids(rows: int = 2) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).integers(5, 40, (rows, LENGTH)))


def batch_of(ids: torch.Tensor, parts: torch.Tensor | None = None) -> Batch:
    positions = None
    if parts is not None:
        positions = torch.cat([torch.arange(LENGTH // 2)] * 2).expand_as(ids)
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), parts=parts, positions=positions)


def states_of(network: Network, batch: Batch) -> torch.Tensor:
    with torch.inference_mode():
        return network(batch).last.view(*batch.shape, -1)


@EVERY
def test_no_state_sees_what_its_visibility_forbids(name: str) -> None:
    network, ids = built(name), some_ids()
    before = states_of(network, batch_of(ids))
    for place in range(LENGTH):
        changed = ids.clone()
        changed[:, place] = (changed[:, place] - 5 + 7) % 35 + 5
        moved = (states_of(network, batch_of(changed)) - before).abs().amax(0) > 1e-12  # (places, width)
        half = network.recipe.encoder.width
        if network.recipe.visibility == "forward+backward":
            assert not moved[:place, :half].any(), "the forward half saw what follows"
            assert not moved[place + 1 :, half:].any(), "the backward half saw what came before"
            assert moved[place, :half].any()
            assert moved[place, half:].any()
        elif network.recipe.visibility == "causal":
            assert not moved[:place].any(), "a state saw what follows"
            assert moved[place].any()
        elif network.recipe.encoder.kind == "transformer":
            assert moved.any(-1).all(), "a state does not see everything"


@EVERY
def test_parts_of_a_row_are_as_if_alone(name: str) -> None:
    network, ids = built(name), some_ids()
    parts = torch.tensor([0] * (LENGTH // 2) + [1] * (LENGTH // 2)).expand_as(ids)
    together = states_of(network, batch_of(ids, parts))
    for half in (slice(0, LENGTH // 2), slice(LENGTH // 2, LENGTH)):
        alone = Batch(ids[:, half].contiguous(), torch.ones_like(ids[:, half], dtype=torch.bool))
        torch.testing.assert_close(together[:, half], states_of(network, alone), rtol=0, atol=1e-10)


@EVERY
def test_states_of_some_places_are_those_of_all(name: str) -> None:
    network, batch = built(name), batch_of(some_ids())
    places = torch.tensor([0, 3, 4, 11, 17, 23])
    with torch.inference_mode():
        some, every = network(batch, places), network(batch)
    torch.testing.assert_close(some.last, every.last[places], rtol=0, atol=1e-10)
    torch.testing.assert_close(some.at(places[2:4]), every.at(places[2:4]), rtol=0, atol=1e-10)


@EVERY
def test_every_layer_has_states(name: str) -> None:
    network, batch = built(name), batch_of(some_ids())
    with torch.inference_mode():
        states = network(batch)
    assert len(states.layers) == network.recipe.encoder.layers + 1
    for layer in states.layers:
        assert layer.shape[:2] == batch.shape


@EVERY
def test_reading_on_gives_the_same_states(name: str) -> None:
    network, ids = built(name), some_ids()
    if network.recipe.visibility != "causal":
        return
    whole = states_of(network, batch_of(ids))
    with torch.inference_mode():
        first, memory = network.extend(ids[:, :5])
        second, memory = network.extend(ids[:, 5:6], memory)
        third, memory = network.extend(ids[:, 6:], memory)
        torch.testing.assert_close(torch.cat([first, second, third], 1), whole, rtol=0, atol=1e-10)
    assert memory.length == LENGTH


@EVERY
def test_every_objective_teaches_every_parameter(name: str) -> None:
    """Nothing in a network is left without a gradient, and no number is infinite."""
    recipe = small(name)
    network = build_network(recipe, VOCABULARY, seed=1)
    objectives = make_objectives(recipe, VOCABULARY)
    batch = corrupted(recipe, objectives)
    states = network(batch, union([objective.places(batch) for objective in objectives.values()]))
    losses = [objective.loss(network, states, batch, None) for objective in objectives.values()]
    assert all(loss.count > 0 for loss in losses)
    sum((loss.total / loss.count for loss in losses), torch.zeros(())).backward()
    taught = {id(p) for p in network.parameters() if p.grad is not None}
    left = [key for key, p in network.named_parameters() if id(p) not in taught]
    assert left == ([key for key in left if key.startswith("output.")] if "ranking" in recipe.names else [])
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def corrupted(recipe: NetRecipe, objectives: dict[str, Objective]) -> Batch:
    """A batch of two sentences a row, as each format would have them."""
    rng = np.random.default_rng(5)
    ids = some_ids(4)
    ids[:, 0], ids[:, 5], ids[:, -1] = 2, 3, 3
    batch = batch_of(ids)
    if recipe.embedding.segments:
        batch.segments = (torch.arange(LENGTH) > 5).long().expand_as(ids)
    for name in ("nsp", "sop"):
        if name in objectives:
            batch.marks[f"{name}.labels"] = torch.tensor([0, 1, 0, 1])
    for objective in objectives.values():
        objective.corrupt(batch, rng)
    return batch


@EVERY
def test_sizes_grow(name: str) -> None:
    sizes = []
    for size in SIZES[:3]:
        recipe = resize(NETS[name], size)
        sizes.append((recipe.encoder.width, recipe.encoder.layers))
    assert sizes == sorted(sizes)
    assert resize(NETS[name], "base") == NETS[name]
