"""The encoder and the decoder of CoVe: against PyTorch's LSTMs and attention by hand (Luong et al. 2015)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from firth.errors import AbilityError, RecipeError
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.attentive import AttentiveLstm
from firth.nets.encoders.bidirectional import BidirectionalLstm
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import AttentionMask, make_encoder_states
from firth.recipes.nets import resize
from firth.recipes.recurrent import cove
from tests.contracts.small_networks import vocabulary_of

TOKENS, INPUTS, WIDTH = 30, 5, 8


def small(**part: Any) -> NetRecipe:
    base = resize(cove(), "tiny")
    still = {"width": WIDTH, "dropout": 0.0, **part}
    return replace(
        base,
        embedding=replace(base.embedding, width=INPUTS, dropout=0.0),
        encoder=replace(base.encoder, **still),
        decoder=replace(base.decoder, **still),  # type: ignore[type-var]
    )


def built(**part: Any) -> Network:
    return build_network(small(**part), vocabulary_of(TOKENS), seed=3).double()


def batch_of(*shape: int, seed: int = 0) -> Batch:
    ids = torch.randint(5, TOKENS, shape, generator=torch.Generator().manual_seed(seed))
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool))


def copy_cell(cell: nn.LSTMCell, layer: Any) -> nn.LSTMCell:
    with torch.no_grad():
        cell.weight_ih.copy_(layer.input.weight)
        cell.weight_hh.copy_(layer.recurrent.weight)
        cell.bias_ih.copy_(layer.input.bias)
        cell.bias_hh.zero_()
    return cell


def torch_encoder(encoder: BidirectionalLstm) -> nn.LSTM:
    """PyTorch's bidirectional LSTM of two layers with the same weights."""
    peer = nn.LSTM(INPUTS, WIDTH // 2, 2, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for number, pair in enumerate(encoder.layers):
            for layer, suffix in zip(pair, ("", "_reverse"), strict=True):  # type: ignore[arg-type]
                getattr(peer, f"weight_ih_l{number}{suffix}").copy_(layer.input.weight)
                getattr(peer, f"weight_hh_l{number}{suffix}").copy_(layer.recurrent.weight)
                getattr(peer, f"bias_ih_l{number}{suffix}").copy_(layer.input.bias)
                getattr(peer, f"bias_hh_l{number}{suffix}").zero_()
    return peer


def test_the_encoder_is_pytorchs_bidirectional_lstm() -> None:
    network, batch = built(), batch_of(3, 7)
    encoder = network.encoders[0]
    assert isinstance(encoder, BidirectionalLstm)
    peer, inputs = torch_encoder(encoder), network.embedding(batch.ids).detach().requires_grad_()
    expected, _ = peer(inputs)
    found, _ = encoder(inputs, AttentionMask("bidirectional", batch.shape))
    assert [one.shape[-1] for one in found] == [INPUTS, WIDTH, WIDTH]
    torch.testing.assert_close(found[-1], expected)
    gradients = [torch.autograd.grad(one.square().sum(), inputs, retain_graph=True)[0] for one in (found[-1], expected)]
    torch.testing.assert_close(*gradients)


def test_packed_sequences_are_read_apart() -> None:
    network, batch = built(), batch_of(1, 9)
    batch.sequence_ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1, -1]])
    together = network(batch).last_hidden_state
    for part in (slice(0, 4), slice(4, 7)):
        alone = network(Batch(batch.ids[:, part], batch.word_starts[:, part])).last_hidden_state
        torch.testing.assert_close(together[part], alone)


def by_hand(decoder: AttentiveLstm, inputs: Tensor, states: Tensor) -> Tensor:
    """One row, with PyTorch's cells: (length, width)."""
    cells = [
        copy_cell(nn.LSTMCell(layer.input.in_features, WIDTH).double(), layer)  # type: ignore[union-attr, arg-type]
        for layer in decoder.layers
    ]
    hidden = [(torch.zeros(1, WIDTH).double(), torch.zeros(1, WIDTH).double()) for _ in cells]
    fed, made = torch.zeros(1, WIDTH).double(), []
    for x in inputs:
        y = torch.cat([x[None], fed], 1)
        for number, cell in enumerate(cells):
            hidden[number] = cell(y, hidden[number])
            y = hidden[number][0]
        scores = states @ (decoder.query.weight @ y[0] + decoder.query.bias)
        weights = (scores - scores.max()).exp()
        weights = weights / weights.sum()
        context = sum(weight * state for weight, state in zip(weights, states, strict=True))
        both = torch.cat([torch.as_tensor(context), y[0]])
        fed = torch.tanh(decoder.combine.weight @ both + decoder.combine.bias)[None]
        made.append(fed[0])
    return torch.stack(made)


