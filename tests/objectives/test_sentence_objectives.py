"""Objectives of sentence vectors: losses by plain NumPy, gradients by finite differences, groups of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from firth.errors import CorpusError, RecipeError
from firth.fit.batches import Cursor
from firth.fit.sentence_batches import SentenceBatches
from firth.nets.batch import Batch
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.sentence_pooling import pair_hashes
from firth.nets.sentence_recipe import SentenceRecipe
from firth.objectives.contrastive import ContrastiveNLI
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.generation import GenerationHead
from firth.objectives.heads.sentences import SentenceHead
from firth.objectives.matching import Neighbours, ResponseMatching
from firth.objectives.nli import NaturalLanguageInference
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, FIRST_WORD
from tests.objectives.small_stores import numbered, small_recipe, small_vocabulary, store_of

Array = npt.NDArray[np.float64]
NAMES = ("nli", "contrastive-nli", "neighbours", "response")
GENERATED = ("neighbour-generation", "translation", "parsing")
POOLINGS: tuple[Any, ...] = ("mean", "max", "first", "last", "ends", "sqrt")
# Premises 5..7, 8..9, 10 are read twice, with an entailed and a contradicting sentence; the last pair is neutral.
PAIRS = [
    [[5, 6, 7], [11, 12]],
    [[5, 6, 7], [13, 14, 15, 16]],
    [[8, 9], [17]],
    [[8, 9], [18, 19]],
    [[10], [20, 21, 22]],
    [[10], [23, 24]],
    [[25, 26], [27, 28]],
]
LABELS = np.array([0, 2, 0, 2, 0, 2, 1])
CONTRASTED = np.array([0, 1, 0, 1, 0, 1, -1])


def recipe_of(name: str, sentence: SentenceRecipe | None = None, **changes: Any) -> NetRecipe:
    recipe = small_recipe(name, form="sentences", length=24, batch=96)
    return replace(recipe, sentence=sentence or SentenceRecipe(), **changes)


def made(
    name: str, folder: Path, sentence: SentenceRecipe | None = None, **changes: Any
) -> tuple[Network, SentenceHead, Batch]:
    """A network in double precision, a head, and a batch of groups."""
    recipe = recipe_of(name, sentence, **changes)
    network = build_network(recipe, small_vocabulary(), 1).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        head = make_heads(recipe, network)[name].double()
    assert isinstance(head, SentenceHead)
    for parameter in network.parameters():
        parameter.data.mul_(8)  # so that states differ
    (batch,), _ = batches_of(recipe, head, store_of(PAIRS, folder)).step(Cursor())
    return network, head, batch


def batches_of(recipe: NetRecipe, head: SentenceHead, store: TokenStore, seed: int = 0) -> SentenceBatches:
    labels = {"nli": LABELS, "contrastive-nli": CONTRASTED}.get(head.name)
    return SentenceBatches(recipe, store, head, seed, labels)


def sentences_of(batch: Batch) -> list[list[int]]:
    """The positions of the tokens of each sequence of a batch, without special ones."""
    numbers = torch.zeros_like(batch.ids) if batch.sequence_ids is None else batch.sequence_ids
    found: dict[tuple[int, int], list[int]] = {}
    length = batch.shape[1]
    for position, (token, number) in enumerate(torch.stack([batch.ids, numbers], -1).view(-1, 2).tolist()):
        if number >= 0:
            own = found.setdefault((position // length, number), [])
            own += [position] if token >= FIRST_WORD else []
    return list(found.values())


def vectors_by_hand(network: Network, batch: Batch) -> list[Array]:
    """The vector of each sequence by its definition."""
    with torch.no_grad():
        states = network(batch).last_hidden_state.numpy()
    part, found = network.recipe.sentence, []
    for positions in sentences_of(batch):
        own = states[positions]
        half = own.shape[1] // 2
        total = own.sum(0)
        pooled = {
            "mean": total / len(own),
            "sqrt": total / np.sqrt(len(own)),
            "max": own.max(0),
            "first": states[positions[0] - 1],  # [CLS]
            "last": own[-1],
            "ends": np.concatenate([own[-1, :half], own[0, half:]]) if network.sentence.has_two_directions else own[-1],
        }[part.pooling]
        found.append(pooled)
    return found


def log_softmax(scores: Sequence[float]) -> Array:
    values = np.array(scores)
    return np.asarray(values - values.max() - np.log(np.exp(values - values.max()).sum()))


def cosine(one: Array, two: Array) -> float:
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def numbers(layer: Any) -> tuple[Array, Array]:
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


def loss_by_hand(network: Network, head: SentenceHead, batch: Batch) -> float:
    """The sum of the losses, by loops over pairs of sentences."""
    found = vectors_by_hand(network, batch)
    members = [found[number :: head.members] for number in range(head.members)]
    total, module = 0.0, head  # type: Any
    if head.name == "nli":
        for u, v, label in zip(*members, batch.labels["nli.labels"].tolist(), strict=True):
            hidden = np.concatenate([u, v, np.abs(u - v), u * v])
            for weight, bias in map(numbers, module.layers):
                hidden = weight @ hidden + bias
            total -= log_softmax(hidden)[label]
        return total
    if head.name == "contrastive-nli":
        weight, bias = numbers(module.projection)
        u, v, w = ([np.tanh(weight @ one + bias) for one in side] for side in members)
        for i in range(len(u)):
            total -= log_softmax([cosine(u[i], other) / 0.05 for other in [*v, *w]])[i]
        return total
    u, v = members
    if head.name == "response":
        for number, (weight, bias) in enumerate(map(numbers, module.layers)):
            v = [weight @ (np.tanh(one) if number else one) + bias for one in v]
    for i in range(len(u)):
        total -= log_softmax([cosine(u[i], other) / 0.05 for other in v])[i]
        if head.name == "neighbours":
            total -= log_softmax([cosine(other, v[i]) / 0.05 for other in u])[i]
    return total


def loss_of(network: Network, head: SentenceHead, batch: Batch) -> torch.Tensor:
    return head.loss(network, network(batch, head.positions(batch)), batch, None).total


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_loss_is_that_of_a_loop_over_pairs(name: str, pooling: Any, tmp_path: Path) -> None:
    network, head, batch = made(name, tmp_path, SentenceRecipe(pooling=pooling))
    groups = len(sentences_of(batch)) // head.members
    assert groups > 2
    assert batch.sequence_ids is not None
    assert int(batch.sequence_ids.max()) > 0, "no row has several sentences"
    loss = head.loss(network, network(batch, head.positions(batch)), batch, None)
    assert float(loss.total.detach()) == pytest.approx(loss_by_hand(network, head, batch), rel=1e-9)
    assert loss.count == head.count(batch) == groups * (2 if name == "neighbours" else 1)


def test_the_ends_of_both_directions(tmp_path: Path) -> None:
    """The last state forwards and the first one backwards, each of which has read the whole sentence."""
    base = recipe_of("nli")
    encoder = replace(base.encoder, kind="bilstm", norm="none")
    changes: dict[str, Any] = {"encoder": encoder, "embedding": replace(base.embedding, positions="none")}
    network, head, batch = made("nli", tmp_path, SentenceRecipe(pooling="ends"), **changes)
    assert network.sentence.has_two_directions
    loss = float(loss_of(network, head, batch).detach())
    assert loss == pytest.approx(loss_by_hand(network, head, batch), rel=1e-9)
    last = sentences_of(batch)[0][-1]
    changed = batch.ids.flatten().clone()
    changed[last] = 30
    other = replace(batch, ids=changed.view_as(batch.ids))
    before, after = (vectors_by_hand(network, one)[0] for one in (batch, other))
    assert np.all(np.abs(after - before) > 1e-9), "both halves depend on the last token"


@pytest.mark.parametrize("name", GENERATED)
def test_texts_are_written_from_the_vector_of_the_other_sentence(name: str, tmp_path: Path) -> None:
    """The loss of packed rows is the sum of those of single texts, each read after the vector of its pair."""
    network, head, batch = made(name, tmp_path)
    assert isinstance(head, GenerationHead)
    assert head.targets == ((1, 0) if name == "neighbour-generation" else (1,))
    found, ids = vectors_by_hand(network, batch), batch.ids.flatten()
    weight, bias = (one.detach() for one in (head.output.weight, head.output.bias))  # type: ignore[union-attr]
    total, count = 0.0, 0
    for number, positions in enumerate(sentences_of(batch)):
        member, other = number % 2, number + 1 - 2 * (number % 2)
        if member not in head.targets:
            continue
        decoder = head.decoders[head.targets.index(member)]
        inside = slice(positions[0] - 1, positions[-1] + 1)  # from the token before the text on
        with torch.no_grad():
            embedded = head.table(ids[inside])[None]
            owners = torch.zeros(1, embedded.shape[1], dtype=torch.int64)
            states = decoder(embedded, None, torch.from_numpy(found[other])[None], owners)[0]
        logs = (states @ weight.T + bias).log_softmax(-1)
        wanted = ids[inside.start + 1 : inside.stop + 1]
        assert int(wanted[-1]) == EOS
        total -= float(logs[torch.arange(len(wanted)), wanted].sum())
        count += len(wanted)
    loss = head.loss(network, network(batch, head.positions(batch)), batch, None)
    assert loss.count == head.count(batch) == count
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-9)
    assert head.saved_tensors() == {}


@pytest.mark.parametrize("name", [*NAMES, *GENERATED])
def test_gradients_are_those_of_finite_differences(name: str, tmp_path: Path) -> None:
    part = SentenceRecipe(pooling="mean", bigrams=50, layers=2, width=6)
    network, head, batch = made(name, tmp_path, part)
    loss_of(network, head, batch).backward()  # type: ignore[no-untyped-call]
    trained = [*network.embedding.named_parameters(), *network.encoders.named_parameters()]
    trained += [*network.sentence.named_parameters(), *head.named_parameters()]
    generator = torch.Generator().manual_seed(4)
    for key, parameter in trained:
        gradient = parameter.grad
        assert gradient is not None, key
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        sides = []
        for step in (1e-6, -1e-6):
            parameter.data.add_(direction, alpha=step)
            with torch.no_grad():
                sides.append(float(loss_of(network, head, batch)))
            parameter.data.sub_(direction, alpha=step)
        slope = float((gradient * direction).sum())
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-5), key
    assert any(float(one.grad.abs().max()) > 0 for _, one in network.sentence.named_parameters())  # type: ignore[union-attr]


def test_a_deep_averaging_network_by_hand(tmp_path: Path) -> None:
    """The mean of all n words and n - 1 bigrams, then two layers."""
    part = SentenceRecipe(pooling="mean", bigrams=30, layers=2)
    network, head, batch = made("nli", tmp_path, part)
    with torch.no_grad():
        states = network(batch).last_hidden_state
        found = torch.stack(list(head.vectors(network, network(batch), batch)), 1).flatten(0, 1).numpy()
    assert network.sentence.bigrams is not None
    table = network.sentence.bigrams.weight.detach().numpy()
    for positions, vector in zip(sentences_of(batch), found, strict=True):
        ids = batch.ids.flatten()[positions]
        vectors = [*states[positions].numpy()]
        if len(ids) > 1:
            vectors += [*table[pair_hashes(ids[:-1], ids[1:], 30).numpy()]]
        assert len(vectors) == 2 * len(ids) - 1
        (first, bias), (second, other) = map(numbers, network.sentence.layers)
        hidden = first @ np.mean(vectors, 0) + bias
        activation = torch.nn.functional.gelu(torch.from_numpy(hidden)).numpy()
        np.testing.assert_allclose(vector, second @ activation + other, rtol=1e-9)


def test_hashes_of_pairs_are_spread_and_ordered() -> None:
    one, two = torch.meshgrid(torch.arange(5, 105), torch.arange(5, 105), indexing="ij")
    hashes = pair_hashes(one.flatten(), two.flatten(), 1000)
    counts = torch.bincount(hashes, minlength=1000)
    assert int(hashes.min()) >= 0 and int(hashes.max()) < 1000  # noqa: PT018
    assert int(counts.max()) < 40  # 10 on average
    assert float((hashes.view(100, 100) == hashes.view(100, 100).T).double().mean()) < 0.03


def test_premises_have_an_entailed_and_a_contradicting_sentence(tmp_path: Path) -> None:
    _, head, batch = made("contrastive-nli", tmp_path)
    ids = batch.ids.flatten()
    found = [ids[positions].tolist() for positions in sentences_of(batch)]
    triples = {tuple(map(tuple, found[number : number + 3])) for number in range(0, len(found), 3)}
    assert triples == {
        ((5, 6, 7), (11, 12), (13, 14, 15, 16)),
        ((8, 9), (17,), (18, 19)),
        ((10,), (20, 21, 22), (23, 24)),
    }
    assert head.saved_tensors() == {}


def test_labels_stay_with_their_pairs(tmp_path: Path) -> None:
    _, _, batch = made("nli", tmp_path)
    ids = batch.ids.flatten()
    found = [ids[positions].tolist() for positions in sentences_of(batch)]
    labels = batch.labels["nli.labels"].tolist()
    assert len(labels) == len(found) // 2
    for number, label in enumerate(labels):
        assert LABELS[PAIRS.index(found[2 * number : 2 * number + 2])] == label


def test_every_group_is_read_once_an_epoch_and_batches_depend_on_the_seed_and_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = numbered([[int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 6)))] for _ in range(40)])
    store = store_of(documents, tmp_path)
    recipe = recipe_of("neighbours")
    head = make_heads(recipe, build_network(recipe, small_vocabulary(), 1))["neighbours"]
    assert isinstance(head, SentenceHead)
    batches = SentenceBatches(recipe, store, head, 3)
    expected = sorted(tuple(map(tuple, pair)) for one in documents for pair in pairwise(one))
    orders = []
    for epoch in (0, 1):
        cursor, found = Cursor(epoch), []
        while cursor.epoch == epoch:
            parts, cursor = batches.step(cursor)
            for batch in parts:
                assert batch.objectives == {"neighbours"}
                ids = batch.ids.flatten()
                read = [tuple(ids[positions].tolist()) for positions in sentences_of(batch)]
                found += list(zip(read[::2], read[1::2], strict=True))
        assert sorted(found) == expected
        orders.append(found)
    assert orders[0] != orders[1]
    again = SentenceBatches(recipe, store, head, 3)
    (one,), _ = again.step(Cursor(1, batches.rows))
    (two,), _ = batches.step(Cursor(1, batches.rows))
    assert torch.equal(one.ids, two.ids)
    (three,), _ = SentenceBatches(recipe, store, head, 4).step(Cursor(1, batches.rows))
    assert not torch.equal(one.ids, three.ids)


def test_groups_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    store = store_of([[[5] * 3, [6] * 4], [[7] * 30, [8] * 4]], tmp_path)
    recipe = recipe_of("neighbours")
    head = make_heads(recipe, build_network(recipe, small_vocabulary(), 1))["neighbours"]
    assert isinstance(head, SentenceHead)
    batches = SentenceBatches(recipe, store, head, 0)
    assert (batches.left_out, batches.tokens, batches.split) == (1, 7, 0)
    with pytest.raises(CorpusError, match="no group of 2 sentences"):
        _ = SentenceBatches(recipe, store_of([[[5, 6]]], tmp_path / "one"), head, 0).groups
    with pytest.raises(CorpusError, match=r"set sequence\.length="):
        _ = SentenceBatches(recipe, store_of([[[5] * 30, [6]]], tmp_path / "long"), head, 0).groups


def test_wrong_settings_are_refused() -> None:
    for kind in (ContrastiveNLI, Neighbours, ResponseMatching):
        with pytest.raises(RecipeError, match="temperature"):
            kind(temperature=0.0)
    with pytest.raises(RecipeError, match="share"):
        Neighbours(share=1.0)
    with pytest.raises(RecipeError, match="labels apart"):
        NaturalLanguageInference(labels=("yes", "Yes"))
    with pytest.raises(RecipeError, match="bigrams"):
        recipe_of("nli", SentenceRecipe(pooling="max", bigrams=5))
    with pytest.raises(RecipeError, match=r"sentence\.width"):
        recipe_of("nli", SentenceRecipe(width=5))
