"""Linear layers against those of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as f
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from firth.nets import linear as home
from firth.nets.linear import Linear, linear, product


@pytest.fixture(params=[True, False])
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the faster library where there is one, and without."""
    monkeypatch.setattr(home, "_HAS_ONEDNN", home._HAS_ONEDNN and request.param)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (1, 6), (0, 6), (32, 6), (3, 11, 6)])
@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, ...], biased: bool) -> None:
    outcomes = []
    for function in (linear, f.linear):
        x, weight = numbers(*shape).requires_grad_(), numbers(4, 6).requires_grad_()
        bias = numbers(4).requires_grad_() if biased else None
        y = function(x, weight, bias)
        y.sin().sum().backward()
        outcomes.append([y.detach(), x.grad, weight.grad, *([] if bias is None else [bias.grad])])
    for ours, theirs in zip(*outcomes, strict=True):
        assert ours is not None
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_library")
def test_slices_of_weights_get_their_part_of_the_gradient() -> None:
    """As in query attention: queries by the first rows, keys and values by the rest."""
    x, weight = numbers(5, 4).requires_grad_(), numbers(12, 4).requires_grad_()
    (linear(x, weight[:4], None).sum() + 2 * linear(x, weight[4:], None).sum()).backward()
    assert weight.grad is not None
    expected = x.detach().sum(0).expand(12, 4) * torch.tensor([1.0] * 4 + [2.0] * 8)[:, None]
    torch.testing.assert_close(weight.grad, expected)


@pytest.mark.usefixtures("_library")
def test_products_without_gradients() -> None:
    x, weight, bias = numbers(7, 3), numbers(5, 3), numbers(5)
    torch.testing.assert_close(product(x, weight, bias), f.linear(x, weight, bias))
    torch.testing.assert_close(product(numbers(7, 5), weight.t()), numbers(7, 5) @ weight)
    double = x.double(), weight.double()
    assert torch.equal(product(*double), f.linear(*double))


@pytest.mark.skipif(not home._HAS_ONEDNN, reason="this build of PyTorch has no oneDNN")
def test_products_have_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in multiples of 16, whatever their number: oneDNN compiles code for each."""
    shapes = []
    multiply = torch.ops.mkldnn._linear_pointwise

    def record(x: Tensor, *rest: Any) -> Tensor:
        shapes.append(x.shape[:-1].numel())
        return multiply(x, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", record)
    weight = numbers(5, 3)
    for rows in (1, 15, 16, 17, 40):
        torch.testing.assert_close(product(numbers(rows, 3), weight), numbers(rows, 3) @ weight.t())
    assert shapes == [16, 16, 16, 32, 48]


def test_gradients_are_finite_differences() -> None:
    x, weight, bias = (numbers(*shape).double().requires_grad_() for shape in ((3, 4), (2, 4), (2,)))
    assert torch.autograd.gradcheck(lambda *all_three: home._Linear.apply(*all_three), (x, weight, bias))  # type: ignore[no-untyped-call]


def test_a_layer_is_one_of_torch_with_the_same_names() -> None:
    layer = Linear(3, 2)
    assert isinstance(layer, nn.Linear)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    x = numbers(4, 3)
    torch.testing.assert_close(layer(x), f.linear(x, layer.weight, layer.bias))


@pytest.mark.usefixtures("_library")
def test_operations_are_counted() -> None:
    layer = Linear(3, 2)
    with FlopCounterMode(display=False) as counter:
        y = layer(numbers(4, 8, 3))
    assert counter.get_total_flops() == 2 * 4 * 8 * 3 * 2
    assert y.requires_grad
