"""By gradients, for every neural recipe: a hidden state depends on exactly the tokens that its mask allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.fit.batches import Batches, Cursor
from firth.fit.languages import LanguageBatches, TranslationBatches
from firth.fit.loop import TrainingModule
from firth.fit.parallel import make_batches
from firth.nets.batch import Batch
from firth.nets.embedding import LANGUAGES, Embedding
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import SegmentMemory
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.tokens.store import TokenStore
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
from tests.objectives.small_stores import numbered, store_of

EVERY = pytest.mark.parametrize("name", NETS)
CAUSAL = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.visibility == "causal"])
TRANSFORMERS = pytest.mark.parametrize(
    "name", [name for name, recipe in NETS.items() if recipe.encoder.kind == "transformer"]
)
DECODERS = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.decoder is not None])
REMEMBERING = pytest.mark.parametrize(  # in use; a memory that serves training alone is tested with its objective
    "name", [name for name, recipe in NETS.items() if recipe.memory.length and recipe.visibility == "causal"]
)
LANGUAGE_NETS = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.embedding.languages])
SECOND = pytest.mark.parametrize("name", [name for name, recipe in NETS.items() if recipe.second_networks])

PACKED = torch.tensor([[0] * 5 + [1] * 6 + [-1], [0] * 4 + [1] * 3 + [2] * 5])
SIZES = [[3, 4], [5, 2], [4, 4], [2, 6], [6, 3], [1, 5], [4, 2], [3, 3], [7, 2], [2, 2]]
DOCUMENTS = numbered(SIZES)
OWNERS = np.full(140, -1)
for number, document in enumerate(DOCUMENTS):
    OWNERS[np.concatenate(document)] = number
ROW = 20
MIXED = ("full-sentences", "contiguous-pair")  # formats whose sequences go over the ends of documents


@contextmanager
def embedded(network: Network) -> Iterator[list[Tensor]]:
    """The outputs of the embedding, which gradients are taken to."""
    made: list[Tensor] = []

    def keep(module: Any, given: Any, output: Tensor) -> Tensor:
        made.append(output.detach().requires_grad_())
        return made[-1]

    handles = [one.register_forward_hook(keep) for one in (network.embedding, network.decoder_embedding) if one]
    yield made
    for handle in handles:
        handle.remove()


def halves(network: Network, states: Tensor) -> list[tuple[str, Tensor]]:
    """The parts of hidden states, with the visibility of each."""
    if network.recipe.visibility != "forward+backward":
        return [(network.recipe.visibility, states)]
    forward, backward = states.chunk(2, -1)
    return [("causal", forward), ("anticausal", backward)]


def in_sequences(sequence_ids: Tensor | None, shape: tuple[int, int]) -> Tensor:
    """(batch, length, batch, length): whether two tokens are of one sequence of one row; padding is of none."""
    ids = torch.zeros(shape, dtype=torch.int64) if sequence_ids is None else sequence_ids
    same = (ids[:, :, None, None] == ids[None, None]) & (ids >= 0)[:, :, None, None]
    return same & torch.eye(shape[0], dtype=torch.bool)[:, None, :, None]


def assert_sees(network: Network, states: Tensor, inputs: Tensor, sequence_ids: Tensor | None) -> None:
    """The states of tokens depend on the tokens of their sequence that the recipe's visibility allows, and no other."""
    rows, length = inputs.shape[:2]
    together = in_sequences(sequence_ids, (rows, length))
    is_token = torch.ones(rows, length, dtype=torch.bool) if sequence_ids is None else sequence_ids >= 0
    for visibility, part in halves(network, states):
        allowed = together & sees(network.recipe.encoder, visibility, length)[None, :, None]
        found = dependence(part, inputs)[is_token]
        assert not (found & ~allowed[is_token]).any(), f"{visibility}: a state depends on tokens that are masked"
        assert found[allowed[is_token]].all(), f"{visibility}: a state does not depend on a visible token"


@EVERY
@pytest.mark.parametrize("packed", [False, True], ids=["single", "packed"])
def test_states_depend_on_visible_tokens_and_no_others(name: str, packed: bool) -> None:
    network, batch = build(name), make_batch(random_ids(), PACKED if packed else None)
    with embedded(network) as inputs:
        states = network(batch).last_hidden_state.view(*batch.shape, -1)
    assert_sees(network, states, inputs[0], batch.sequence_ids)


