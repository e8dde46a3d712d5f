"""Recurrent encoders against PyTorch with the same weights, and against loops over steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from firth.nets.dropout import DropoutRng
from firth.nets.encoders import _gru_kernels, _lstm_kernels, rnn_kernels
from firth.nets.encoders.recurrent import GruLayer, LstmLayer, Recurrent, SimpleLayer, find_resets
from firth.nets.network import make_encoder
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe
from firth.nets.visibility import AttentionMask

SEQUENCE_IDS = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 1, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0, 0]])
CASES: list[tuple[str, dict[str, Any]]] = [
    ("rnn", {}),
    ("rnn", {"layers": 2, "residual": True}),
    ("gru", {}),
    ("gru", {"layers": 2, "residual": True}),
    ("lstm", {}),
    ("lstm", {"layers": 3, "residual": True}),
    ("lstm", {"layers": 2, "ffn_width": 8, "residual": True}),
]


def made(kind: str, *, inputs: int = 4, **encoder: Any) -> Recurrent:
    settings = {"layers": 1, "width": 5, "ffn_width": 0, "heads": 1, "dropout": 0.0, **encoder}
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=inputs),
        encoder=EncoderRecipe(kind=kind, **settings),  # type: ignore[arg-type]
    )
    torch.manual_seed(0)
    built = make_encoder(recipe)
    assert isinstance(built, Recurrent)
    return built


def random_tensor(*shape: int, seed: int = 1, kind: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(kind)


def peer_of(encoder: Recurrent, inputs: int) -> nn.RNNBase:
    """PyTorch's network with the same weights."""
    first = encoder.layers[0]
    assert isinstance(first, SimpleLayer)
    projected = isinstance(first, LstmLayer) and first.project is not None
    if isinstance(first, LstmLayer):
        size = {"proj_size": first.width} if projected else {}
        peer: nn.RNNBase = nn.LSTM(inputs, first.cells, len(encoder.layers), batch_first=True, **size)
    elif isinstance(first, GruLayer):
        peer = nn.GRU(inputs, first.cells, len(encoder.layers), batch_first=True)
    else:
        peer = nn.RNN(inputs, first.cells, len(encoder.layers), batch_first=True)
    with torch.no_grad():
        for number, layer in enumerate(encoder.layers):
            getattr(peer, f"weight_ih_l{number}").copy_(layer.input.weight)
            getattr(peer, f"bias_ih_l{number}").copy_(layer.input.bias)
            getattr(peer, f"weight_hh_l{number}").copy_(layer.recurrent.weight)
            getattr(peer, f"bias_hh_l{number}").zero_()
            if projected:
                getattr(peer, f"weight_hr_l{number}").copy_(layer.project.weight)
    return peer


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("settings", [("rnn", 2, 0), ("gru", 2, 0), ("lstm", 2, 0), ("lstm", 2, 8)])
def test_equal_to_pytorch_with_gradients(
    settings: tuple[str, int, int], own: bool, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, layers, cells = settings
    encoder = made(name, layers=layers, ffn_width=cells).to(kind)
    peer = peer_of(encoder, 4).to(kind)
    if own:  # no sequence begins anywhere, but our own loop is used
        monkeypatch.setattr(
            "firth.nets.encoders.recurrent.find_resets",
            lambda sequence_ids, is_backward: torch.zeros(7, 3, dtype=torch.bool),
        )
    x = random_tensor(3, 7, 4, kind=kind).requires_grad_()
    y = x.detach().clone().requires_grad_()
    _, ours = encoder(x, AttentionMask("causal", (3, 7)))
    theirs, _ = peer(y)
    close = {"rtol": 1e-5, "atol": 2e-6} if kind == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(ours.view_as(theirs), theirs, **close)
    weights = random_tensor(*theirs.shape, seed=2, kind=kind)
    (ours.view_as(theirs) * weights).sum().backward()
    (theirs * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, **close)
    for number, layer in enumerate(encoder.layers):
        names = {"input.weight": "weight_ih", "input.bias": "bias_ih", "recurrent.weight": "weight_hh"}
        names |= {"project.weight": "weight_hr"} if cells else {}
        for one, other in names.items():
            expected = getattr(peer, f"{other}_l{number}").grad
            torch.testing.assert_close(layer.get_parameter(one).grad, expected, **close)


@pytest.mark.parametrize("cells", [0, 8])
def test_lstm_is_the_formula_step_by_step(cells: int) -> None:
    encoder = made("lstm", ffn_width=cells).double()
    layer, x = encoder.layers[0], random_tensor(1, 7, 4)
    assert isinstance(layer, LstmLayer)
    _, last = encoder(x, AttentionMask("causal", (1, 7)))
    h, c = torch.zeros(5, dtype=torch.float64), torch.zeros(cells or 5, dtype=torch.float64)
    for step in range(7):
        i, f, g, o = (layer.input.weight @ x[0, step] + layer.input.bias + layer.recurrent.weight @ h).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h = h if layer.project is None else layer.project.weight @ h
        torch.testing.assert_close(last[step], h)


def test_gru_is_the_formula_step_by_step() -> None:
    encoder = made("gru").double()
    layer, x = encoder.layers[0], random_tensor(1, 7, 4)
    _, last = encoder(x, AttentionMask("causal", (1, 7)))
    h = torch.zeros(5, dtype=torch.float64)
    for step in range(7):
        r, z, n = (layer.input.weight @ x[0, step] + layer.input.bias).chunk(3)
        u_r, u_z, u_n = (layer.recurrent.weight @ h).chunk(3)
        update = (z + u_z).sigmoid()
        h = (1 - update) * (n + (r + u_r).sigmoid() * u_n).tanh() + update * h
        torch.testing.assert_close(last[step], h)


def test_residual_connections_start_at_the_second_layer() -> None:
    encoder, plain = made("lstm", layers=2, residual=True), made("lstm", layers=2)
    x = random_tensor(3, 7, 4, kind=torch.float32)
    skipped, _ = encoder(x, AttentionMask("causal", (3, 7)))
    states, _ = plain(x, AttentionMask("causal", (3, 7)))
    torch.testing.assert_close(skipped[1], states[1])
    torch.testing.assert_close(skipped[2], states[2] + states[1])


@pytest.mark.parametrize("sequence_ids", [None, SEQUENCE_IDS])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_gradients_by_finite_differences(kind: str, settings: dict[str, Any], sequence_ids: Tensor | None) -> None:
    encoder = made(kind, weight_drop=0.3, variational_dropout=True, **{**settings, "dropout": 0.2}).double()

    def states(x: Tensor, *_: Tensor) -> Tensor:
        return encoder(
            x, AttentionMask("causal", (3, 7), sequence_ids, rng=DropoutRng(0, 1)), torch.tensor([0, 4, 9, 12, 18])
        )[1]

    assert torch.autograd.gradcheck(
        states, (random_tensor(3, 7, 4).requires_grad_(), *encoder.parameters()), fast_mode=True
    )


def test_kernels_equal_their_twins() -> None:
    gates, before, states = (random_tensor(3, width, kind=torch.float32, seed=width) * 3 for width in (44, 11, 12))
    opened = [gates.clone(), gates.clone()]
    new = [torch.empty(2, 3, 11) for _ in opened]  # cells and outputs
    rnn_kernels._kernel_forward(opened[0], before, new[0][0], new[0][1])
    rnn_kernels.torch_forward(opened[1], before, new[1][0], new[1][1])
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(opened[0], opened[1], **close)
    torch.testing.assert_close(new[0], new[1], **close)
    out = states[:, :11].contiguous()
    flows, cells = [before.clone(), before.clone()], [torch.empty(3, 44) for _ in opened]
    rnn_kernels._kernel_backward(opened[1], before, new[1][0], out, flows[0], cells[0])
    rnn_kernels.torch_backward(opened[1], before, new[1][0], out, flows[1], cells[1])
    torch.testing.assert_close(cells[0], cells[1], **close)
    torch.testing.assert_close(flows[0], flows[1], **close)


def test_gru_kernels_equal_their_twins() -> None:
    gates, hidden = (random_tensor(3, 33, kind=torch.float32, seed=seed) * 3 for seed in (1, 2))
    before, above = (random_tensor(3, 11, kind=torch.float32, seed=seed) for seed in (3, 4))
    opened, states = [gates.clone(), gates.clone()], [torch.empty(3, 11) for _ in range(2)]
    rnn_kernels._gru_kernel_forward(opened[0], hidden, before, states[0])
    rnn_kernels.torch_gru_forward(opened[1], hidden, before, states[1])
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(opened[0], opened[1], **close)
    torch.testing.assert_close(states[0], states[1], **close)
    flows, made = [above.clone(), above.clone()], [torch.empty(2, 3, 33) for _ in range(2)]
    candidate = hidden[:, 22:].contiguous()
    rnn_kernels._gru_kernel_backward(opened[1], candidate, before, flows[0], made[0][0], made[0][1])
    rnn_kernels.torch_gru_backward(opened[1], candidate, before, flows[1], made[1][0], made[1][1])
    torch.testing.assert_close(made[0], made[1], **close)
    torch.testing.assert_close(flows[0], flows[1], **close)


@pytest.mark.parametrize(("kind", "kernels"), [("lstm", _lstm_kernels), ("gru", _gru_kernels)])
def test_kernels_are_given_contiguous_arrays(kind: str, kernels: Any) -> None:
    """Other layouts would be compiled again, without vector instructions."""
    encoder = made(kind, layers=2)
    x = random_tensor(3, 7, 4, kind=torch.float32).requires_grad_()
    _, last = encoder(x, AttentionMask("causal", (3, 7), SEQUENCE_IDS))
    (last * random_tensor(21, 5, kind=torch.float32)).sum().backward()
    for kernel in (kernels.forward, kernels.backward):
        layouts = {array.layout for signature in kernel.signatures for array in signature}
        assert layouts == {"C"}


def test_kernels_propagate_nan() -> None:
    """NaN must reach the loss; gates saturate at 0 and 1."""
    gates = torch.tensor([[torch.nan, 0.0, 100.0, -100.0]])
    before, new, out = torch.ones(1, 1), torch.empty(1, 1), torch.empty(1, 1)
    rnn_kernels._kernel_forward(gates, before, new, out)
    assert gates[0, 1:].tolist() == pytest.approx([0.5, 1.0, 0.0], abs=1e-6)
    assert new.isnan().all()
    assert out.isnan().all()


@pytest.mark.parametrize("name", ["causal", "anticausal"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_sequences_are_independent_and_backward_is_reversed(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x = made(kind, **settings), random_tensor(3, 7, 4, kind=torch.float32)
    layers, last = encoder(x, AttentionMask(name, (3, 7), SEQUENCE_IDS))
    for row in range(3):
        for sequence in SEQUENCE_IDS[row].unique().tolist():
            where = (SEQUENCE_IDS[row] == sequence).nonzero()[:, 0]
            order = where.flip(0) if name == "anticausal" else where
            _, alone = encoder(x[row, order][None], AttentionMask("causal", (1, len(order))))
            if sequence >= 0:
                torch.testing.assert_close(last.view(3, 7, 5)[row, order], alone, rtol=1e-5, atol=1e-6)
    assert len(layers) == len(encoder.layers) + 1
    torch.testing.assert_close(layers[-1].flatten(0, 1), last)


def test_trailing_padding_is_no_sequence() -> None:
    sequence_ids = torch.tensor([[0, 0, 0, -1], [0, 0, 0, 0]])
    assert find_resets(sequence_ids, False) is None
    resets = find_resets(sequence_ids, True)
    assert resets is not None
    assert resets.int().tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_states_do_not_depend_on_the_future(kind: str, settings: dict[str, Any]) -> None:
    encoder, x = made(kind, **settings), random_tensor(3, 7, 4, kind=torch.float32)
    other = x.clone()
    other[:, 4] += 1
    for name, changed in (("causal", range(4, 7)), ("anticausal", range(5))):
        _, one = encoder(x, AttentionMask(name, (3, 7)))
        _, two = encoder(other, AttentionMask(name, (3, 7)))
        seen = (one != two).view(3, 7, 5).any(-1)
        assert seen[0].nonzero()[:, 0].tolist() == list(changed)


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_decoding_equals_encoding_also_for_selected_rows(kind: str, settings: dict[str, Any]) -> None:
    encoder, x = made(kind, **settings), random_tensor(3, 7, 4, kind=torch.float32)
    with torch.no_grad():
        _, whole = encoder(x, AttentionMask("causal", (3, 7)))
        one, cache = encoder.decode_step(x[:, :3], [])
        assert all(tensor.shape[0] == 3 for tensor in cache)
        rows = torch.tensor([2, 2, 0])
        two, cache = encoder.decode_step(x[rows, 3:4], [tensor.index_select(0, rows) for tensor in cache])
        three, _ = encoder.decode_step(x[rows, 4:], cache)
    whole = whole.view(3, 7, 5)
    torch.testing.assert_close(one, whole[:, :3], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.cat([two, three], 1), whole[rows, 3:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_some_positions_equal_those_of_all(kind: str, settings: dict[str, Any]) -> None:
    encoder, x, positions = (
        made(kind, **settings),
        random_tensor(3, 7, 4, kind=torch.float32),
        torch.tensor([0, 5, 6, 11]),
    )
    _, every = encoder(x, AttentionMask("causal", (3, 7), SEQUENCE_IDS))
    _, some = encoder(x, AttentionMask("causal", (3, 7), SEQUENCE_IDS), positions)
    assert torch.equal(some, every[positions])


@pytest.mark.parametrize(("kind", "settings"), [case for case in CASES if case[0] == "rnn" or "ffn_width" in case[1]])
def test_flops_are_those_of_the_counter(kind: str, settings: dict[str, Any]) -> None:
    encoder = made(kind, **settings)
    with FlopCounterMode(display=False) as counter:
        encoder(random_tensor(3, 7, 4, kind=torch.float32), AttentionMask("causal", (3, 7)))
    assert counter.get_total_flops() == 21 * encoder.flops(7)


def test_flops_of_lstm_by_hand() -> None:
    """Two layers of 4 gates of 5 cells: 4 inputs and 5 states, then 5 and 5; a product and a sum for each."""
    assert made("lstm", layers=2).flops(7) == 2 * 4 * 5 * ((4 + 5) + (5 + 5))


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_dropout_has_its_rate_and_depends_on_the_rng_alone(kind: str) -> None:
    encoder, x = made(kind, dropout=0.25), random_tensor(20, 100, 4, kind=torch.float32)
    _, plain = encoder(x, AttentionMask("causal", (20, 100)))
    seen = [encoder(x, AttentionMask("causal", (20, 100), rng=DropoutRng(1, step)))[1] for step in (5, 5, 6)]
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    kept = seen[0] != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.015)
    torch.testing.assert_close(seen[0][kept], plain[kept] / 0.75)
    assert (kept.view(20, 100, 5).float().std(1) > 0).all()


def test_variational_dropout_is_the_same_at_all_steps_of_a_row() -> None:
    encoder = made("lstm", dropout=0.5, variational_dropout=True, layers=2, width=16)
    x = random_tensor(20, 10, 4, kind=torch.float32)
    layers, last = encoder(x, AttentionMask("causal", (20, 10), rng=DropoutRng(1, 5)))
    masks = []
    for states in (layers[1], last.view(20, 10, 16)):
        kept = states != 0
        assert torch.equal(kept, kept[:, :1].expand_as(kept))
        assert float(kept.float().mean()) == pytest.approx(0.5, abs=0.1)
        masks.append(kept[:, 0])
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0][0], masks[0][1])


def test_weight_drop_leaves_out_recurrent_weights_only() -> None:
    encoder, x = made("lstm", weight_drop=0.5), random_tensor(3, 7, 4, kind=torch.float32)
    mask = AttentionMask("causal", (3, 7), rng=DropoutRng(0, 3))
    last = encoder(x, mask)[1].view(3, 7, 5)
    weight = encoder.layers[0].recurrent.weight  # type: ignore[union-attr]
    whole = weight.detach().clone()
    torch.testing.assert_close(last[:, 0], encoder(x, AttentionMask("causal", (3, 7)))[1].view(3, 7, 5)[:, 0])
    with torch.no_grad():
        weight.copy_(DropoutRng(0, 3).drop(whole, 0.5))  # type: ignore[operator]
        assert 0.3 < float((weight == 0).float().mean()) < 0.7  # type: ignore[union-attr, operator]
        _, expected = encoder(x, AttentionMask("causal", (3, 7)))
    torch.testing.assert_close(last.flatten(0, 1), expected)


def test_training_twice_gives_the_same_bits() -> None:
    found = []
    for _ in range(2):
        encoder = made("lstm", layers=2, dropout=0.3, width=16)
        x = random_tensor(8, 20, 4, kind=torch.float32)
        encoder(x, AttentionMask("causal", (8, 20), rng=DropoutRng(0, 0)))[1].square().sum().backward()
        found.append([parameter.grad for parameter in encoder.parameters()])
    assert all(one is not None and torch.equal(one, two) for one, two in zip(*found, strict=True))  # type: ignore[arg-type]
