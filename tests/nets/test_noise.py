"""Dropout: how much is kept, that the mean stays, and that nothing but seed and step decides."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from firth.nets.noise import Noise, add_dropped, drop

RATES = (0.001, 0.1, 0.25, 0.5, 0.9, 0.9999)


def rounded(rate: float) -> float:
    return min(max(1, round(256 * rate)), 255) / 256


@pytest.mark.parametrize("rate", RATES)
def test_as_much_is_dropped_as_the_rate_says(rate: float) -> None:
    count, expected = 1 << 20, rounded(rate)
    kept, factor = Noise(0, 1).keep((1024, 1024), rate)
    spread = math.sqrt(count * expected * (1 - expected))
    assert abs(count - int(kept.sum()) - count * expected) < 4 * spread
    assert factor * (1 - expected) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("rate", RATES)
def test_masks_are_what_is_kept_with_its_factor(rate: float) -> None:
    kept, factor = Noise(3, 4, 5).keep((33, 7), rate)
    assert torch.equal(Noise(3, 4, 5).mask((33, 7), rate), kept * torch.tensor(factor))


def test_nothing_is_dropped_at_rate_nought() -> None:
    values = torch.randn(5, 5)
    assert Noise(0, 0).drop(values, 0.0) is values
    assert drop(values, 0.5, None) is values
    assert bool(Noise(0, 0).keep((100,), 0.0)[0].all())
    assert torch.equal(add_dropped(values, values, 0.5, None), 2 * values)
    assert torch.equal(add_dropped(values, values, 0.0, Noise(0, 0)), 2 * values)


def test_seed_step_and_part_decide_and_nothing_else() -> None:
    drawn = {key: Noise(*key).mask((64, 64), 0.5) for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))}
    assert all(torch.equal(Noise(*key).mask((64, 64), 0.5), mask) for key, mask in drawn.items())
    masks = list(drawn.values())
    assert not any(torch.equal(masks[i], masks[j]) for i in range(4) for j in range(i))


def test_what_is_asked_for_later_is_something_else() -> None:
    noise = Noise(0, 0)
    assert not torch.equal(noise.mask((64, 64), 0.5), noise.mask((64, 64), 0.5))


def test_places_are_dropped_independently() -> None:
    """Neither within the bytes of one number of the generator nor between neighbours is there a pattern."""
    kept = Noise(0, 2).keep((1 << 17, 8), 0.25)[0].double().numpy()
    correlations = np.corrcoef(kept.T) - np.eye(8)
    assert np.abs(correlations).max() < 5 / math.sqrt(len(kept))
    assert abs(np.corrcoef(kept[:-1, 0], kept[1:, 0])[0, 1]) < 5 / math.sqrt(len(kept))


def test_adding_is_dropping_and_adding() -> None:
    values, more = torch.randn(9, 3), torch.randn(9, 3)
    expected = values + Noise(0, 1).drop(more, 0.4)
    torch.testing.assert_close(add_dropped(values, more, 0.4, Noise(0, 1)), expected)


def test_gradients_are_finite_differences() -> None:
    values, more = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: add_dropped(a, b, 0.5, Noise(0, 1)), (values, more))
    assert torch.autograd.gradcheck(lambda a: drop(a, 0.5, Noise(0, 1)), (values,))


def test_shapes_that_do_not_fill_a_number_of_the_generator() -> None:
    for shape in ((1,), (7,), (3, 3), (0,), (2, 0, 4)):
        assert Noise(0, 0).mask(shape, 0.5).shape == shape
