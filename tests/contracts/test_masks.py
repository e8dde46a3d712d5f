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
from firth.fit.sentence_batches import SentenceBatches
from firth.nets.batch import Batch
from firth.nets.embedding import Embedding
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.sentences import SentenceHead
from firth.tokens.store import TokenStore
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
    grouping = [head for head in heads.values() if isinstance(head, SentenceHead)]
    if grouping:
        labels = np.arange(len(SIZES)) % 3
        return [SentenceBatches(recipe, store, head, 0, labels) for head in grouping]
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


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, recipe in NETS.items()
        if not any(one.compares_sequences or one.groups_sentences for one in recipe.objectives)
    ],
)
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
