"""Layers that fuse tokens and entities: a plain NumPy twin, and BERT where there are no entities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.nets.batch import Batch
from firth.nets.encoders.fusion import FusionLayer, FusionTransformer
from firth.nets.entities import ENTITIES, first_of_linked
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import resize
from firth.recipes.table import find_recipe
from firth.recipes.values import override
from firth.tokens._unit_kernels import word_key
from firth.tokens.gazetteer import Gazetteer, NameTable

Floats = npt.NDArray[np.float64]
LENGTH, COUNT = 10, 6
VOCABULARY = Vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(35))], np.arange(40, 0, -1)
)


def small_recipe(layers: int = 4, text_layers: int = 1) -> NetRecipe:
    recipe = resize(find_recipe("ernie-thu"), "tiny")  # type: ignore[arg-type]
    encoder = replace(
        recipe.encoder, layers=layers, width=16, ffn_width=24, heads=2, dropout=0.0, attention_dropout=0.0
    )
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=16, dropout=0.0),
        encoder=encoder,
        sequence=replace(recipe.sequence, length=LENGTH),
        entities=replace(recipe.entities, width=6, heads=2, text_layers=text_layers, count=COUNT),
    )


def small_network(layers: int = 4, text_layers: int = 1) -> Network:
    network = build_network(small_recipe(layers, text_layers), VOCABULARY, seed=1).double().eval()
    assert network.entities is not None
    network.entities.vectors[1:] = torch.from_numpy(np.random.default_rng(2).normal(size=(COUNT, 6)))
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1 and "embedding" not in name:
            parameter.data.mul_(8)
    return network


def batch_of(links: Tensor | None = None, sequence_ids: Tensor | None = None) -> Batch:
    ids = torch.from_numpy(np.random.default_rng(3).integers(5, 40, (2, LENGTH)))
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids=sequence_ids)
    if links is not None:
        batch.side_ids[ENTITIES] = links
    return batch


def some_links() -> Tensor:
    links = torch.zeros(2, LENGTH, dtype=torch.int64)
    links[0, 2], links[0, 7], links[1, 4] = 3, 5, 1
    return links


def states_of(network: Network, batch: Batch, positions: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return network(batch, positions).last_hidden_state  # type: ignore[no-any-return]


def norm(x: Floats, layer: torch.nn.Module) -> Floats:
    weight, bias = (getattr(layer, name).detach().numpy() for name in ("weight", "bias"))
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * weight + bias


def linear(x: Floats, layer: torch.nn.Linear) -> Floats:
    return x @ layer.weight.detach().numpy().T + (0 if layer.bias is None else layer.bias.detach().numpy())


def attention(x: Floats, layer: torch.nn.Module, heads: int, keys: list[int]) -> Floats:
    """Every position attends to some keys."""
    q, k, v = np.split(linear(x, layer.qkv), 3, -1)  # type: ignore[arg-type]
    size, found = x.shape[-1] // heads, np.zeros_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for row in range(len(x)):
            scores = np.array([q[row, part] @ k[key, part] / math.sqrt(size) for key in keys])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            found[row, part] = sum(weight * v[key, part] for weight, key in zip(weights, keys, strict=True))
    return linear(found, layer.out)  # type: ignore[arg-type]


def gelu(x: Floats) -> Floats:
    return np.vectorize(lambda one: 0.5 * one * (1 + math.erf(one / math.sqrt(2))))(x)


def twin(network: Network, inputs: Floats, links: list[int]) -> Floats:
    """The states of a text by the equations of the paper; the text has no padding."""
    assert network.entities is not None
    encoder = network.encoders[0]
    assert isinstance(encoder, FusionTransformer)
    table, every = network.entities.vectors.numpy(), list(range(len(links)))
    slots = [0, *(position for position, link in enumerate(links) if link)]
    mask = np.array([position in slots for position in every])[:, None]
    w, e = inputs, np.array([table[link] for link in links])
    for layer in encoder.layers:
        w = norm(w + attention(w, layer.attention, 2, every), layer.norm1)  # type: ignore[arg-type]
        inner = linear(w, layer.feedforward.inner)  # type: ignore[union-attr,arg-type]
        if isinstance(layer, FusionLayer):
            if layer.attends:
                e = norm(e + attention(e, layer.entity_attention, 2, slots), layer.entity_norm1)
            e = e * mask
            inner = inner + linear(e, layer.entity_inner)
        hidden = gelu(inner)
        w = norm(w + linear(hidden, layer.feedforward.outer), layer.norm2)  # type: ignore[union-attr,arg-type]
        if isinstance(layer, FusionLayer) and not layer.is_last:
            e = norm(e + linear(hidden, layer.entity_outer), layer.entity_norm2)
    return w


@pytest.mark.parametrize(("layers", "text_layers"), [(4, 1), (2, 0), (1, 0), (3, 2)])
def test_states_are_those_of_a_plain_twin(layers: int, text_layers: int) -> None:
    network, batch = small_network(layers, text_layers), batch_of(some_links())
    with torch.no_grad():
        states = network(batch)
    found = states.last_hidden_state.view(2, LENGTH, -1)
    for row in range(2):
        expected = twin(network, states.layers[0][row].numpy(), some_links()[row].tolist())
        np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-10)


def bert_of(network: Network) -> Network:
    """The same network without entities."""
    recipe = replace(network.recipe, entities=replace(network.recipe.entities, width=0, count=0), objectives=())
    bert = build_network(recipe, VOCABULARY, seed=1).double().eval()
    bert.load_state_dict({k: v for k, v in network.state_dict().items() if "entit" not in k})
    return bert


def test_a_text_without_entities_is_read_as_by_bert() -> None:
    network = small_network()
    bert = bert_of(network)
    positions = torch.tensor([0, 3, 12])
    for given in (None, positions):
        assert torch.equal(states_of(network, batch_of(), given), states_of(bert, batch_of(), given))
    links = some_links()
    links[1] = 0  # the second text has none, the first has some
    mixed = states_of(network, batch_of(links)).view(2, LENGTH, -1)
    plain = states_of(bert, batch_of()).view(2, LENGTH, -1)
    torch.testing.assert_close(mixed[1], plain[1], rtol=0, atol=1e-12)
    assert (mixed[0] - plain[0]).abs().max() > 1e-3


def test_gathered_positions_have_the_same_states() -> None:
    network, batch = small_network(), batch_of(some_links())
    positions = torch.tensor([0, 2, 3, 7, 14, 19])
    every = states_of(network, batch)
    torch.testing.assert_close(states_of(network, batch, positions), every[positions], rtol=0, atol=1e-10)


def test_entities_of_packed_sequences_do_not_meet() -> None:
    """By gradients: a state depends on the entities of its own sequence, all of them, and no other."""
    network = small_network()
    sequence_ids = torch.tensor([[0] * 5 + [1] * 5, [0] * 4 + [1] * 5 + [-1]])
    links = torch.zeros(2, LENGTH, dtype=torch.int64)
    links[0, 1], links[0, 3], links[0, 7], links[1, 6] = 1, 2, 3, 4
    assert network.entities is not None
    table = network.entities.vectors.clone().requires_grad_()
    network.entities.vectors = table
    states = network(batch_of(links, sequence_ids)).last_hidden_state.view(2, LENGTH, -1)
    weights = torch.randn(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = {(0, 0): {1, 2}, (0, 1): {3}, (1, 0): set(), (1, 1): {4}}
    for row in range(2):
        for position in range(LENGTH):
            sequence = int(sequence_ids[row, position])
            if sequence < 0:
                continue
            (gradient,) = torch.autograd.grad(states[row, position] @ weights, table, retain_graph=True)
            assert {one for one in range(COUNT + 1) if gradient[one].any()} == seen[row, sequence]


def test_the_first_token_gathers_entities_only_where_there_are_some() -> None:
    has = torch.tensor([[False, True, False, False], [False, False, False, False]])
    assert first_of_linked(has, None).tolist() == [[True, False, False, False], [False] * 4]


def test_tokens_are_linked_as_in_a_store() -> None:
    network = small_network()
    forms = {(7, 8): 2, (8,): 3, (7, 8, 9): 4}
    keys = {int(word_key(np.array(form), 0, len(form))): form for form in forms}
    longest = np.zeros(40, dtype=np.int64)
    longest[[7, 8]] = 3, 1
    ordered = sorted(keys)
    table = NameTable(
        np.array(ordered, dtype=np.uint64), np.array([forms[keys[one]] for one in ordered], dtype=np.int32), longest
    )
    names = Gazetteer(("b", "c", "d"), "", np.array([2, 3, 4], dtype=np.int32))
    recipe = replace(network.recipe, entities=replace(network.recipe.entities, forms=3, names=3, name_bytes=5))
    filled = build_network(recipe, VOCABULARY, 1)
    assert filled.entities is not None
    filled.entities.fill(np.ones((COUNT, 6), dtype=np.float32), names, table)
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 8, 7, 8, 3]])
    assert filled.entities.link(ids).tolist() == [[0, 4, 0, 0, 0], [0, 3, 2, 0, 0]]
    assert filled.entities.titles == {2: "b", 3: "c", 4: "d"}
    assert filled.entities.gazetteer.entries == ("b", "c", "d")
    given = Batch(ids, torch.ones_like(ids, dtype=torch.bool), side_ids={ENTITIES: filled.entities.link(ids)})
    found = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
    assert torch.equal(states_of(filled, given), states_of(filled, found))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ernie-thu", ["entities.text_layers=12"]),
        ("ernie-thu", ["entities.heads=3"]),
        ("ernie-thu", ["encoder.norm=pre"]),
        ("ernie-thu", ["encoder.tie_layers=all"]),
        ("ernie-thu", ["entities.width=0"]),
        ("gpt", ["entities.width=100"]),
        ("lstm", ["entities.width=100"]),
        ("bert", ["objectives=mlm+dea"]),
        ("ernie-thu", ["dea.replaced=0.9", "dea.dropped=0.2"]),
    ],
)
def test_networks_that_cannot_fuse_are_refused(name: str, settings: list[str]) -> None:
    with pytest.raises(RecipeError):
        override(find_recipe(name), settings)
