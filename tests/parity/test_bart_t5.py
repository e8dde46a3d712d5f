"""BART and T5 compute what their classes do in the transformers library: logits and gradients, packed and padded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.model import own_tensors
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import resize
from firth.recipes.table import RECIPES
from firth.tokens.tokenizer import BOS, EOS
from tests.parity import bart_weights
from tests.parity.bart_weights import transformers

TOKENS, LENGTH = 40, 40
NAMES = ["bart", "t5", "t5-1.1"]
CLASSES = {"bart": bart_weights.bart, "t5": bart_weights.t5, "t5-1.1": bart_weights.t5}
ATOL = 1e-9
EVERY = pytest.mark.parametrize("name", NAMES)
SOURCES = [[BOS, *range(6, 27), EOS], [BOS, 12, 13, EOS], [BOS, 14, 15, 16, 17, EOS]]
TARGETS = [[EOS, 21, 22, 23], [EOS, *range(10, 33)], [EOS, 29]]


def recipe(name: str) -> NetRecipe:
    """A small network without dropout; several layers, so that a table of distances is shared."""
    tiny: Any = resize(RECIPES[name].make(), "tiny")  # type: ignore[arg-type]
    part = replace(tiny.encoder, layers=3, width=16, ffn_width=24, heads=2, dropout=0.0, attention_dropout=0.0)
    if name != "bart":
        part = replace(part, buckets=8, max_distance=12)
    return replace(
        tiny,
        embedding=replace(tiny.embedding, width=16, dropout=0.0),
        encoder=part,
        decoder=replace(part, layers=2),
        sequence=replace(tiny.sequence, length=LENGTH),
    )


def network(name: str) -> Network:
    """Random weights."""
    made = build_network(recipe(name), Vocabulary([f"w{n}" for n in range(TOKENS)], np.arange(TOKENS, 0, -1)), 1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return made.double()


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch) -> None:
    """T5 computes variances in single precision; here in double, to compare more than rounding."""

    def norm(self: Any, states: Tensor) -> Tensor:
        return self.weight * (states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    monkeypatch.setattr(transformers.models.t5.modeling_t5.T5LayerNorm, "forward", norm)


def pack(rows: list[list[int]]) -> Batch:
    """All sequences in one row."""
    ids = torch.tensor([[one for row in rows for one in row]])
    sequence_ids = torch.tensor([[number for number, row in enumerate(rows) for _ in row]])
    position_ids = torch.tensor([[position for row in rows for position in range(len(row))]])
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids, position_ids)


def pad(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def theirs(name: str, made: Network) -> tuple[Any, Tensor]:
    """Their model with our weights, and its logits of all tokens of the targets."""
    model = CLASSES[name](made.recipe, {key: one.detach().clone() for key, one in own_tensors(made).items()}).eval()
    (source, source_mask), (target, target_mask) = pad(SOURCES), pad(TARGETS)
    logits = model(input_ids=source, attention_mask=source_mask, decoder_input_ids=target).logits
    return model, logits[target_mask > 0]


@EVERY
def test_logits_and_gradients_are_the_same(name: str) -> None:
    made = network(name)
    batch = pack(TARGETS)
    batch.source = pack(SOURCES)
    logits = made.output.logits(made(batch).last_hidden_state)
    model, expected = theirs(name, made)
    torch.testing.assert_close(logits, expected, rtol=0, atol=ATOL)
    wanted = torch.arange(len(logits)) * 7 % TOKENS
    for each in (logits, expected):
        torch.nn.functional.cross_entropy(each, wanted, reduction="sum").backward()
    table = made.embedding.table.grad
    shared = model.get_input_embeddings().weight.grad
    assert table is not None
    torch.testing.assert_close(table, shared, rtol=0, atol=ATOL)
    ours = dict(made.named_parameters())
    names = {"encoders.0.layers.1.feedforward.outer.weight", "decoder.layers.1.cross_attention.query.weight"}
    if name == "bart":
        pairs = [
            ("encoders.0.layers.1.feedforward.outer.weight", model.model.encoder.layers[1].fc2.weight),
            ("decoder.layers.1.cross_attention.query.weight", model.model.decoder.layers[1].encoder_attn.q_proj.weight),
            ("decoder_embedding.norm.weight", model.model.decoder.layernorm_embedding.weight),
        ]
        positions = model.model.decoder.embed_positions.weight.grad[bart_weights.OFFSET :]
        torch.testing.assert_close(ours["decoder_embedding.positions.weight"].grad, positions, rtol=0, atol=ATOL)
    else:
        encoder, decoder = model.encoder.block, model.decoder.block
        pairs = [
            ("encoders.0.layers.1.feedforward.outer.weight", encoder[1].layer[1].DenseReluDense.wo.weight),
            ("decoder.layers.1.cross_attention.query.weight", decoder[1].layer[1].EncDecAttention.q.weight),
            ("encoders.0.norm.weight", model.encoder.final_layer_norm.weight),
            *(
                (
                    f"{part}.layers.0.attention.table.weight",
                    block[0].layer[0].SelfAttention.relative_attention_bias.weight,
                )
                for part, block in (("encoders.0", encoder), ("decoder", decoder))
            ),
        ]
    assert names <= {key for key, _ in pairs}
    for key, parameter in pairs:
        torch.testing.assert_close(ours[key].grad, parameter.grad, rtol=0, atol=ATOL, msg=key)


@EVERY
def test_the_loss_of_a_corrupted_batch_is_theirs(name: str) -> None:
    """The sources and targets that the objective makes, read by their class row by row."""
    made = network(name)
    (head,) = make_heads(made.recipe, made).values()
    batch = pack([[BOS, *range(5, 25), EOS], [BOS, *range(8, 18), EOS]])
    head.corrupt(batch, np.random.default_rng(1))
    states = made(batch, head.positions(batch))
    ours = head.loss(made, states, batch, None)
    model, _ = theirs(name, made)
    total, count = 0.0, 0
    assert batch.source is not None
    assert batch.source.sequence_ids is not None
    assert batch.sequence_ids is not None
    for sequence in range(2):
        source = batch.source.ids[batch.source.sequence_ids == sequence][None]
        inputs = batch.ids[batch.sequence_ids == sequence]
        labels = torch.cat([inputs[1:], torch.tensor([EOS])])
        logits = model(input_ids=source, decoder_input_ids=inputs[None]).logits[0].detach()
        total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        count += len(labels)
    assert ours.count == count
    assert float(ours.total.detach()) == pytest.approx(total, abs=ATOL * count)
