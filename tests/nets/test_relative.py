"""Relative attention equals the loop over pairs, has exact gradients, and sees what its mask and memory allow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from firth.errors import RecipeError
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.biased_attention import DistanceTerms, biased_attention
from firth.nets.encoders.relative import RelativeAttention, RelativeInputs, distance_sinusoids
from firth.nets.encoders.transformer import Layer, Transformer
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    MemoryRecipe,
    NetRecipe,
    OutputRecipe,
    SequenceRecipe,
)
from firth.nets.visibility import AttentionBias, AttentionMask, GatheredQueries, SegmentMemory
from firth.objectives.clm import CausalLM

ROWS, LENGTH, MEMORY, WIDTH, HEADS = 2, 6, 5, 8, 2
VOCABULARY = Vocabulary([f"w{number}" for number in range(40)], np.arange(40, 0, -1))
ENCODER = EncoderRecipe(
    layers=3, width=WIDTH, ffn_width=12, heads=HEADS, positions="relative", dropout=0.0, attention_dropout=0.0
)


def randoms(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def make_attention(**changes: Any) -> RelativeAttention:
    torch.manual_seed(5)
    attention = RelativeAttention(replace(ENCODER, **changes)).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    return attention


def sinusoid(distance: int) -> torch.Tensor:
    """As in the paper's code: sines, then cosines."""
    angles = distance / 10_000 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    return torch.cat([angles.sin(), angles.cos()])


