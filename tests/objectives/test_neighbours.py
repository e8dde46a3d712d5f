"""Objectives of neighbouring sentences: losses by plain loops in NumPy, gradients, batches, and trained encoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

import firth
from firth.errors import CorpusError, RecipeError
from firth.fit.batches import Cursor
from firth.fit.consecutive import ConsecutiveBatches
from firth.fit.parallel import make_batches
from firth.nets.batch import Batch
from firth.nets.network import Network, build_network
from firth.nets.recipe import LearningRecipe, NetRecipe
from firth.nets.sentence_net import SentenceNet
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.quick_thought import QuickThoughtHead, neighbour_loss
from firth.objectives.heads.skip_thought import SkipThoughtHead
from firth.objectives.quick_thought import QuickThought
from firth.objectives.skip_thought import SkipThought
from firth.recipes.nets import resize
from firth.recipes.sentences import quick_thoughts, skip_thoughts
from firth.tokens.tokenizer import EOS
from tests.objectives.small_stores import numbered, small_vocabulary, store_of

Floats = npt.NDArray[np.float64]
SIZES = [[3, 5, 2], [4], [6, 1, 7, 3]]
WORDS = 60


def small(recipe: NetRecipe, **changes: Any) -> NetRecipe:
    """The recipe with narrow layers, in one batch."""
    made = replace(
        recipe,
        embedding=replace(recipe.embedding, width=4),
        encoder=replace(recipe.encoder, width=6),
        sequence=replace(recipe.sequence, length=12),
        learning=LearningRecipe(batch=1000),
    )
    return replace(made, **changes)


def prepared(recipe: NetRecipe, folder: Path) -> tuple[Network, ObjectiveHead, Batch]:
    """A network in double precision, its head, and a batch of all sentences of a small text."""
    network = build_network(recipe, small_vocabulary(WORDS), seed=1).double()
    for parameter in network.parameters():
        parameter.data *= 3  # far from a uniform prediction
    (head,) = (one.double() for one in make_heads(recipe, network).values())
    (batch,), _ = make_batches(recipe, store_of(numbered(SIZES), folder), [head], 0).step(Cursor())
    return network, head, batch


def loss_of(network: Network, head: ObjectiveHead, batch: Batch) -> torch.Tensor:
    return head.loss(network, network(batch, head.positions(batch)), batch, None).total


def array(tensor: torch.Tensor) -> Floats:
    return np.asarray(tensor.detach().numpy(), dtype=np.float64)


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def gru_states(layer: nn.Module, inputs: Floats, added: Floats | float = 0.0) -> list[Floats]:
    """Plain gated recurrent units over one sentence."""
    w, b, u = (array(layer.get_parameter(name)) for name in ("input.weight", "input.bias", "recurrent.weight"))
    h, states = np.zeros(u.shape[1]), []
    for x in inputs:
        (r, z, n), (u_r, u_z, u_n) = np.split(w @ x + b + added, 3), np.split(u @ h, 3)
        update = sigmoid(z + u_z)
        h = (1 - update) * np.tanh(n + sigmoid(r + u_r) * u_n) + update * h
        states.append(h)
    return states


def plain_vector(network: Network, ids: list[int]) -> Floats:
    """The vector of a sentence with its special tokens: final states of each direction."""
    table = array(network.embedding.table)
    ends = []
    for number, encoder in enumerate(network.encoders):
        order = ids if number == 0 else ids[::-1]
        ends.append(gru_states(encoder.get_submodule("layers.0"), table[order])[-1])
    return np.concatenate(ends)


def documents_of(limit: int = 10) -> list[list[list[int]]]:
    """The text as the batches have it: truncated sentences with their special tokens."""
    return [[[EOS, *sentence[:limit], EOS] for sentence in document] for document in numbered(SIZES)]


def test_quick_thoughts_are_a_double_loop_over_sentences(tmp_path: Path) -> None:
    network, head, batch = prepared(small(quick_thoughts()), tmp_path)
    assert isinstance(head, QuickThoughtHead)
    documents = documents_of()
    every = [(number, place, one) for number, each in enumerate(documents) for place, one in enumerate(each)]
    total, count = 0.0, 0
    for number, place, ids in every:
        scores, wanted = [], []
        for other, at, candidate in every:
            if (other, at) == (number, place):
                continue
            scores.append(float(plain_vector(network, ids) @ plain_vector(head.second, candidate)))
            wanted.append(other == number and abs(at - place) == 1)
        logs = np.array(scores) - np.log(np.sum(np.exp(scores)))
        if any(wanted):
            total -= float(logs[np.array(wanted)].mean())
            count += 1
    assert count == head.count(batch) == 7
    assert loss_of(network, head, batch).item() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("visibility", ["causal", "forward+backward"])
def test_skip_thoughts_are_a_loop_over_pairs_of_sentences(tmp_path: Path, visibility: Any) -> None:
    network, head, batch = prepared(small(skip_thoughts(), visibility=visibility), tmp_path)
    assert isinstance(head, SkipThoughtHead)
    total, count = plain_skip_loss(network, head.decoders)
    assert count == head.count(batch)
    assert loss_of(network, head, batch).item() == pytest.approx(total, rel=1e-9)


def plain_skip_loss(network: Network, decoders: nn.ModuleDict) -> tuple[float, int]:
    table, weights = array(network.embedding.table), array(network.output.get_parameter("weight"))
    bias = array(network.output.get_parameter("bias"))
    total, count = 0.0, 0
    for document in documents_of():
        for place, ids in enumerate(document):
            vector = plain_vector(network, ids)
            for side, at in (("previous", place - 1), ("next", place + 1)):
                if not 0 <= at < len(document):
                    continue
                target, decoder = document[at], decoders[side]
                added = array(decoder.get_parameter("condition.weight")) @ vector
                states = gru_states(decoder.get_submodule("layer"), table[target[:-1]], added)
                for state, wanted in zip(states, target[1:], strict=True):
                    logits = weights @ state + bias
                    total -= logits[wanted] - np.log(np.sum(np.exp(logits)))
                    count += 1
    return total, count


def test_combined_skip_thoughts_are_two_independent_models(tmp_path: Path) -> None:
    recipe = small(skip_thoughts(), objectives=(SkipThought(combined=True),))
    network, head, batch = prepared(recipe, tmp_path)
    assert isinstance(head, SkipThoughtHead)
    assert head.second is not None
    assert head.second_decoders is not None
    assert head.second.recipe.width == recipe.width
    total = sum(plain_skip_loss(*each)[0] for each in ((network, head.decoders), (head.second, head.second_decoders)))
    assert loss_of(network, head, batch).item() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("make", [quick_thoughts, skip_thoughts])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gradients_by_finite_differences(tmp_path: Path, make: Callable[[], NetRecipe], kind: Any) -> None:
    recipe = small(make())
    network, head, batch = prepared(replace(recipe, encoder=replace(recipe.encoder, kind=kind)), tmp_path)
    loss_of(network, head, batch).backward()
    rng = np.random.default_rng(0)
    for name, parameter in [*network.named_parameters(), *head.named_parameters()]:
        if parameter.grad is None:
            assert name.startswith("output")
            continue
        direction = torch.from_numpy(rng.standard_normal(parameter.shape))
        found = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter += step * direction
                found.append(loss_of(network, head, batch).item())
                parameter -= step * direction
        expected = (found[0] - found[1]) / 2e-5
        assert float((parameter.grad * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-6), name


def test_neighbours_share_the_probability() -> None:
    scores = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, np.log(3.0)], [0.0, 0.0, 9.0]])
    neighbours = torch.tensor([[False, True, False], [True, False, True], [False, False, False]])
    loss = neighbour_loss(scores, neighbours)
    assert loss.count == 2
    assert float(loss.total) == pytest.approx(np.log(2) - (np.log(0.25) + np.log(0.75)) / 2)


def consecutive(folder: Path, sizes: list[list[int]], **learning: Any) -> ConsecutiveBatches:
    recipe = replace(small(quick_thoughts()), learning=LearningRecipe(**{"batch": 40} | learning))
    store = store_of(numbered(sizes), folder)
    made = make_batches(recipe, store, [], 0)
    assert isinstance(made, ConsecutiveBatches)
    return made


def test_an_epoch_has_every_sentence_once_in_consecutive_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sizes = [[int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 9)))] for _ in range(40)]
    batches = consecutive(tmp_path, sizes)
    count = sum(map(len, sizes))
    layouts = []
    for epoch in range(2):
        runs, cursor = [], Cursor(epoch)
        while cursor.epoch == epoch:
            (batch,), cursor = batches.step(cursor)
            numbers = np.sort(batch.labels["sentences"].numpy())
            assert (np.diff(numbers) == 1).all()
            assert batch.tokens == sum(min(size, 10) for size in np.concatenate(sizes)[numbers])
            runs.append(tuple(numbers))
        assert sorted(number for run in runs for number in run) == list(range(count))
        assert runs != sorted(runs)
        layouts.append(sorted(runs))
    assert layouts[0] != layouts[1]


def test_labels_are_those_of_the_packed_sentences(tmp_path: Path) -> None:
    batches = consecutive(tmp_path, SIZES, batch=1000)
    (batch,), _ = batches.step(Cursor())
    sentences = [one for document in documents_of() for one in document]
    owners = [number for number, document in enumerate(documents_of()) for _ in document]
    assert batch.sequence_ids is not None
    place = 0
    for row, ids in zip(batch.ids, batch.sequence_ids, strict=True):
        for sequence in range(int(ids.max()) + 1):
            number = int(batch.labels["sentences"][place])
            assert row[ids == sequence].tolist() == sentences[number]
            assert int(batch.labels["documents"][place]) == owners[number]
            place += 1
    assert place == len(sentences)


def test_a_step_is_a_function_of_the_cursor(tmp_path: Path) -> None:
    one, two = (consecutive(tmp_path / str(number), SIZES * 4, batch=20) for number in range(2))
    cursor = Cursor()
    for _ in range(5):
        first, after = one.step(cursor)
    for _ in range(3):
        again, _ = two.step(cursor)
        assert torch.equal(first[0].ids, again[0].ids)
    assert after != cursor


def test_micro_batches_are_runs_of_their_own(tmp_path: Path) -> None:
    batches = consecutive(tmp_path, SIZES * 4, batch=80, grad_accumulation=2)
    parts, _ = batches.step(Cursor())
    assert len(parts) == 2
    assert all(1 <= one.tokens <= 50 for one in parts)
    assert all(len(one.labels["sentences"]) > 1 for one in parts)


def test_what_has_no_neighbours_is_counted(tmp_path: Path) -> None:
    batches = consecutive(tmp_path, [[3, 0, 12], [4], [5, 5]])
    assert batches.metrics() == {"truncated_sentences": 1, "single_sentences": 1}
    assert batches.tokens == 3 + 10 + 4 + 5 + 5
    assert [remark.split()[0] for remark in batches.remarks()] == ["1", "1"]


def test_a_text_without_neighbours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="neighbour"):
        consecutive(tmp_path, [[3], [0, 4], [5]]).step(Cursor())


def test_impossible_recipes_are_refused() -> None:
    with pytest.raises(RecipeError, match="consecutive"):
        replace(quick_thoughts(), sequence=replace(quick_thoughts().sequence, format="sentences"))
    with pytest.raises(RecipeError, match="combined"):
        replace(skip_thoughts(), visibility="forward+backward", objectives=(SkipThought(combined=True),))
    with pytest.raises(RecipeError, match="context_size"):
        QuickThought(context_size=0)


def stories(count: int, seed: int = 0) -> list[list[str]]:
    """Documents whose sentences are all about one topic."""
    rng = np.random.default_rng(seed)
    topics = [[f"{name}{number}" for number in range(6)] for name in ("sea", "law", "art", "war")]
    return [[" ".join(rng.choice(topics[topic], 4)) for _ in range(5)] for topic in rng.integers(0, len(topics), count)]


@pytest.mark.parametrize("settings", [("quick-thoughts",), ("skip-thoughts", "skip-thought.combined=true")])
def test_sentences_of_one_topic_become_near(tmp_path: Path, settings: tuple[str, ...]) -> None:
    name, *more = settings
    small_run = ["embedding.width=8", "encoder.width=8", "learning.batch=256", "learning.lr=0.02", *more]
    model = firth.train(name, stories(150), out=tmp_path / "m", settings=small_run, budget="20ktok", threads=1)
    assert isinstance(model, SentenceNet)
    texts, topics = [], []
    for document in stories(12, seed=1):
        texts += document
        topics += [document[0][:3]] * len(document)
    vectors = model.embed(texts)
    assert vectors.shape == (60, 32 if name == "quick-thoughts" else 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), np.sqrt(2), rtol=1e-5)
    cosines, same = vectors @ vectors.T, np.array(topics)[:, None] == np.array(topics)
    np.fill_diagonal(same, False)
    assert cosines[same].mean() > cosines[~same & ~np.eye(60, dtype=bool)].mean() + 0.3
    again = firth.load(tmp_path / "m")
    np.testing.assert_array_equal(again.embed(texts), vectors)
    assert not again.embed([" "]).any()


def test_a_vector_is_that_of_the_plain_network(tmp_path: Path) -> None:
    recipe = resize(quick_thoughts(), "tiny")
    settings = ["embedding.width=8", "encoder.width=8"]
    assert recipe.encoder.width >= 8
    model = firth.train("quick-thoughts", stories(20), out=tmp_path / "m", settings=settings, budget="500tok")
    assert isinstance(model, SentenceNet)
    (ids,) = model.encode(["sea1 law2 sea3"])
    halves = [plain_vector(network, [EOS, *ids.tolist(), EOS]) for network in model.networks]
    expected = np.concatenate([half / np.linalg.norm(half) for half in halves])
    np.testing.assert_allclose(model.embed(["sea1 law2 sea3"])[0], expected, atol=1e-6)
    pooled = model.embed(["sea1 law2 sea3"], pooling="mean")
    assert pooled.shape == (1, 16)