@EVERY
def test_gathered_positions_depend_on_visible_tokens_and_no_others(name: str) -> None:
    """The last layer of a Transformer is computed for some positions by other code."""
    network, batch = build(name), make_batch(random_ids(), PACKED)
    positions = torch.tensor([0, 3, 4, 6, 10, 12, 15, 17, 23])
    with embedded(network) as inputs:
        some = network(batch, positions).last_hidden_state
    for visibility, part in halves(network, some):
        allowed = in_sequences(PACKED, batch.shape) & sees(network.recipe.encoder, visibility, LENGTH)[None, :, None]
        found = dependence(part[None], inputs[0])[0]
        assert torch.equal(found, allowed.flatten(0, 1)[positions])


@CAUSAL
def test_decoding_depends_on_previous_tokens_alone(name: str) -> None:
    """Step by step, as texts are scored and generated."""
    network, ids = build(name), random_ids()
    found = decoding_dependence(network, ids, [5, 1, 6])
    assert torch.equal(found, sees(network.recipe.encoder, "causal", LENGTH).expand(2, -1, -1))


def decoding_dependence(network: Network, ids: Tensor, steps: list[int]) -> Tensor:
    """(batch, length, length): whether each state changes with each token; cached states have no gradient."""

    def decode(changed: int) -> Tensor:
        begins = iter(np.cumsum([0, *steps]).tolist())

        def change(module: Any, given: Any, output: Tensor) -> Tensor:
            at = torch.arange(output.shape[1]) + next(begins)
            return output + (at == changed)[:, None] * torch.linspace(1, 2, output.shape[2], dtype=output.dtype)

        handle = network.embedding.register_forward_hook(change)
        made, cache = [], None
        for some in torch.split(ids, steps, 1):
            states, cache = network.decode_step(some, cache)
            made.append(states)
        handle.remove()
        return torch.cat(made, 1)

    with torch.inference_mode():
        plain = decode(-1)
        moved = [(decode(token) - plain).abs().amax(-1) > 1e-12 for token in range(ids.shape[1])]
    return torch.stack(moved, 2)


@TRANSFORMERS
def test_an_order_replaces_positions(name: str) -> None:
    """A prefix whose tokens attend to one another, and a permutation, with tokens that no other attends to."""
    network, ids = build(name), random_ids()
    batch = make_batch(ids)
    batch.attention_order = torch.stack([torch.tensor([0] * 5 + [*range(1, 8)]), torch.randperm(LENGTH)])
    batch.query_only = torch.zeros_like(ids, dtype=torch.bool)
    batch.query_only[:, [4, 9]] = True
    batch.source = None
    order, is_query = batch.attention_order, batch.query_only
    with embedded(network) as inputs:
        found = dependence(network(batch).last_hidden_state.view(*batch.shape, -1), inputs[0])
    allowed = order[:, :, None] >= order[:, None]
    allowed &= ~is_query[:, None] | torch.eye(LENGTH, dtype=torch.bool)
    for row in range(2):
        assert torch.equal(found[row, :, row], allowed[row])
        assert not found[row, :, 1 - row].any()


def texts(folder: Path) -> TokenStore:
    """Documents of two sentences, in which no token occurs twice."""
    return store_of(DOCUMENTS, folder, vocabulary=len(OWNERS))


def training_batches(recipe: NetRecipe, store: TokenStore, heads: dict[str, ObjectiveHead]) -> list[Batches]:
    """The batches that a recipe is trained on, for each kind of text that it reads."""
    if not recipe.embedding.languages:
        return [make_batches(recipe, store, list(heads.values()), 0)]
    translating = {name: head for name, head in heads.items() if head.objective.needs_translations}
    others = [head for name, head in heads.items() if name not in translating]
    return [
        LanguageBatches(recipe, store, others, 0, [1]),
        TranslationBatches(recipe, store, list(translating.values()), 0, [1, 0]),
    ]


def trained_recipe(name: str) -> NetRecipe:
    recipe = small(name, tokens=len(OWNERS), length=ROW)
    return replace(recipe, learning=replace(recipe.learning, batch=4 * ROW))


def make_network(recipe: NetRecipe) -> Network:
    return build_network(recipe, vocabulary_of(len(OWNERS)), seed=1).double()