def slow_attention(
    attention: RelativeAttention, states: torch.Tensor, memory: torch.Tensor, allowed: torch.Tensor, clamp: int = 0
) -> torch.Tensor:
    """The attention of a row, pair by pair: states (length, width), memory (memory, width), allowed (length, keys)."""
    query, key, value = attention.qkv.weight.chunk(3)
    keys, size = torch.cat([memory, states]), WIDTH // HEADS
    rows = []
    for i in range(len(states)):
        heads = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            q = (query @ states[i])[part]
            scores = []
            for j in range(len(keys)):
                distance = len(memory) + i - j
                distance = max(-clamp, min(clamp, distance)) if clamp else distance
                r = (attention.distances.weight @ sinusoid(distance))[part]
                by_content = (q + attention.biases.content[part]) @ (key @ keys[j])[part]
                by_position = (q + attention.biases.position[part]) @ r
                scores.append((by_content + by_position) / math.sqrt(size))
            weights = torch.where(allowed[i], torch.stack(scores), -torch.inf).softmax(0)
            heads.append(weights @ torch.stack([(value @ one)[part] for one in keys]))
        rows.append(attention.out.weight @ torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("visibility", ["causal", "bidirectional"])
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(("memory", "clamp"), [(0, 0), (MEMORY, 0), (MEMORY, 3)])
def test_attention_equals_the_loop_over_pairs(visibility: str, gradients: bool, memory: int, clamp: int) -> None:
    attention = make_attention(clamp_length=clamp)
    states, before = randoms(ROWS, LENGTH, WIDTH), randoms(ROWS, memory, WIDTH, seed=1)
    sequence_ids = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]])
    visible = (torch.arange(memory) > 0) & (sequence_ids[:, :, None] == 0)
    kept = SegmentMemory([before], visible) if memory else None
    mask = AttentionMask(visibility, (ROWS, LENGTH), sequence_ids, memory=kept)
    assert mask.allowed is not None
    keys = memory + LENGTH
    sinusoids = distance_sinusoids(keys, LENGTH, attention.recipe, visibility == "causal", states)
    inputs = RelativeInputs(sinusoids, before if memory else None)
    with torch.set_grad_enabled(gradients):
        found = attention(states, mask.bias(torch.float64), None, inputs)
        some = torch.tensor([1, 4, 5, 6, 9])
        gathered = GatheredQueries(some, (ROWS, LENGTH))
        bias = gathered.select_bias(mask.bias(torch.float64))
        queried = attention.query_attention(states.flatten(0, 1)[some], gathered, states, bias, None, inputs)
    for row in range(ROWS):
        expected = slow_attention(attention, states[row], before[row], mask.allowed[row], clamp)
        torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(queried, found.flatten(0, 1)[some], rtol=0, atol=1e-10)


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("rows", [1, ROWS])
def test_gradients_equal_finite_differences(gathered: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of queries, keys and values, position queries, distances and added scores, with a mask and with dropout."""
    monkeypatch.setattr("firth.nets.encoders.biased_attention._CHUNK", 1)  # a row at a time
    count, keys = 3, 5
    given = [
        randoms(ROWS, count, 4),
        randoms(ROWS, keys, 8, seed=1),
        randoms(ROWS, count, 4, seed=2),
        randoms(keys + 1, 4, seed=3),
        randoms(rows, HEADS if rows > 1 else 1, count, keys, seed=4),
    ]
    columns = torch.tensor([[0, 2, 1], [1, 2, 0]]) if gathered else None
    allowed = torch.arange(keys) <= keys - count + torch.arange(count)[:, None]
    if columns is not None:
        allowed = torch.arange(keys) <= keys - count + columns[:, :, None]
    bias = torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, -torch.inf)

    def attend(*parts: torch.Tensor) -> torch.Tensor:
        queries, keys_values, positions, vectors, scores = parts
        terms = DistanceTerms(positions, vectors, count - 1, columns)
        mask = AttentionBias(bias if bias.dim() == 3 else bias[None])
        rng = DropoutRng(0, 0)
        return biased_attention(queries, keys_values, HEADS, mask, 0.7, terms, scores, 0.3, rng)

    assert torch.autograd.gradcheck(attend, [one.requires_grad_() for one in given])


def make_network(memory: int = MEMORY, length: int = LENGTH, same_length: bool = False, **changes: Any) -> Network:
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=WIDTH, scaled=True),
        encoder=replace(ENCODER, **changes),
        objectives=(CausalLM(),),
        output=OutputRecipe(kind="adaptive-tied"),
        sequence=SequenceRecipe(format="contiguous", length=length),
        memory=MemoryRecipe(length=memory, same_length=same_length),
    )
    network = build_network(recipe, VOCABULARY, 1).double()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    return network


def make_batch(ids: torch.Tensor, sequence_ids: torch.Tensor | None = None) -> Batch:
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids)


def random_ids(length: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).integers(5, 40, (ROWS, length)))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_scores_with_enough_memory_are_those_of_the_whole_text(norm: str) -> None:
    """In steps of any size, and whatever the segments are."""
    ids = random_ids(23)
    network = make_network(memory=23, length=4, norm=norm)
    with torch.inference_mode():
        whole = network(make_batch(ids)).last_hidden_state.view(ROWS, 23, -1)
        for sizes in ([23], [1] * 23, [9, 1, 13]):
            cache, made = None, []
            for some in torch.split(ids, sizes, 1):
                states, cache = network.decode_step(some, cache)
                made.append(states)
            torch.testing.assert_close(torch.cat(made, 1), whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("same_length", [False, True])
def test_limited_memory_equals_a_loop_over_segments(norm: str, same_length: bool) -> None:
    ids, length = random_ids(23), 6
    network = make_network(memory=4, length=length, same_length=same_length, norm=norm)
    by_hand, memory = [], [torch.zeros(ROWS, 0, WIDTH, dtype=torch.float64)] * 3
    with torch.inference_mode():
        for segment in torch.split(ids, length, 1):
            visible = torch.ones(ROWS, segment.shape[1], memory[0].shape[1], dtype=torch.bool)
            states = network(make_batch(segment), memory=SegmentMemory(memory, visible))
            joined = [torch.cat(each, 1) for each in zip(memory, states.layers[:3], strict=True)]
            memory = [one[:, -4:] for one in joined]
            by_hand.append(states.last_hidden_state.view(*segment.shape, -1))
        for sizes in ([23], [1] * 23, [7, 16]):
            cache, made = None, []
            for some in torch.split(ids, sizes, 1):
                found, cache = network.decode_step(some, cache)
                made.append(found)
            torch.testing.assert_close(torch.cat(made, 1), torch.cat(by_hand, 1), rtol=0, atol=1e-9)
    assert cache is not None
    assert all(tensor.shape[2] < length + 4 for tensor in cache.tensors), "the cache grows with the text"


def test_tokens_of_the_same_length_do_not_depend_on_segments() -> None:
    """With as much context for each token, one after another is as good as segments."""
    ids, made = random_ids(19), []
    for length in (4, 7, 19):
        network = make_network(memory=5, length=length, same_length=True)
        with torch.inference_mode():
            made.append(network.decode_step(ids)[0])
    torch.testing.assert_close(made[0], made[2], rtol=0, atol=1e-9)
    torch.testing.assert_close(made[1], made[2], rtol=0, atol=1e-9)


def test_gradients_follow_the_mask_and_the_memory() -> None:
    """A state has a gradient to exactly the tokens and memories of its document up to it; memories pass none on."""
    network = make_network(layers=1)
    ids = random_ids(LENGTH)
    sequence_ids = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    memory_documents = torch.tensor([[7, 7, 8, 8, 8], [-1, -1, -1, 3, 3]])
    documents = torch.tensor([[8, 8, 8, 9, 9, 9], [3, 3, 3, 3, 3, 3]])
    visible = (memory_documents[:, None] == documents[:, :, None]) & (memory_documents >= 0)[:, None]
    memory = randoms(ROWS, MEMORY, WIDTH).requires_grad_()
    embedded: list[torch.Tensor] = []
    network.embedding.register_forward_hook(lambda *given: embedded.append(given[2]))
    states = network(make_batch(ids, sequence_ids), memory=SegmentMemory([memory], visible))
    last = states.last_hidden_state.view(ROWS, LENGTH, -1)
    for row in range(ROWS):
        for i in range(LENGTH):
            of_inputs, of_memory = torch.autograd.grad(
                (last[row, i] ** 2).sum(), [embedded[0], memory], retain_graph=True
            )
            expected = (torch.arange(LENGTH) <= i) & (sequence_ids[row] == sequence_ids[row, i])
            assert torch.equal(of_inputs[row].any(-1), expected)
            assert torch.equal(of_memory[row].any(-1), visible[row, i])
            assert not of_inputs[1 - row].any()
            assert not of_memory[1 - row].any()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_two_streams_with_shared_keys_are_those_with_keys_of_their_own(
    norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States, gradients and dropout, with a memory and rows of both directions; keys are projected once a layer."""
    recipe = replace(ENCODER, norm=norm, segments="relative", dropout=0.1, attention_dropout=0.1)
    torch.manual_seed(2)
    network = Transformer(NetRecipe(encoder=recipe, visibility="bidirectional")).double()
    states, queries = randoms(ROWS, LENGTH, WIDTH), randoms(5, WIDTH, seed=1)
    positions = torch.tensor([0, 3, 4, 7, 11])

    def run() -> list[torch.Tensor]:
        network.zero_grad()
        mask = AttentionMask("bidirectional", (ROWS, LENGTH), rng=DropoutRng(1, 2, 3))
        mask.attention_order = torch.tensor([[0, 3, 0, 1, 2, 0], [0, 1, 0, 0, 0, 2]])
        visible = torch.ones(ROWS, LENGTH, MEMORY, dtype=torch.bool)
        mask.memory = SegmentMemory([randoms(ROWS, MEMORY, WIDTH, seed=4 + layer) for layer in range(3)], visible)
        mask.segment_ids, mask.is_reversed = torch.tensor([[0, 0, 0, 1, 1, 2]] * 2), torch.tensor([False, True])
        layers, last = network(states, mask, positions, queries, mask.of_queries())
        (last.sin().sum() + layers[-1].cos().sum()).backward()
        gradients = [parameter.grad for parameter in network.parameters()]
        return [last, *layers, *(one for one in gradients if one is not None)]

    shared = run()
    assert len(shared) == 1 + 3 + len(list(network.parameters()))
    monkeypatch.setattr(Layer, "share_keys", lambda self, states, relative: relative)
    for one, other in zip(shared, run(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tied", [True, False])
def test_position_biases_are_shared_or_of_each_layer(tied: bool) -> None:
    names = [name for name, _ in make_network(tie_position_biases=tied).named_parameters() if "biases" in name]
    assert len(names) == (2 if tied else 6)


def test_a_memory_needs_relative_positions_and_contiguous_rows() -> None:
    recipe = make_network().recipe
    for changes, part in (
        ({"encoder": replace(recipe.encoder, positions="none")}, "encoder.positions"),
        ({"sequence": replace(recipe.sequence, format="stream")}, "sequence.format"),
        ({"learning": replace(recipe.learning, short_phase=0.2)}, "learning.short_phase"),
    ):
        with pytest.raises(RecipeError, match=part):
            replace(recipe, **changes)
    with pytest.raises(RecipeError, match=r"memory\.length"):
        MemoryRecipe(same_length=True)
    with pytest.raises(RecipeError, match=r"encoder\.kind"):
        replace(ENCODER, kind="lstm")
