"""Recurrent encoders, against PyTorch's cells with the same weights and loops over single steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from firth.nets.encoders import _cells_kernels, cells
from firth.nets.encoders.encoder import make_encoder
from firth.nets.encoders.recurrent import LstmLayer, Recurrent, SimpleLayer, begins_of
from firth.nets.noise import Noise
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe
from firth.nets.visibility import View

PARTS = torch.tensor([[0, 0, 0, 1, 1, 1, -1], [0, 1, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0, 0]])
CASES: list[tuple[str, dict[str, Any]]] = [
    ("rnn", {}),
    ("rnn", {"layers": 2, "skip": True}),
    ("lstm", {}),
    ("lstm", {"layers": 3, "skip": True}),
    ("lstm", {"layers": 2, "inner": 8, "skip": True}),
]


def made(kind: str, *, inputs: int = 4, **encoder: Any) -> Recurrent:
    settings = {"layers": 1, "width": 5, "inner": 0, "heads": 1, "dropout": 0.0, **encoder}
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=inputs),
        encoder=EncoderRecipe(kind=kind, **settings),  # type: ignore[arg-type]
    )
    torch.manual_seed(0)
    built = make_encoder(recipe)
    assert isinstance(built, Recurrent)
    return built


def numbers(*shape: int, seed: int = 1, kind: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(kind)


def peer_of(encoder: Recurrent, inputs: int) -> nn.RNNBase:
    """PyTorch's network with the same weights."""
    first = encoder.layers[0]
    assert isinstance(first, SimpleLayer)
    projected = isinstance(first, LstmLayer) and first.project is not None
    if isinstance(first, LstmLayer):
        size = {"proj_size": first.width} if projected else {}
        peer: nn.RNNBase = nn.LSTM(inputs, first.cell, len(encoder.layers), batch_first=True, **size)
    else:
        peer = nn.RNN(inputs, first.cell, len(encoder.layers), batch_first=True)
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
@pytest.mark.parametrize("settings", [("rnn", 2, 0), ("lstm", 2, 0), ("lstm", 2, 8)])
def test_equal_to_pytorch_with_gradients(
    settings: tuple[str, int, int], own: bool, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, layers, inner = settings
    encoder = made(name, layers=layers, inner=inner).to(kind)
    peer = peer_of(encoder, 4).to(kind)
    if own:  # no part begins anywhere, but the loop that could handle it is used
        monkeypatch.setattr(
            "firth.nets.encoders.recurrent.begins_of", lambda parts, back: torch.zeros(7, 3, dtype=torch.bool)
        )
    x = numbers(3, 7, 4, kind=kind).requires_grad_()
    y = x.detach().clone().requires_grad_()
    _, ours = encoder(x, View("causal", (3, 7)))
    theirs, _ = peer(y)
    close = {"rtol": 1e-5, "atol": 2e-6} if kind == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(ours.view_as(theirs), theirs, **close)
    weights = numbers(*theirs.shape, seed=2, kind=kind)
    (ours.view_as(theirs) * weights).sum().backward()
    (theirs * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, **close)
    for number, layer in enumerate(encoder.layers):
        names = {"input.weight": "weight_ih", "input.bias": "bias_ih", "recurrent.weight": "weight_hh"}
        names |= {"project.weight": "weight_hr"} if inner else {}
        for one, other in names.items():
            expected = getattr(peer, f"{other}_l{number}").grad
            torch.testing.assert_close(layer.get_parameter(one).grad, expected, **close)


@pytest.mark.parametrize("inner", [0, 8])
def test_lstm_is_the_formula_step_by_step(inner: int) -> None:
    encoder = made("lstm", inner=inner).double()
    layer, x = encoder.layers[0], numbers(1, 7, 4)
    assert isinstance(layer, LstmLayer)
    _, last = encoder(x, View("causal", (1, 7)))
    h, c = torch.zeros(5, dtype=torch.float64), torch.zeros(inner or 5, dtype=torch.float64)
    for step in range(7):
        i, f, g, o = (layer.input.weight @ x[0, step] + layer.input.bias + layer.recurrent.weight @ h).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h = h if layer.project is None else layer.project.weight @ h
        torch.testing.assert_close(last[step], h)


def test_skipping_adds_what_went_in_from_the_second_layer_on() -> None:
    encoder, plain = made("lstm", layers=2, skip=True), made("lstm", layers=2)
    x = numbers(3, 7, 4, kind=torch.float32)
    skipped, _ = encoder(x, View("causal", (3, 7)))
    states, _ = plain(x, View("causal", (3, 7)))
    torch.testing.assert_close(skipped[1], states[1])
    torch.testing.assert_close(skipped[2], states[2] + states[1])


@pytest.mark.parametrize("parts", [None, PARTS])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_gradients_by_finite_differences(kind: str, settings: dict[str, Any], parts: Tensor | None) -> None:
    encoder = made(kind, weight_drop=0.3, variational=True, **{**settings, "dropout": 0.2}).double()

    def states(x: Tensor, *_: Tensor) -> Tensor:
        return encoder(x, View("causal", (3, 7), parts, noise=Noise(0, 1)), torch.tensor([0, 4, 9, 12, 18]))[1]

    assert torch.autograd.gradcheck(states, (numbers(3, 7, 4).requires_grad_(), *encoder.parameters()), fast_mode=True)


def test_kernels_equal_their_twins() -> None:
    gates, before, states = (numbers(3, width, kind=torch.float32, seed=width) * 3 for width in (44, 11, 12))
    opened = [gates.clone(), gates.clone()]
    new = [torch.empty(2, 3, 11) for _ in opened]  # cells, and what they show
    cells._open_gates(opened[0], before, new[0][0], new[0][1])
    cells.open_gates_slowly(opened[1], before, new[1][0], new[1][1])
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(opened[0], opened[1], **close)
    torch.testing.assert_close(new[0], new[1], **close)
    out = states[:, :11].contiguous()
    flows, inner = [before.clone(), before.clone()], [torch.empty(3, 44) for _ in opened]
    cells._close_gates(opened[1], before, new[1][0], out, flows[0], inner[0])
    cells.close_gates_slowly(opened[1], before, new[1][0], out, flows[1], inner[1])
    torch.testing.assert_close(inner[0], inner[1], **close)
    torch.testing.assert_close(flows[0], flows[1], **close)


def test_kernels_are_given_numbers_side_by_side() -> None:
    """Anything else would be compiled again, without vector instructions."""
    encoder = made("lstm", layers=2)
    x = numbers(3, 7, 4, kind=torch.float32).requires_grad_()
    _, last = encoder(x, View("causal", (3, 7), PARTS))
    (last * numbers(21, 5, kind=torch.float32)).sum().backward()
    for kernel in (_cells_kernels.forward, _cells_kernels.backward):
        layouts = {array.layout for signature in kernel.signatures for array in signature}
        assert layouts == {"C"}


def test_kernels_keep_what_is_not_a_number() -> None:
    """So that a loop that stops on it sees it; and what is far out is one or nothing."""
    gates = torch.tensor([[torch.nan, 0.0, 100.0, -100.0]])
    before, new, out = torch.ones(1, 1), torch.empty(1, 1), torch.empty(1, 1)
    cells._open_gates(gates, before, new, out)
    assert gates[0, 1:].tolist() == pytest.approx([0.5, 1.0, 0.0], abs=1e-6)
    assert new.isnan().all()
    assert out.isnan().all()


@pytest.mark.parametrize("name", ["causal", "anticausal"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_parts_are_independent_and_backwards_is_reversed(kind: str, settings: dict[str, Any], name: str) -> None:
    encoder, x = made(kind, **settings), numbers(3, 7, 4, kind=torch.float32)
    layers, last = encoder(x, View(name, (3, 7), PARTS))
    for row in range(3):
        for part in PARTS[row].unique().tolist():
            where = (PARTS[row] == part).nonzero()[:, 0]
            order = where.flip(0) if name == "anticausal" else where
            _, alone = encoder(x[row, order][None], View("causal", (1, len(order))))
            if part >= 0:
                torch.testing.assert_close(last.view(3, 7, 5)[row, order], alone, rtol=1e-5, atol=1e-6)
    assert len(layers) == len(encoder.layers) + 1
    torch.testing.assert_close(layers[-1].flatten(0, 1), last)


def test_trailing_padding_is_no_part() -> None:
    parts = torch.tensor([[0, 0, 0, -1], [0, 0, 0, 0]])
    assert begins_of(parts, False) is None
    begins = begins_of(parts, True)
    assert begins is not None
    assert begins.int().tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_the_future_changes_nothing(kind: str, settings: dict[str, Any]) -> None:
    encoder, x = made(kind, **settings), numbers(3, 7, 4, kind=torch.float32)
    other = x.clone()
    other[:, 4] += 1
    for name, changed in (("causal", range(4, 7)), ("anticausal", range(5))):
        _, one = encoder(x, View(name, (3, 7)))
        _, two = encoder(other, View(name, (3, 7)))
        seen = (one != two).view(3, 7, 5).any(-1)
        assert seen[0].nonzero()[:, 0].tolist() == list(changed)


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_extending_equals_reading_at_once_also_for_picked_rows(kind: str, settings: dict[str, Any]) -> None:
    encoder, x = made(kind, **settings), numbers(3, 7, 4, kind=torch.float32)
    with torch.no_grad():
        _, whole = encoder(x, View("causal", (3, 7)))
        one, memory = encoder.extend(x[:, :3], [])
        assert all(tensor.shape[0] == 3 for tensor in memory)
        rows = torch.tensor([2, 2, 0])
        two, memory = encoder.extend(x[rows, 3:4], [tensor.index_select(0, rows) for tensor in memory])
        three, _ = encoder.extend(x[rows, 4:], memory)
    whole = whole.view(3, 7, 5)
    torch.testing.assert_close(one, whole[:, :3], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.cat([two, three], 1), whole[rows, 3:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_places_equal_those_of_all(kind: str, settings: dict[str, Any]) -> None:
    encoder, x, places = made(kind, **settings), numbers(3, 7, 4, kind=torch.float32), torch.tensor([0, 5, 6, 11])
    _, every = encoder(x, View("causal", (3, 7), PARTS))
    _, some = encoder(x, View("causal", (3, 7), PARTS), places)
    assert torch.equal(some, every[places])


@pytest.mark.parametrize(("kind", "settings"), [case for case in CASES if case[0] == "rnn" or "inner" in case[1]])
def test_work_is_what_the_counter_counts(kind: str, settings: dict[str, Any]) -> None:
    encoder = made(kind, **settings)
    with FlopCounterMode(display=False) as counter:
        encoder(numbers(3, 7, 4, kind=torch.float32), View("causal", (3, 7)))
    assert counter.get_total_flops() == 21 * encoder.work(7)


def test_work_of_lstm_by_hand() -> None:
    """Two layers of 4 gates of 5 cells: 4 inputs and 5 states, then 5 and 5; a product and a sum for each."""
    assert made("lstm", layers=2).work(7) == 2 * 4 * 5 * ((4 + 5) + (5 + 5))


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_dropout_has_its_rate_and_comes_from_the_noise_alone(kind: str) -> None:
    encoder, x = made(kind, dropout=0.25), numbers(20, 100, 4, kind=torch.float32)
    _, plain = encoder(x, View("causal", (20, 100)))
    seen = [encoder(x, View("causal", (20, 100), noise=Noise(1, step)))[1] for step in (5, 5, 6)]
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    kept = seen[0] != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.015)
    torch.testing.assert_close(seen[0][kept], plain[kept] / 0.75)
    assert (kept.view(20, 100, 5).float().std(1) > 0).all()


def test_variational_dropout_is_the_same_at_all_steps_of_a_row() -> None:
    encoder = made("lstm", dropout=0.5, variational=True, layers=2, width=16)
    x = numbers(20, 10, 4, kind=torch.float32)
    layers, last = encoder(x, View("causal", (20, 10), noise=Noise(1, 5)))
    masks = []
    for states in (layers[1], last.view(20, 10, 16)):
        kept = states != 0
        assert torch.equal(kept, kept[:, :1].expand_as(kept))
        assert float(kept.float().mean()) == pytest.approx(0.5, abs=0.1)
        masks.append(kept[:, 0])
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0][0], masks[0][1])


def test_weight_drop_leaves_out_recurrent_weights_only() -> None:
    encoder, x = made("lstm", weight_drop=0.5), numbers(3, 7, 4, kind=torch.float32)
    view = View("causal", (3, 7), noise=Noise(0, 3))
    last = encoder(x, view)[1].view(3, 7, 5)
    weight = encoder.layers[0].recurrent.weight  # type: ignore[union-attr]
    whole = weight.detach().clone()
    torch.testing.assert_close(last[:, 0], encoder(x, View("causal", (3, 7)))[1].view(3, 7, 5)[:, 0])
    with torch.no_grad():
        weight.copy_(Noise(0, 3).drop(whole, 0.5))  # type: ignore[operator]
        assert 0.3 < float((weight == 0).float().mean()) < 0.7  # type: ignore[union-attr, operator]
        _, expected = encoder(x, View("causal", (3, 7)))
    torch.testing.assert_close(last.flatten(0, 1), expected)


def test_learning_twice_gives_the_same_bits() -> None:
    found = []
    for _ in range(2):
        encoder = made("lstm", layers=2, dropout=0.3, width=16)
        x = numbers(8, 20, 4, kind=torch.float32)
        encoder(x, View("causal", (8, 20), noise=Noise(0, 0)))[1].square().sum().backward()
        found.append([parameter.grad for parameter in encoder.parameters()])
    assert all(one is not None and torch.equal(one, two) for one, two in zip(*found, strict=True))  # type: ignore[arg-type]
