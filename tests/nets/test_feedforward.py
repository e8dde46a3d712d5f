"""Encoders of a fixed context against loops over single tokens and the formulas of the papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.encoder import Encoder
from firth.nets.encoders.feedforward import Bilinear, IdentityEncoder, WindowEncoder
from firth.nets.network import Vocabulary, build_network, make_encoder
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe
from firth.nets.visibility import AttentionMask
from firth.objectives.registry import parse_objectives

SEQUENCE_IDS = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 1, 1, 1, 1, 2, 2]])


def recipe(kind: str, width: int = 6, visibility: str = "causal", output: str = "full", **encoder: Any) -> NetRecipe:
    settings: dict[str, Any] = {
        "kind": kind,
        "layers": 1,
        "width": width,
        "heads": 1,
        "ffn_width": 0,
        "context": 3,
        "norm": "none",
        "activation": "tanh",
        "dropout": 0.0,
    }
    objective = {"causal": "clm", "bidirectional": "mlm"}.get(visibility, "bilm")
    return NetRecipe(
        embedding=EmbeddingRecipe(width=6),
        encoder=EncoderRecipe(**{**settings, **encoder}),
        visibility=visibility,  # type: ignore[arg-type]
        objectives=parse_objectives(objective),
        output=OutputRecipe(kind=output),  # type: ignore[arg-type]
    )


def made(kind: str, **settings: Any) -> Encoder:
    torch.manual_seed(0)
    return make_encoder(recipe(kind, **settings)).double()


def inputs(rows: int = 2, length: int = 7, seed: int = 1) -> Tensor:
    return torch.randn(rows, length, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def window_vectors(vectors: Tensor, sequence_ids: Tensor | None, row: int, position: int, offsets: range) -> Tensor:
    """The concatenated vectors of one window."""
    found = []
    for offset in offsets:
        other = position + offset
        inside = 0 <= other < vectors.shape[1] and (
            sequence_ids is None or sequence_ids[row, other] == sequence_ids[row, position]
        )
        found.append(vectors[row, other] if inside else torch.zeros_like(vectors[row, position]))
    return torch.cat(found)


OFFSETS = {"causal": range(-2, 1), "anticausal": range(3), "bidirectional": range(-3, 4)}


@pytest.mark.parametrize("sequence_ids", [None, SEQUENCE_IDS])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", list(OFFSETS))
def test_window_equals_the_formula_at_each_position(name: str, direct: bool, sequence_ids: Tensor | None) -> None:
    visibility = "forward+backward" if name == "anticausal" else name
    encoder = made("window", visibility=visibility, direct_connections=direct)
    assert isinstance(encoder, WindowEncoder)
    x = inputs()
    layers, last = encoder(x, AttentionMask(name, (2, 7), sequence_ids))
    weight, bias = encoder.layers[0].weight, encoder.layers[0].bias
    for row in range(2):
        for position in range(7):
            window = window_vectors(x, sequence_ids, row, position, OFFSETS[name])
            hidden = torch.tanh(bias + weight @ window)
            expected = torch.cat([hidden, window]) if direct else hidden
            torch.testing.assert_close(last[row * 7 + position], expected)
            torch.testing.assert_close(layers[1][row, position], hidden)
    assert torch.equal(layers[0], x)


@pytest.mark.parametrize("sequence_ids", [None, SEQUENCE_IDS])
def test_bilinear_is_a_sum_of_products(sequence_ids: Tensor | None) -> None:
    encoder = made("bilinear", output="tied")
    assert isinstance(encoder, Bilinear)
    x = inputs()
    layers, last = encoder(x, AttentionMask("causal", (2, 7), sequence_ids))
    matrices = encoder.combine.weight.view(6, 3, 6).unbind(1)  # of the last but two, last but one and last word
    for row in range(2):
        for position in range(7):
            window = window_vectors(x, sequence_ids, row, position, OFFSETS["causal"]).view(3, 6)
            expected = sum(matrix @ vector for matrix, vector in zip(matrices, window, strict=True))
            torch.testing.assert_close(last[row * 7 + position], expected)
    assert torch.equal(layers[1].flatten(0, 1), last)


def test_identity_is_the_vector_itself() -> None:
    encoder, x = made("none"), inputs()
    assert isinstance(encoder, IdentityEncoder)
    layers, last = encoder(x, AttentionMask("causal", (2, 7)), torch.tensor([3, 8]))
    assert torch.equal(last, torch.stack([x[0, 3], x[1, 1]]))
    assert len(layers) == 1
    assert encoder.flops(7) == 0
    assert torch.equal(encoder.decode_step(x, [])[0], x)


def test_direct_connections_give_the_formula_of_2003() -> None:
    """y = b + W x + U tanh(d + H x), by a softmax over the state."""
    network = build_network(recipe("window", direct_connections=True), words(20), 0).double()
    ids = torch.randint(5, 20, (2, 7), generator=torch.Generator().manual_seed(2))
    logits = network.output.logits(network(Batch(ids, torch.ones_like(ids, dtype=torch.bool))).last_hidden_state)
    hidden = network.encoders[0].layers[0]  # type: ignore[union-attr, index]
    u, w = network.output.weight.split([6, 18], 1)  # type: ignore[operator, union-attr]
    vectors = network.embedding(ids)
    for position in range(7):
        x = window_vectors(vectors, None, 0, position, OFFSETS["causal"])
        y = network.output.bias + w @ x + u @ torch.tanh(hidden.bias + hidden.weight @ x)
        torch.testing.assert_close(logits[position], y)


def test_one_hot_input_is_a_table_look_up() -> None:
    """A one-hot input through a first layer C is a row of C."""
    network = build_network(recipe("window"), words(20), 0).double()
    ids = torch.randint(5, 20, (2, 7), generator=torch.Generator().manual_seed(3))
    table = network.embedding.table.detach()
    one_hot = torch.nn.functional.one_hot(ids, 20).double().requires_grad_()
    c = table.clone().requires_grad_()
    states = [
        network.encoders[0](vectors, AttentionMask("causal", (2, 7)))[1]
        for vectors in (one_hot @ c, network.embedding(ids))
    ]
    assert torch.equal(states[0], states[1])
    states[0].square().sum().backward()
    states[1].square().sum().backward()
    torch.testing.assert_close(c.grad, network.embedding.tokens.weight.grad)


@pytest.mark.parametrize(("kind", "output"), [("window", "full"), ("bilinear", "tied")])
def test_gradients_by_finite_differences(kind: str, output: str) -> None:
    encoder = made(kind, output=output)
    parameters = tuple(encoder.parameters())

    def states(x: Tensor, *_: Tensor) -> Tensor:
        return encoder(x, AttentionMask("causal", (2, 7), SEQUENCE_IDS), torch.tensor([0, 4, 9]))[1]

    assert torch.autograd.gradcheck(states, (inputs().requires_grad_(), *parameters), fast_mode=True)


CASES = [
    ("none", {}, "causal"),
    ("window", {}, "causal"),
    ("window", {"layers": 3}, "causal"),
    ("window", {"direct_connections": True}, "causal"),
    ("window", {"visibility": "forward+backward"}, "anticausal"),
    ("window", {"visibility": "bidirectional"}, "bidirectional"),
    ("bilinear", {"output": "tied"}, "causal"),
]


@pytest.mark.parametrize(("kind", "settings", "name"), CASES)
def test_some_positions_equal_those_of_all(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x, positions = made(kind, **settings), inputs(), torch.tensor([0, 5, 6, 11])
    mask = AttentionMask(name, (2, 7), SEQUENCE_IDS)
    layers, every = encoder(x, mask)
    fewer, some = encoder(x, mask, positions)
    torch.testing.assert_close(some, every[positions])
    assert len(fewer) >= len(layers) - 1
    for one, other in zip(fewer, layers, strict=False):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("kind", "settings", "name"), CASES)
def test_sequences_are_independent(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x = made(kind, **settings), inputs()
    _, together = encoder(x, AttentionMask(name, (2, 7), SEQUENCE_IDS))
    _, alone = encoder(x[1:, 1:5], AttentionMask(name, (1, 4)))
    torch.testing.assert_close(together.view(2, 7, -1)[1, 1:5], alone)


@pytest.mark.parametrize(("kind", "settings", "name"), [case for case in CASES if case[2] == "causal"])
def test_states_depend_on_the_past_alone(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x = made(kind, **settings), inputs()
    other = x.clone()
    other[:, 4] += 1
    _, one = encoder(x, AttentionMask(name, (2, 7)))
    _, two = encoder(other, AttentionMask(name, (2, 7)))
    changed = (one != two).view(2, 7, -1).any(-1)
    assert changed[0].tolist() == [False] * 4 + [True] + [kind != "none"] * 2


@pytest.mark.parametrize(("kind", "settings", "name"), [case for case in CASES if case[2] == "causal"])
def test_decoding_equals_encoding_at_once(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x = made(kind, **settings), inputs()
    _, whole = encoder(x, AttentionMask(name, (2, 7)))
    cache: list[Tensor] = []
    found = []
    for begin, end in ((0, 1), (1, 2), (2, 6), (6, 7)):
        states, cache = encoder.decode_step(x[:, begin:end], cache)
        found.append(states)
    torch.testing.assert_close(torch.cat(found, 1), whole.view(2, 7, -1))


@pytest.mark.parametrize(("kind", "settings", "name"), [case for case in CASES if case[0] != "none"])
def test_flops_are_those_of_the_counter(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x = made(kind, **settings), inputs()
    with FlopCounterMode(display=False) as counter:
        encoder(x, AttentionMask(name, (2, 7)))
    assert counter.get_total_flops() == 14 * encoder.flops(7)
    with FlopCounterMode(display=False) as counter:
        encoder(x, AttentionMask(name, (2, 7)), torch.tensor([1, 8]))
    assert counter.get_total_flops() == pytest.approx(14 * encoder.flops(7, 1 / 7))


@pytest.mark.parametrize("kind", ["window", "bilinear"])
def test_dropout_has_its_rate_and_depends_on_the_rng_alone(kind: str) -> None:
    base = recipe(kind, output="tied")
    torch.manual_seed(0)
    encoder = make_encoder(replace(base, encoder=replace(base.encoder, dropout=0.25)))
    x = inputs(20, 100).float()
    _, plain = encoder(x, AttentionMask("causal", (20, 100)))
    window = [encoder(x, AttentionMask("causal", (20, 100), rng=DropoutRng(1, step)))[1] for step in (5, 5, 6)]
    assert torch.equal(window[0], window[1])
    assert not torch.equal(window[0], window[2])
    kept = window[0] != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.015)
    torch.testing.assert_close(window[0][kept], plain[kept] / 0.75)


def words(count: int) -> Vocabulary:
    return Vocabulary([f"w{number}" for number in range(count)], np.ones(count, dtype=np.int64))