def test_the_decoder_is_luongs_by_hand() -> None:
    """Outputs, and gradients to the inputs and to the encoder states."""
    network = built()
    decoder = network.decoder
    assert isinstance(decoder, AttentiveLstm)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2, 6, INPUTS, generator=generator, dtype=torch.float64).requires_grad_()
    states = torch.randn(2, 4, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    is_token = torch.tensor([[True] * 4, [True, True, True, False]])
    mask = AttentionMask("causal", (2, 6), encoder_states=make_encoder_states(states, is_token))
    _, found = decoder(inputs, mask)
    expected = torch.cat([by_hand(decoder, inputs[0], states[0]), by_hand(decoder, inputs[1], states[1, :3])])
    torch.testing.assert_close(found, expected)
    for one in (inputs, states):
        gradients = [torch.autograd.grad(each.square().sum(), one, retain_graph=True)[0] for each in (found, expected)]
        torch.testing.assert_close(*gradients)


def test_packed_targets_attend_to_their_own_sources() -> None:
    network = built()
    batch, source = batch_of(1, 7), batch_of(1, 6, seed=4)
    batch.sequence_ids, source.sequence_ids = torch.tensor([[0] * 3 + [1] * 4]), torch.tensor([[0] * 4 + [1] * 2])
    batch.source = source
    together = network(batch).last_hidden_state
    for target, own in ((slice(0, 3), slice(0, 4)), (slice(3, 7), slice(4, 6))):
        alone = Batch(batch.ids[:, target], batch.word_starts[:, target])
        alone.source = Batch(source.ids[:, own], source.word_starts[:, own])
        torch.testing.assert_close(together[target], network(alone).last_hidden_state)


def test_decoding_with_beams_equals_the_whole_pass() -> None:
    """Several rows of each source, in any order, after one source has ended."""
    network, batch, source = built(), batch_of(3, 5), batch_of(3, 6, seed=4)
    is_token = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [True] * 5 + [False]])
    source.sequence_ids = is_token.long() - 1
    batch.source = source
    with torch.inference_mode():
        whole = network(batch).last_hidden_state.view(3, 5, -1)
        states = network(source).last_hidden_state.view(3, 6, -1)
        first, cache = network.decode_step(batch.ids[:, :2], encoder_states=make_encoder_states(states, is_token))
        torch.testing.assert_close(first, whole[:, :2])
        for rows in ([0, 0, 1, 1, 2, 2], [0, 1, 2], [2, 2, 1], [1, 2]):
            chosen = torch.tensor(rows)
            found, _ = network.decode_step(batch.ids[chosen, 2:], cache.select_rows(chosen))
            torch.testing.assert_close(found, whole[chosen, 2:])
        kept = cache.select_rows(torch.tensor([1, 1, 2, 2])).select_rows(torch.tensor([0, 2, 3]))
        found, _ = network.decode_step(batch.ids[[1, 2, 2], 2:], kept)
        torch.testing.assert_close(found, whole[[1, 2, 2], 2:])


def test_dropout_is_of_training_alone_and_drawn_again() -> None:
    network, batch = built(dropout=0.5), batch_of(2, 5)
    batch.source = batch_of(2, 6, seed=4)
    plain = [network(batch).last_hidden_state for _ in range(2)]
    assert torch.equal(*plain)
    dropped = [network(batch, None, DropoutRng(0, step)).last_hidden_state for step in (1, 1, 2)]
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])
    assert 0.3 < float((dropped[0] == 0).double().mean()) < 0.7


def test_parts_that_do_not_go_together() -> None:
    base = small()
    assert base.decoder is not None
    with pytest.raises(RecipeError, match="bidirectional"):
        replace(base, visibility="forward+backward")
    with pytest.raises(RecipeError, match="Transformers, or an lstm and a bilstm"):
        replace(base, decoder=replace(base.decoder, kind="rnn"))
    with pytest.raises(RecipeError, match="one width"):
        replace(base, decoder=replace(base.decoder, inner_width=4))
    with pytest.raises(RecipeError, match="even"):
        replace(base.encoder, width=7)
    with pytest.raises(AbilityError, match="whole text"):
        built().encoders[0].decode_step(torch.zeros(1, 1, INPUTS), [])  # type: ignore[operator]
