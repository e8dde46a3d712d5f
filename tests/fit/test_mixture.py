"""Weighted mixtures of sources of batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.fit.batches import Cursor
from firth.fit.mixture import ROUND, MixtureSource, make_quotas, power_weights
from firth.nets.batch import Batch


class NumberedSource:
    """A source whose batches tell its number, the epoch and the row; epochs differ in length."""

    split, rows = 0, 4

    def __init__(self, number: int, steps: int) -> None:
        self.number, self._steps = number, steps

    @property
    def tokens(self) -> int:
        return self._steps

    def steps(self, epoch: int = 0) -> int:
        return self._steps + epoch % 2

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        assert cursor.row % self.rows == 0
        assert cursor.row // self.rows < self.steps(cursor.epoch)
        ids = torch.tensor([[self.number, cursor.epoch, cursor.row // self.rows, length or 0]])
        return [Batch(ids, ids >= 0, tokens=1)], Cursor()

    def fixed(self, tokens: int) -> list[Batch]:
        return self.step(Cursor())[0]


def mixture(seed: int = 0) -> MixtureSource:
    sources = [NumberedSource(0, 70), NumberedSource(1, 20), NumberedSource(2, 3)]
    return MixtureSource(sources, power_weights([70, 20, 3], 0.7), seed)


def steps(source: MixtureSource, count: int) -> list[list[int]]:
    found, cursor = [], Cursor()
    for _ in range(count):
        (batch,), cursor = source.step(cursor)
        found.append(batch.ids[0].tolist())
    return found


def test_weights_are_powers_of_sizes() -> None:
    """0.8^0.7 = 0.85538, 0.2^0.7 = 0.32413."""
    assert power_weights([8, 2], 0.7) == pytest.approx([0.85538 / 1.17951, 0.32413 / 1.17951], abs=1e-5)
    assert power_weights([8, 2], 0.0) == [0.5, 0.5]
    assert power_weights([8, 2], 1.0) == pytest.approx([0.8, 0.2])


def test_rounds_have_exact_proportions_and_so_nearly_have_their_parts() -> None:
    source = mixture()
    assert source.quotas == make_quotas(power_weights([70, 20, 3], 0.7), ROUND)
    found = np.array([step[0] for step in steps(source, 2 * ROUND)])
    for begin in (0, ROUND):
        assert np.bincount(found[begin : begin + ROUND]).tolist() == source.quotas
    for end in range(1, ROUND):
        expected = np.array(source.quotas) / ROUND * end
        assert np.abs(np.bincount(found[:end], minlength=3) - expected).max() < 2


def test_every_source_is_read_in_its_own_order() -> None:
    found = steps(mixture(), 2 * ROUND)
    for number, length in enumerate((70, 20, 3)):
        own = [(epoch, row) for one, epoch, row, _ in found if one == number]
        expected = [(epoch, row) for epoch in range(len(own)) for row in range(length + epoch % 2)]
        assert own == expected[: len(own)]


def test_any_step_can_be_made_without_those_before() -> None:
    found = steps(mixture(), ROUND + 50)
    for number in (0, 1, 17, 999, 1000, 1049):
        (batch,), after = mixture().step(Cursor(*divmod(number, ROUND)))
        assert batch.ids[0].tolist() == found[number]
        assert after == Cursor(*divmod(number + 1, ROUND))


def test_the_order_depends_on_the_seed() -> None:
    assert steps(mixture(1), 100) == steps(mixture(1), 100) != steps(mixture(2), 100)


def test_the_length_is_passed_on_and_validation_has_every_source() -> None:
    source = mixture()
    assert source.step(Cursor(), 16)[0][0].ids[0, 3] == 16
    assert [int(batch.ids[0, 0]) for batch in source.fixed(10)] == [0, 1, 2]
    assert source.tokens == 93


@pytest.mark.parametrize("weights", [[1.0], [1, 1], [1e-9, 1, 1e9], list(range(1, 30))])
def test_quotas_are_all_steps_and_at_least_one_each(weights: list[float]) -> None:
    quotas = make_quotas(weights, 100)
    assert sum(quotas) == 100
    assert min(quotas) >= 1
