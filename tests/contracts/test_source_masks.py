"""By gradients: what states depend on beyond their own tokens: sources, memories, languages, samples of a generator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.fit.batches import Batches, Cursor
from firth.fit.loop import TrainingModule
from firth.fit.parallel import make_batches
from firth.nets.batch import Batch
from firth.nets.embedding import LANGUAGES
from firth.nets.network import Network, build_network
from firth.nets.visibility import SegmentMemory
from firth.objectives.heads.build import make_heads
from firth.tokens.tokenizer import MASK
from tests.contracts.small_networks import (
    LENGTH,
    NETS,
    build,
    dependence,
    make_batch,
    random_ids,
    sees,
    small,
    vocabulary_of,
)
from tests.contracts.test_masks import (
    DOCUMENTS,
    OWNERS,
    PACKED,
    ROW,
    assert_sees,
    embedded,
    in_sequences,
    make_network,
    texts,
    trained_recipe,
    training_batches,
)
from tests.objectives.small_stores import numbered, store_of

DECODERS = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.decoder is not None])
REMEMBERING = pytest.mark.parametrize(  # in use; a memory that serves training alone is tested with its objective
    "name", [name for name, recipe in NETS.items() if recipe.memory.length and recipe.visibility == "causal"]
)
LANGUAGE_NETS = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.embedding.languages])
SAMPLED = [name for name, one in NETS.items() if one.second_networks and one.sequence.format != "consecutive"]
SECOND = pytest.mark.parametrize("name", SAMPLED)


@DECODERS
def test_decoders_depend_on_the_source_of_their_own_pair(name: str, tmp_path: Path) -> None:
    """On all of it, and on the previous tokens of the target; sources never depend on targets."""
    recipe = trained_recipe(name)
    network = make_network(recipe)
    heads = [] if recipe.sequence.format == "parallel" else list(make_heads(recipe, network).values())
    (batch,), _ = make_batches(recipe, texts(tmp_path), heads, 0).step(Cursor())
    source = batch.source
    assert source is not None
    assert batch.sequence_ids is not None
    assert source.sequence_ids is not None
    assert int(batch.sequence_ids.max()) > 0, "no row has several pairs"
    with embedded(network) as inputs:
        states = network(batch).last_hidden_state.view(*batch.shape, -1)
    is_token = batch.sequence_ids >= 0
    by_target, by_source = (dependence(states, one)[is_token] for one in reversed(inputs))
    causal = sees(recipe.encoder, "causal", batch.shape[1])[None, :, None]
    assert torch.equal(by_target, (in_sequences(batch.sequence_ids, batch.shape) & causal)[is_token])
    rows = torch.eye(len(is_token), dtype=torch.bool)[:, None, :, None]
    own = (batch.sequence_ids[:, :, None, None] == source.sequence_ids) & rows
    assert torch.equal(by_source, own[is_token])
    owners = [torch.from_numpy(OWNERS)[one.ids] for one in (batch, source)]
    of_text = (owners[0] >= 0)[is_token]
    for found, mine in ((by_target, owners[0]), (by_source, owners[1])):
        wrong = (owners[0][is_token][:, None, None] != mine) & (mine >= 0)
        assert heads or not (found & wrong)[of_text].any(), "a target depends on another pair"  # noise is of any text
    with embedded(network) as inputs:
        encoded = network.encode_source(batch).states
    assert len(inputs) == 1, "the source is encoded with the target"
    by_itself = dependence(encoded, inputs[0])[source.sequence_ids >= 0]
    assert torch.equal(by_itself, in_sequences(source.sequence_ids, source.shape)[source.sequence_ids >= 0])


@DECODERS
def test_what_is_hidden_of_a_source_is_not_attended_to(name: str) -> None:
    network, ids = build(name), random_ids()
    batch = make_batch(ids, PACKED)
    batch.source = make_batch(ids.flip(1), PACKED)
    batch.source.is_hidden = torch.zeros_like(ids, dtype=torch.bool)
    batch.source.is_hidden[:, [1, 6]] = True
    given = network.encode_source(batch)
    given.states.requires_grad_()
    decoder = network.decoder
    assert decoder is not None
    states = network._decode(decoder, batch, given, None, None).last_hidden_state.view(*batch.shape, -1)
    allowed = in_sequences(PACKED, batch.shape) & ~batch.source.is_hidden
    assert torch.equal(dependence(states, given.states)[PACKED >= 0], allowed[PACKED >= 0])


def with_memory(name: str, length: int, same_length: bool = False) -> Network:
    recipe = small(name)
    recipe = replace(recipe, memory=replace(recipe.memory, length=length, same_length=same_length))
    return build_network(recipe, vocabulary_of(40), seed=1).double()


@REMEMBERING
@pytest.mark.parametrize("same_length", [False, True])
def test_states_depend_on_the_memory_of_their_document(name: str, same_length: bool) -> None:
    """On all of it or on the last tokens, in each layer; what is remembered lower down is passed upwards."""
    kept = 7
    network, ids = with_memory(name, kept, same_length), random_ids()
    layers = network.recipe.encoder.layers
    owners = torch.tensor([[0] * 3 + [1] * 4, [2] * 7])  # of memories; rows of tokens begin with the last document
    documents = torch.tensor([[1] * 5 + [3] * 7, [2] * 12])
    visible = documents[:, :, None] == owners[:, None]
    memory = [
        torch.randn(2, kept, network.recipe.width, dtype=torch.float64, requires_grad=True) for _ in range(layers)
    ]
    batch = make_batch(ids, documents)
    batch.position_ids = None
    with embedded(network) as inputs:
        made = network(batch, memory=SegmentMemory(memory, visible)).last_hidden_state.view(*batch.shape, -1)
    joined = torch.cat([owners, documents], 1)
    distance = torch.arange(kept, kept + LENGTH)[:, None] - torch.arange(kept + LENGTH)
    allowed = (documents[:, :, None] == joined[:, None]) & (distance >= 0)
    if same_length:
        allowed &= distance < kept
    to_memory, inside = allowed[:, :, :kept].int(), allowed[:, :, kept:].int()
    expected = to_memory
    for layer in reversed(range(layers)):
        found = dependence(made, memory[layer])
        for row in range(2):
            assert torch.equal(found[row, :, row], expected[row] > 0), f"layer {layer}"
            assert not found[row, :, 1 - row].any()
        expected = inside @ expected
    chain = inside
    for _ in range(layers - 1):
        chain = inside @ chain
    found = dependence(made, inputs[0])
    assert all(torch.equal(found[row, :, row], chain[row] > 0) for row in range(2))


@REMEMBERING
@pytest.mark.parametrize("kept", [4, 9, 20])
def test_decoding_remembers_as_many_tokens_before_a_segment(name: str, kept: int) -> None:
    """With one layer, a state depends on its segment up to itself and on `memory.length` tokens before that."""
    recipe = small(name)
    recipe = replace(
        recipe,
        memory=replace(recipe.memory, length=kept),
        sequence=replace(recipe.sequence, length=6),
        encoder=replace(recipe.encoder, layers=1),
    )
    network, ids = build_network(recipe, vocabulary_of(40), seed=1).double(), random_ids(length=22)
    with embedded(network) as inputs:
        made, cache = [], None
        for some in torch.split(ids, [4, 9, 1, 8], 1):
            states, cache = network.decode_step(some, cache)
            made.append(states)
    found = torch.cat([dependence(torch.cat(made, 1), one) for one in inputs], 3)
    state, token = torch.arange(22)[:, None], torch.arange(22)
    allowed = (token <= state) & (token >= state // 6 * 6 - kept)
    for row in range(2):
        assert torch.equal(found[row, :, row], allowed)
        assert not found[row, :, 1 - row].any()


@REMEMBERING
def test_training_remembers_without_gradients(name: str, tmp_path: Path) -> None:
    """The rows before change the losses of a row, of their document alone, and get no gradient from them."""
    recipe = replace(trained_recipe(name), memory=replace(NETS[name].memory, length=12))
    recipe = replace(recipe, learning=replace(recipe.learning, batch=2 * ROW))
    store = store_of(numbered([[13], [9, 8], [12], [10, 10], [9, 9], [14], [11, 11]]), tmp_path, vocabulary=len(OWNERS))
    network = make_network(recipe)
    module = TrainingModule(network, make_heads(recipe, network)).double()
    first, second = rows_within_a_document(make_batches(recipe, store, [], 0), recipe.memory.length)
    assert first.offsets is not None

    def second_gradients(changed: int | None) -> list[Tensor]:
        """The gradients to both rows of a stream, with one token of the first replaced."""
        ids = first.ids.clone()
        if changed is not None:
            ids[0, changed] = MASK
        with embedded(network) as inputs, module.empty_memory():
            module.losses(replace(first, ids=ids), None)
            total = module.losses(second, None)["clm"].total
            return [one if one is not None else torch.zeros(1) for one in _gradients(total, inputs)]

    plain = second_gradients(None)
    assert not plain[0].any(), "the memory has a gradient"
    assert plain[1].any()
    size = int(first.offsets.lengths[0])
    documents = first.offsets.documents[0, :size]
    for position in range(size):
        moved = second_gradients(position)[1]
        assert torch.equal(moved[1], plain[1][1]), "another stream is remembered"
        # Two layers: the states of the memory have read the tokens of their document before it.
        assert torch.equal(moved[0], plain[1][0]) == bool(documents[position] != documents[-1])


def rows_within_a_document(batches: Batches, memory: int) -> tuple[Batch, Batch]:
    """Two steps whose first rows continue a document that begins within the memory between them."""
    cursor, before = Cursor(), None
    while cursor.epoch == 0:
        (batch,), cursor = batches.step(cursor)
        if before is not None and batch.offsets is not None:
            size = int(before.offsets.lengths[0])
            documents = before.offsets.documents[0, max(0, size - memory) : size]
            if len(documents.unique()) > 1 and batch.offsets.documents[0, 1] == documents[-1]:
                return before, batch
        before = batch
    raise AssertionError("no such rows")


def _gradients(total: Tensor, inputs: list[Tensor]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(total, inputs, allow_unused=True)


@LANGUAGE_NETS
def test_language_vectors_are_those_of_each_side(name: str, tmp_path: Path) -> None:
    """A pair is one sequence, and each of its tokens has the vector of its own language."""
    recipe = trained_recipe(name)
    network = make_network(recipe)
    table = network.embedding.languages
    assert table is not None
    mono, pairs = training_batches(recipe, texts(tmp_path), {})
    sides = {int(token): side for document in DOCUMENTS for side, ids in enumerate(document) for token in ids}
    for batches, languages in ((mono, [1, 1]), (pairs, [1, 0])):
        (batch,), _ = batches.step(Cursor())
        with_languages = {LANGUAGES: batch.side_ids[LANGUAGES]}
        made = network.embedding(batch.ids, batch.position_ids, side_ids=with_languages)
        weights = torch.randn(made.shape[-1], dtype=made.dtype)
        for row, column in np.ndindex(*batch.shape):
            token = int(batch.ids[row, column])
            if token in sides:
                (gradient,) = torch.autograd.grad(made[row, column] @ weights, table.weight, retain_graph=True)
                assert gradient.any(-1).nonzero()[:, 0].tolist() == [languages[sides[token]]]


@SECOND
def test_no_gradient_goes_through_samples(name: str, tmp_path: Path) -> None:
    """Each network is trained by its own loss alone; they share the embedding."""
    recipe = trained_recipe(name)
    network = make_network(recipe)
    heads = make_heads(recipe, network)
    module = TrainingModule(network, heads).double()
    (batch,), _ = make_batches(recipe, texts(tmp_path), list(heads.values()), 0).step(Cursor())
    losses = module.losses(batch, None)
    own = {key: one for key, one in module.named_parameters() if ".generator." in key and "embedding" not in key}
    shared = {key: one for key, one in network.named_parameters() if key.startswith("embedding.")}
    others = {key: one for key, one in module.named_parameters() if key not in own and "embedding." not in key}
    assert own
    assert others
    (objective,) = recipe.second_networks
    for loss, trained, untrained in ((objective, others, own), ("mlm", own, others)):
        parameters = {**trained, **untrained, **shared}
        found = torch.autograd.grad(losses[loss].total, list(parameters.values()), allow_unused=True, retain_graph=True)
        for key, gradient in zip(parameters, found, strict=True):
            if key in untrained:
                assert gradient is None or not gradient.any(), f"{loss} trains {key}"
            elif key in trained:
                assert gradient is not None, f"{loss} does not train {key}"
                assert gradient.any(), f"{loss} does not train {key}"
        tokens = dict(zip(parameters, found, strict=True))["embedding.tokens.weight"]
        assert tokens is not None
        assert tokens.any()
    generator = next(one for one in heads.values() if hasattr(one, "generator")).generator
    with embedded(generator) as inputs:
        states = generator(batch).last_hidden_state.view(*batch.shape, -1)
    assert_sees(generator, states, inputs[0], batch.sequence_ids)
