"""The network of ULMFiT: against PyTorch's LSTMs with the same masks, and penalties by hand (Merity et al. 2018)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.network import Network, build_network
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.objectives.clm import CausalLM
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import resize
from firth.recipes.recurrent import ulmfit
from tests.contracts.small_networks import vocabulary_of

TOKENS = 30
RATES = {"input": 0.5, "token": 0.25, "hidden": 0.375, "output": 0.5, "weight": 0.5}  # whole parts of 256


def small(**encoder: Any) -> NetRecipe:
    base = resize(ulmfit(), "tiny")
    return replace(
        base,
        embedding=replace(base.embedding, width=6, dropout=RATES["input"], token_dropout=RATES["token"]),
        encoder=replace(
            base.encoder,
            **{
                "width": 6,
                "inner_width": 10,
                "dropout": RATES["hidden"],
                "output_dropout": RATES["output"],
                "weight_drop": RATES["weight"],
                **encoder,
            },
        ),
    )


def built(**encoder: Any) -> Network:
    return build_network(small(**encoder), vocabulary_of(TOKENS), seed=1)


def rows(count: int = 4, length: int = 9) -> Batch:
    ids = torch.randint(5, TOKENS, (count, length), generator=torch.Generator().manual_seed(2))
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool))


def peer(layer: Any, mask: Tensor) -> nn.LSTM:
    """A plain LSTM of PyTorch whose recurrent weights are those of a layer, multiplied by a mask."""
    made = nn.LSTM(layer.input.in_features, layer.cells, batch_first=True)
    with torch.no_grad():
        made.weight_ih_l0.copy_(layer.input.weight)
        made.bias_ih_l0.copy_(layer.input.bias)
        made.weight_hh_l0.copy_(layer.recurrent.weight * mask)
        made.bias_hh_l0.zero_()
    return made


def test_the_published_shape() -> None:
    encoder = build_network(replace(ulmfit(), encoder=replace(ulmfit().encoder)), vocabulary_of(TOKENS), 0).encoders[0]
    shapes = [(one.input.in_features, one.width) for one in encoder.layers]  # type: ignore[union-attr]
    assert shapes == [(400, 1150), (1150, 1150), (1150, 400)]


def test_a_training_pass_equals_plain_lstms_with_masked_weights() -> None:
    """States and gradients, with every mask drawn again in the same order."""
    network, batch = built(), rows()
    states = network(batch, None, DropoutRng(3, 7))
    rng, count = DropoutRng(3, 7), len(batch.ids)
    tokens = rng.mask((TOKENS, 1), RATES["token"])
    table = network.embedding.table.detach().clone().requires_grad_()
    x = (table * tokens)[batch.ids] * rng.mask((count, 1, 6), RATES["input"])
    layers: Any = network.encoders[0].layers
    peers = []
    for number, layer in enumerate(layers):
        peers.append(peer(layer, rng.mask(layer.recurrent.weight.shape, RATES["weight"])))
        x, _ = peers[-1](x)
        raw = x
        if number < 2:
            x = x * rng.mask((1, count, x.shape[2]), RATES["hidden"])[0][:, None]
    last = raw * rng.mask((count, 1, 6), RATES["output"])
    torch.testing.assert_close(states.layers[-1], raw, rtol=0, atol=1e-6)
    torch.testing.assert_close(states.last_hidden_state.view_as(last), last, rtol=0, atol=1e-6)
    states.last_hidden_state.square().sum().backward()
    last.square().sum().backward()
    torch.testing.assert_close(network.embedding.table.grad, table.grad, rtol=1e-4, atol=1e-6)
    for layer, other in zip(layers, peers, strict=True):
        torch.testing.assert_close(layer.input.weight.grad, other.weight_ih_l0.grad, rtol=1e-4, atol=1e-6)
        dropped = layer.recurrent.weight.grad == 0
        assert 0.3 < float(dropped.float().mean()) < 0.7, "dropped weights have no gradient"
        assert torch.equal(dropped, other.weight_hh_l0 == 0)


def test_locked_masks_are_the_same_at_all_steps() -> None:
    network, batch = built(weight_drop=0.0), rows(20, 12)
    embedded = network.embedding(batch.ids, rng=DropoutRng(0, 1))
    is_token = (embedded != 0).any(-1)
    kept = (embedded != 0).any(1)  # of each row and unit
    assert torch.equal((embedded != 0)[is_token], kept[:, None].expand_as(embedded)[is_token])
    assert float(kept.float().mean()) == pytest.approx(0.5, abs=0.15)
    states = network(batch, None, DropoutRng(0, 1))
    raw, last = states.layers[-1], states.last_hidden_state.view(20, 12, 6)
    dropped = (last == 0).all(1)  # of each row and unit
    assert float(dropped.float().mean()) == pytest.approx(0.5, abs=0.15)
    torch.testing.assert_close(last, raw * 2 * ~dropped[:, None])


def test_token_dropout_drops_every_occurrence_of_a_word() -> None:
    network = build_network(replace(small(), embedding=replace(small().embedding, dropout=0.0)), vocabulary_of(200), 1)
    ids = torch.arange(200).repeat(3, 2)
    embedded = network.embedding(ids, rng=DropoutRng(0, 5))
    zero = (embedded == 0).all(-1)
    assert torch.equal(zero, zero[:1, :200].repeat(3, 2)), "a word is dropped everywhere or nowhere"
    assert float(zero.float().mean()) == pytest.approx(RATES["token"], abs=0.1)
    kept = ~zero
    torch.testing.assert_close(embedded[kept], network.embedding.table[ids][kept] / (1 - RATES["token"]))
    assert torch.equal(network.embedding(ids), network.embedding.table[ids]), "only in training"


def test_penalties_are_the_formulas_of_the_paper() -> None:
    """alpha mean (m h)^2 + beta mean (h[t + 1] - h[t])^2, of two packed sequences, by loops."""
    recipe = small()
    network, batch = built(), rows(2, 7)
    batch.sequence_ids = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0] * 7])
    (head,) = make_heads(recipe, network).values()
    states = network(batch, None, DropoutRng(3, 7))
    with torch.no_grad():
        found = head.losses(network, states, batch, DropoutRng(0, 0))
    dropped, raw = states.last_hidden_state.detach().view(2, 7, 6), states.layers[-1].detach()
    activation, temporal, count = 0.0, 0.0, 0
    for row in range(2):
        for step in range(6):
            if batch.sequence_ids[row, step] != batch.sequence_ids[row, step + 1] or batch.sequence_ids[row, step] < 0:
                continue
            count += 1
            for unit in range(6):
                activation += float(dropped[row, step, unit]) ** 2 / 6
                temporal += float(raw[row, step + 1, unit] - raw[row, step, unit]) ** 2 / 6
    assert count == 10
    assert {name: loss.count for name, loss in found.items()} == dict.fromkeys(("clm", "activation", "temporal"), 10)
    assert float(found["activation"].total) == pytest.approx(activation, rel=1e-5)
    assert float(found["temporal"].total) == pytest.approx(temporal, rel=1e-5)
    assert head.weights(0.5) == {"clm": 1.0, "activation": 2.0, "temporal": 1.0}
    assert head.counts(batch) == dict.fromkeys(("clm", "activation", "temporal"), 10)
    plain = head.losses(network, network(batch), batch, None)
    assert list(plain) == ["clm"], "validation measures the predictions alone"


def test_without_penalties_there_is_one_loss() -> None:
    recipe = replace(small(), objectives=(CausalLM(),))
    network = build_network(recipe, vocabulary_of(TOKENS), 1)
    (head,) = make_heads(recipe, network).values()
    states = network(rows(), None, DropoutRng(0, 0))
    assert list(head.losses(network, states, rows(), DropoutRng(0, 0))) == ["clm"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inner_width": 8, "residual": True}, "inner_width=0"),
        ({"output_dropout": 1.5}, "output_dropout"),
        ({"kind": "window", "context": 3}, "recurrent"),
    ],
)
def test_fields_that_do_not_go_together(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        replace(small().encoder, **change)


def test_penalties_are_of_recurrent_networks() -> None:
    with pytest.raises(RecipeError, match="recurrent"):
        NetRecipe(encoder=EncoderRecipe(), objectives=(CausalLM(temporal_penalty=1.0),))
    with pytest.raises(RecipeError, match="activation_penalty"):
        CausalLM(activation_penalty=-1.0)
