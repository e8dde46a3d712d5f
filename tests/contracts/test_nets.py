"""Tests over every neural recipe: attention masks, packed sequences, gathered positions, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.nets.batch import Batch
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import make_encoder_states
from firth.objectives.heads.build import make_heads, union_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.recipes.nets import SIZES, resize
from tests.contracts.small_networks import (
    LENGTH,
    NETS,
    VOCABULARY,
    build,
    make_batch,
    random_ids,
    sees,
    small,
)

EVERY = pytest.mark.parametrize("name", NETS)


def hidden_states(network: Network, batch: Batch) -> torch.Tensor:
    with torch.inference_mode():
        return network(batch).last_hidden_state.view(*batch.shape, -1)


@EVERY
def test_hidden_states_change_with_visible_tokens_alone(name: str) -> None:
    """Without gradients, where attention has other code; `test_masks.py` has the same by gradients."""
    network, ids = build(name), random_ids()
    before = hidden_states(network, make_batch(ids))
    recipe = network.recipe
    both = recipe.visibility == "forward+backward"
    parts = [("causal", slice(0, recipe.width // 2)), ("anticausal", slice(recipe.width // 2, None))]
    for visibility, part in parts if both else [(recipe.visibility, slice(None))]:
        visible = sees(recipe.encoder, visibility, LENGTH)
        for position in range(LENGTH):
            changed = ids.clone()
            changed[:, position] = (changed[:, position] - 5 + 7) % 35 + 5
            moved = (hidden_states(network, make_batch(changed)) - before)[..., part].abs().amax(-1) > 1e-12
            assert torch.equal(moved, visible[:, position].expand_as(moved)), f"{visibility}: token {position}"


@EVERY
def test_packed_sequences_do_not_influence_each_other(name: str) -> None:
    network, ids = build(name), random_ids()
    sequence_ids = torch.tensor([0] * (LENGTH // 2) + [1] * (LENGTH // 2)).expand_as(ids)
    together = hidden_states(network, make_batch(ids, sequence_ids))
    for half in (slice(0, LENGTH // 2), slice(LENGTH // 2, LENGTH)):
        alone = Batch(ids[:, half].contiguous(), torch.ones_like(ids[:, half], dtype=torch.bool))
        torch.testing.assert_close(together[:, half], hidden_states(network, alone), rtol=0, atol=1e-10)


@EVERY
def test_gathered_positions_have_the_same_hidden_states(name: str) -> None:
    network, batch = build(name), make_batch(random_ids())
    positions = torch.tensor([0, 3, 4, 11, 17, 23])
    with torch.inference_mode():
        some, every = network(batch, positions), network(batch)
    torch.testing.assert_close(some.last_hidden_state, every.last_hidden_state[positions], rtol=0, atol=1e-10)
    torch.testing.assert_close(some.at(positions[2:4]), every.at(positions[2:4]), rtol=0, atol=1e-10)


@EVERY
def test_every_layer_has_hidden_states(name: str) -> None:
    network, batch = build(name), make_batch(random_ids())
    with torch.inference_mode():
        states = network(batch)
    assert len(states.layers) == network.recipe.encoder.layers + 1
    for layer in states.layers:
        assert layer.shape[:2] == batch.shape


@EVERY
def test_decoding_step_by_step_gives_the_same_hidden_states(name: str) -> None:
    network, ids = build(name), random_ids()
    if network.recipe.visibility != "causal":
        return
    whole = hidden_states(network, make_batch(ids))
    with torch.inference_mode():
        first, cache = network.decode_step(ids[:, :5])
        second, cache = network.decode_step(ids[:, 5:6], cache)
        third, cache = network.decode_step(ids[:, 6:], cache)
        torch.testing.assert_close(torch.cat([first, second, third], 1), whole, rtol=0, atol=1e-10)
    assert cache.length == LENGTH


@EVERY
def test_every_parameter_has_a_gradient(name: str) -> None:
    """And no gradient is infinite; ranking does not use the output layer."""
    recipe = small(name)
    network = build_network(recipe, VOCABULARY, seed=1)
    objectives = make_heads(recipe, network)
    batch = corrupted_batch(recipe, objectives)
    for objective in objectives.values():
        batch = objective.rewrite(batch, network, None)
    states = network(batch, union_positions([objective.positions(batch) for objective in objectives.values()]))
    losses = [
        loss for objective in objectives.values() for loss in objective.losses(network, states, batch, None).values()
    ]
    assert all(loss.count > 0 for loss in losses)
    sum((loss.total / loss.count for loss in losses), torch.zeros(())).backward()
    named = dict(network.named_parameters())
    named |= {f"heads.{one}.{key}": p for one, head in objectives.items() for key, p in head.named_parameters()}
    untrained = [key for key, p in named.items() if p.grad is None]
    assert untrained == ([key for key in untrained if key.startswith("output.")] if "ranking" in recipe.names else [])
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def corrupted_batch(recipe: NetRecipe, objectives: dict[str, ObjectiveHead]) -> Batch:
    """A corrupted batch of sequences of two sentences, in the format of the recipe."""
    rng = np.random.default_rng(5)
    ids = random_ids(4)
    ids[:, 0], ids[:, 5], ids[:, -1] = 2, 3, 3
    batch = make_batch(ids)
    if recipe.segments:
        batch.segment_ids = (torch.arange(LENGTH) > 5).long().expand_as(ids)
    batch.columns = {column: (ids % 3 == 0).to(torch.uint8) for column in recipe.columns}
    batch.labels |= {
        f"{one.name}.labels": torch.zeros(4, dtype=torch.int64) for one in recipe.objectives if one.lays_out
    }
    batch.labels |= {f"{one.name}.labels": torch.tensor([0, 1]) for one in recipe.objectives if one.groups_sentences}
    if recipe.decoder is not None:
        batch.source = make_batch(ids.flip(1))
    for name in ("nsp", "sop"):
        if name in objectives:
            batch.labels[f"{name}.labels"] = torch.tensor([0, 1, 0, 1])
    if recipe.sequence.format == "consecutive":
        batch.labels |= {"sentences": torch.arange(4), "documents": torch.zeros(4, dtype=torch.int64)}
    if "unilm" in objectives:
        batch.labels |= {"unilm.ways": torch.arange(4), "unilm.labels": torch.tensor([0, -1, -1, -1])}
    for objective in objectives.values():
        objective.corrupt(batch, rng)
    return batch


DECODERS = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.decoder is not None])


@DECODERS
def test_cached_decoding_gives_the_same_hidden_states(name: str) -> None:
    """Also of several hypotheses of each source, of sources of different length, and after one has ended."""
    network, ids = build(name), random_ids(3)
    is_token = torch.arange(LENGTH) < torch.tensor([[LENGTH], [5], [8]])
    batch = make_batch(ids)
    batch.source = make_batch(ids.flip(1))
    batch.source.sequence_ids, batch.source.position_ids = is_token.long() - 1, None
    with torch.inference_mode():
        whole = hidden_states(network, batch)
        padded = make_encoder_states(network(batch.source).last_hidden_state.view(*batch.shape, -1), is_token)
        states, cache = network.decode_step(ids[:, :2], None, encoder_states=padded)
        torch.testing.assert_close(states, whole[:, :2], rtol=0, atol=1e-10)
        owners = [0, 1, 2]
        for position, rows in ((2, [0, 0, 1, 1, 2, 2]), (3, [0, 0, 3, 2, 5]), (4, [0, 1, 4, 4]), (5, [0, 1, 2, 3])):
            owners = [owners[row] for row in rows]
            cache = cache.select_rows(torch.tensor(rows))
            states, cache = network.decode_step(ids[owners, position : position + 1], cache)
            torch.testing.assert_close(states[:, 0], whole[owners, position], rtol=0, atol=1e-10)
    assert cache.source is not None
    assert len(cache.source.layers[0][0]) == 2, "the keys of a source without rows are kept"


@EVERY
def test_sizes_grow(name: str) -> None:
    sizes = []
    for size in SIZES[:3]:
        recipe = resize(NETS[name], size)
        sizes.append((recipe.encoder.width, recipe.encoder.layers))
    assert sizes == sorted(sizes)
    assert resize(NETS[name], "base") == NETS[name]
