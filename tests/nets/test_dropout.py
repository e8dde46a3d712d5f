"""Dropout: its rate and mean, and its dependence on seed and step alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from firth.nets.dropout import DropoutRng, add_with_dropout, drop

RATES = (0.001, 0.1, 0.25, 0.5, 0.9, 0.9999)


def rounded(rate: float) -> float:
    return min(max(1, round(256 * rate)), 255) / 256


@pytest.mark.parametrize("rate", RATES)
def test_the_dropped_fraction_is_the_rate(rate: float) -> None:
    count, expected = 1 << 20, rounded(rate)
    mask = DropoutRng(0, 1).mask((1024, 1024), rate, torch.float64)
    deviation = math.sqrt(count * expected * (1 - expected))
    assert abs(int((mask == 0).sum()) - count * expected) < 4 * deviation
    assert (mask[mask != 0] * (1 - expected)).numpy() == pytest.approx(1, abs=1e-12)


def test_nothing_is_dropped_at_rate_zero() -> None:
    values = torch.randn(5, 5)
    assert DropoutRng(0, 0).drop(values, 0.0) is values
    assert drop(values, 0.5, None) is values
    assert bool((DropoutRng(0, 0).mask((100,), 0.0) == 1).all())
    assert torch.equal(add_with_dropout(values, values, 0.5, None), 2 * values)
    assert torch.equal(add_with_dropout(values, values, 0.0, DropoutRng(0, 0)), 2 * values)


def test_seed_step_and_part_decide_and_nothing_else() -> None:
    drawn = {key: DropoutRng(*key).mask((64, 64), 0.5) for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))}
    assert all(torch.equal(DropoutRng(*key).mask((64, 64), 0.5), mask) for key, mask in drawn.items())
    masks = list(drawn.values())
    assert not any(torch.equal(masks[i], masks[j]) for i in range(4) for j in range(i))


def test_later_draws_differ() -> None:
    rng = DropoutRng(0, 0)
    assert not torch.equal(rng.mask((64, 64), 0.5), rng.mask((64, 64), 0.5))


def test_elements_are_dropped_independently() -> None:
    """Neither the bytes of one number of the generator nor consecutive numbers are correlated."""
    kept = (DropoutRng(0, 2).mask((1 << 17, 8), 0.25) != 0).double().numpy()
    correlations = np.corrcoef(kept.T) - np.eye(8)
    assert np.abs(correlations).max() < 5 / math.sqrt(len(kept))
    assert abs(np.corrcoef(kept[:-1, 0], kept[1:, 0])[0, 1]) < 5 / math.sqrt(len(kept))


def test_adding_is_dropping_and_adding() -> None:
    values, more = torch.randn(9, 3), torch.randn(9, 3)
    expected = values + DropoutRng(0, 1).drop(more, 0.4)
    torch.testing.assert_close(add_with_dropout(values, more, 0.4, DropoutRng(0, 1)), expected)


def test_gradients_are_finite_differences() -> None:
    values, more = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: add_with_dropout(a, b, 0.5, DropoutRng(0, 1)), (values, more))
    assert torch.autograd.gradcheck(lambda a: drop(a, 0.5, DropoutRng(0, 1)), (values,))


def test_shapes_that_do_not_fill_a_number_of_the_generator() -> None:
    for shape in ((1,), (7,), (3, 3), (0,), (2, 0, 4)):
        assert DropoutRng(0, 0).mask(shape, 0.5).shape == shape