@EVERY
def test_training_rows_keep_sequences_and_documents_apart(name: str, tmp_path: Path) -> None:
    """In the rows of each recipe's own format: streams, packed sentences, pairs, translations."""
    recipe = trained_recipe(name)
    network, packed = make_network(recipe), 0
    for batches in training_batches(recipe, texts(tmp_path), {}):
        (batch,), _ = batches.step(Cursor())
        if batch.source is not None:
            continue  # see `test_decoders_...`
        with embedded(network) as inputs:
            states = network(batch).last_hidden_state.view(*batch.shape, -1)
        assert_sees(network, states, inputs[0], batch.sequence_ids)
        packed += batch.sequence_ids is not None and int(batch.sequence_ids.max()) > 0
        if recipe.sequence.format not in MIXED:
            owners = torch.from_numpy(OWNERS)[batch.ids]
            is_text = owners >= 0
            other = (owners[:, :, None, None] != owners) & is_text[:, :, None, None] & is_text
            found = dependence(states, inputs[0])
            assert not (found & other).any(), "a state depends on another document"
            is_stream = recipe.sequence.format == "stream" and recipe.visibility == "bidirectional"
            if is_stream and sees(recipe.encoder, "bidirectional", ROW).all():
                same = (owners[:, :, None, None] == owners) & is_text[:, :, None, None]
                same &= torch.eye(len(owners), dtype=torch.bool)[:, None, :, None]
                assert found[same].all(), "a state does not depend on all of its document, or of its pair"
    assert packed or recipe.decoder is not None or recipe.sequence.format in MIXED, "no row has several sequences"


@contextmanager
def nudged(module: TrainingModule, outside: list[Tensor]) -> Iterator[list[Tensor]]:
    """The outputs of all embeddings, with noise where `outside` (of the source, if there is one, and the batch) is."""
    made: list[Tensor] = []
    calls: dict[int, int] = {}

    def keep(embedding: Embedding, given: Any, output: Tensor) -> Tensor:
        call = calls[id(embedding)] = calls.get(id(embedding), -1) + 1
        is_decoder = embedding is module.network.decoder_embedding
        where = outside[-1 if is_decoder else min(call, len(outside) - 1)]  # ranking reads a batch twice
        noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(call), dtype=output.dtype)
        made.append(output.detach().requires_grad_())
        return made[-1] + noise * where[..., None]

    handles = [one.register_forward_hook(keep) for one in module.modules() if isinstance(one, Embedding)]
    yield made
    for handle in handles:
        handle.remove()


@EVERY
def test_the_losses_of_a_sequence_do_not_depend_on_other_sequences(name: str, tmp_path: Path) -> None:
    """The gradient of all losses to a sequence is the same whatever is beside it, in its row and in other rows.

    So it is for heads that combine states, and for samples of a generator.
    """
    recipe = trained_recipe(name)
    network = make_network(recipe)
    heads = make_heads(recipe, network)
    module = TrainingModule(network, heads).double()
    for batches in training_batches(recipe, texts(tmp_path), heads):
        (batch,), _ = batches.step(Cursor())
        parts = [batch] if batch.source is None else [batch.source, batch]
        zeros = [torch.zeros(part.shape, dtype=torch.bool) for part in parts]
        before, read = loss_gradients(module, batch, zeros)
        numbers = torch.zeros(batch.shape) if batch.sequence_ids is None else batch.sequence_ids
        trained = 0
        sequences = [(row, number) for row, ids in enumerate(numbers.tolist()) for number in sorted({*ids} - {-1})]
        for row, number in sequences:
            inside = [_is_inside(part, row, number) for part in parts]
            after, moved = loss_gradients(module, batch, [~one for one in inside])
            assert any(not torch.equal(*both) for both in zip(before, after, strict=True)), "nothing was changed"
            for call, (one, two) in enumerate(zip(before, after, strict=True)):
                mine = inside[min(call, len(inside) - 1)]
                torch.testing.assert_close(two[mine], one[mine], rtol=0, atol=1e-11)
                trained += bool(one[mine].any())
            assert torch.equal(moved[inside[-1]], read[inside[-1]])
        assert trained > 1


def _is_inside(batch: Batch, row: int, number: int) -> Tensor:
    """(batch, length): the tokens of a sequence of a row."""
    ids = torch.zeros(batch.shape, dtype=torch.int64) if batch.sequence_ids is None else batch.sequence_ids
    return (ids == number) & (torch.arange(len(ids)) == row)[:, None]


def loss_gradients(module: TrainingModule, batch: Batch, outside: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The gradients of all losses to the outputs of embeddings, and the ids that the network has read."""
    read: list[Tensor] = []
    reader = module.network.decoder_embedding or module.network.embedding
    handle = reader.register_forward_pre_hook(lambda one, given: read.append(given[0]) or None)
    with nudged(module, outside) as made, module.empty_memory():
        total = sum((loss.total for loss in module.losses(batch, None).values()), torch.zeros(()))
        gradients = torch.autograd.grad(total, made)
    handle.remove()
    return list(gradients), read[-1]


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
