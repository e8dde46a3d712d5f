"""One SGD step against NumPy references and against the derivatives of the loss."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _step_kernels as kernels
from firth.vectors import _word2vec_kernels as window_kernels
from firth.vectors._step_kernels import softmax_step
from firth.vectors.tables import EmbeddingTable, table_from_matrix
from tests.vectors.slow_word2vec import Matrix, sigmoid, slow_sgd_step, slow_softmax, slow_update

DIMENSIONS = (1, 7, 8, 100, 104)
SHAPES = list(itertools.product(range(1, 8), range(1, 8)))
NOTHING = np.empty(0, dtype=np.float32)


class Step:
    """Two small tables, some rows of one and some of the other, and how the kernels are called with them."""

    def __init__(self, rows: Any, targets: Any, dimension: int, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, len(rows), len(targets), dimension])
        scale = 1 / np.sqrt(dimension)
        self.inputs = table_from_matrix((scale * rng.normal(size=(9, dimension))).astype(np.float32))
        self.outputs = table_from_matrix((scale * rng.normal(size=(11, dimension))).astype(np.float32))
        self.rows, self.targets = np.array(rows, dtype=np.int64), np.array(targets, dtype=np.int32)
        self.labels = rng.integers(0, 2, len(targets)).astype(np.uint8)
        self.offsets = rng.normal(size=len(targets)).astype(np.float32)
        self.steps = (0.1 * rng.normal(size=(len(rows), len(targets)))).astype(np.float32)

    def matrices(self) -> tuple[Matrix, Matrix]:
        """Copies of the tables with all their digits."""
        return self.inputs.matrix().astype(np.float64), self.outputs.matrix().astype(np.float64)

    def between(self, pad: int = 2) -> tuple[Any, ...]:
        """The arguments of kernels: targets are in the middle of an array."""
        padded = np.pad(self.targets, pad)
        sizes = (self.inputs.stride, self.inputs.width)
        return (
            self.inputs.flat, self.rows, self.rows.size, self.outputs.flat, padded, pad, pad + self.targets.size,
            *sizes,
        )  # fmt: skip

    def train(self, lr: float, with_offsets: bool = False, pad: int = 2) -> float:
        """The loss before a step."""
        *head, padded, begin, end, stride, width = self.between(pad)
        labels, offsets = np.pad(self.labels, pad), np.pad(self.offsets, pad) if with_offsets else NOTHING
        scores = np.empty(self.rows.size * self.targets.size, dtype=np.float32)
        found = kernels.sgd_step(*head, padded, labels, offsets, begin, end, stride, width, np.float32(lr), scores)
        return float(found)

    def check(self, expected: tuple[Matrix, Matrix], tolerance: float = 2e-6) -> None:
        """Fails unless the tables are as expected, and nothing was written between rows."""
        for table, matrix in zip((self.inputs, self.outputs), expected, strict=True):
            np.testing.assert_allclose(table.matrix(), matrix, atol=tolerance)
            assert no_stray_numbers(table)


def no_stray_numbers(table: EmbeddingTable) -> bool:
    """Whether there are only zeros between the rows."""
    return bool(np.all(table.weights.reshape(table.rows, table.stride)[:, table.dimension :] == 0))


def rows_for(count: int, seed: int) -> list[int]:
    """Input rows, some of which come again, side by side and further apart."""
    return np.random.default_rng([seed, count]).integers(0, 4, count).tolist()


def targets_for(count: int, seed: int) -> list[int]:
    """Different target rows."""
    return np.random.default_rng([seed, count]).permutation(11)[:count].tolist()


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_products_are_those_of_numpy(dimension: int) -> None:
    for tall, wide in SHAPES:
        case = Step(rows_for(tall, 1), targets_for(wide, 1), dimension)
        scores = np.full(tall * wide + 3, 7, dtype=np.float32)
        kernels.dot_products(*case.between(), scores)
        inputs, outputs = case.matrices()
        expected = inputs[case.rows] @ outputs[case.targets].T
        np.testing.assert_allclose(scores[: tall * wide].reshape(tall, wide), expected, atol=2e-6)
        assert np.all(scores[tall * wide :] == 7)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_rows_move_in_tiles(dimension: int) -> None:
    for (tall, wide), seed in itertools.product(SHAPES, range(2)):
        case = Step(rows_for(tall, seed), targets_for(wide, seed), dimension)
        inputs, outputs = case.matrices()
        slow_update(inputs, case.rows, outputs, case.targets, case.steps.astype(np.float64))
        kernels.update_rows(*case.between(), case.steps.reshape(-1))
        case.check((inputs, outputs))


def test_the_order_of_tiles_matters() -> None:
    """Worked by hand: two input rows are updated with the old targets, a third with the updated ones."""
    case = Step([0, 1, 2], [0], 1)
    case.inputs.matrix()[:3, 0] = 1, 2, 3
    case.outputs.matrix()[0, 0] = 10
    kernels.update_rows(*case.between(), np.array([0.5, 0.25, 1.0], dtype=np.float32))
    # Rows 0 and 1: 1 + 0.5 * 10, 2 + 0.25 * 10; the target 10 + 0.5 * 1 + 0.25 * 2 = 11; row 2: 3 + 11; 11 + 3.
    assert case.inputs.matrix()[:3, 0].tolist() == [6.0, 4.5, 14.0]
    assert case.outputs.matrix()[0, 0] == 14.0


def test_a_repeated_row_is_updated_twice() -> None:
    case = Step([4, 4], [0], 1)
    case.inputs.matrix()[4], case.outputs.matrix()[0] = 1, 10
    kernels.update_rows(*case.between(), np.array([0.5, 0.5], dtype=np.float32))
    # 1 + 0.5 * 10 = 6 and 10 + 0.5 * 1 = 10.5, then 6 + 0.5 * 10.5 and 10.5 + 0.5 * 6.
    assert case.inputs.matrix()[4, 0] == 11.25
    assert case.outputs.matrix()[0, 0] == 13.5


def test_sigmoids_are_exact_to_a_float() -> None:
    values = np.linspace(-20, 20, 400_001).astype(np.float32)
    found = values.copy()
    kernels.sigmoids(found, found.size - 1)
    # Beyond 18 the approximation stays at sigmoid(18), which is 1.5e-8 from 0 or 1.
    np.testing.assert_allclose(found[:-1], sigmoid(values[:-1]), atol=2e-7, rtol=0)
    assert found[-1] == values[-1], "only the given number"
    assert found[200_000] == 0.5


def test_sigmoids_stay_between_0_and_1() -> None:
    found = np.concatenate([np.linspace(-1e30, 1e30, 1001), np.linspace(-100, 100, 1001)]).astype(np.float32)
    kernels.sigmoids(found, found.size)
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("with_offsets", [False, True])
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_step_equals_the_reference(dimension: int, with_offsets: bool) -> None:
    for tall, wide in SHAPES:
        case = Step(rows_for(tall, 3), targets_for(wide, 3), dimension)
        inputs, outputs = case.matrices()
        offsets = case.offsets.astype(np.float64) if with_offsets else 0.0
        expected = slow_sgd_step(inputs, case.rows, outputs, case.targets, case.labels, offsets, 0.1)
        assert case.train(0.1, with_offsets) == pytest.approx(expected, rel=2e-6, abs=2e-7 * tall * wide)
        case.check((inputs, outputs))


def test_a_loss_of_many_improbable_answers_does_not_underflow() -> None:
    """All 49 answers are as wrong as can be: each counts -log 1e-8, not infinity."""
    case = Step(list(range(7)), list(range(7)), 8)
    case.inputs.matrix()[:], case.outputs.matrix()[:], case.labels[:] = 10, 10, 0
    assert case.train(0.0) == pytest.approx(49 * -np.log(1e-8), rel=1e-6)


def test_a_learning_rate_of_zero_changes_nothing() -> None:
    case = Step([0, 1, 2], [3, 4, 5, 6], 100)
    before = case.inputs.flat.copy(), case.outputs.flat.copy()
    case.train(0.0)
    assert np.array_equal(case.inputs.flat, before[0])
    assert np.array_equal(case.outputs.flat, before[1])


def gradients(loss: Callable[[], float], values: npt.NDArray[np.float64], h: float = 1e-5) -> Matrix:
    """The derivative of a loss by each of some numbers, by central differences."""
    found = np.empty_like(values)
    for position in np.ndindex(values.shape):
        old = values[position]
        values[position] = old + h
        above = loss()
        values[position] = old - h
        below = loss()
        values[position], found[position] = old, (above - below) / (2 * h)
    return found


LR = 1e-3


def changes(make: Callable[[], Step], train: Callable[[Step, float], float]) -> tuple[Matrix, Matrix]:
    """How fast both tables change with the rate, where it is nothing: half the change between -RATE and RATE."""
    steps = []
    for lr in (LR, -LR):
        case = make()
        train(case, lr)
        steps.append(case.matrices())
    return (steps[0][0] - steps[1][0]) / (2 * LR), (steps[0][1] - steps[1][1]) / (2 * LR)


@pytest.mark.parametrize("with_offsets", [False, True])
def test_a_step_follows_the_gradient_of_the_loss(with_offsets: bool) -> None:
    """Negative sampling and hierarchical softmax are this loss with other targets; with shifts it is that of NCE."""
    rows, targets = [0, 1, 1, 2, 0], [3, 7, 1, 9]

    def make() -> Step:
        return Step(rows, targets, 7)

    case = make()
    inputs, outputs = case.matrices()

    def loss() -> float:
        total = 0.0
        for row, (j, target) in itertools.product(rows, enumerate(targets)):
            product = inputs[row] @ outputs[target] - (case.offsets[j] if with_offsets else 0.0)
            total -= np.log(sigmoid(product if case.labels[j] else -product))
        return float(total)

    assert case.train(0.0, with_offsets) == pytest.approx(loss(), rel=1e-6)
    found = changes(make, lambda step, lr: step.train(lr, with_offsets))
    np.testing.assert_allclose(found[0], -gradients(loss, inputs), atol=1e-4)
    np.testing.assert_allclose(found[1], -gradients(loss, outputs), atol=1e-4)


def softmax(case: Step, lr: float, row: int = 2, label: int = 8) -> float:
    """-log p(answer) before a step of full softmax."""
    everything = np.arange(case.outputs.rows, dtype=np.int32)
    scores = np.empty(case.outputs.rows, dtype=np.float32)
    sizes = (case.outputs.rows, np.uint32(label), case.inputs.stride, case.inputs.width)
    return float(softmax_step(case.inputs.flat, row, case.outputs.flat, *sizes, np.float32(lr), scores, everything))


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_full_softmax_equals_the_reference(dimension: int) -> None:
    case = Step([2], [8], dimension)
    inputs, outputs = case.matrices()
    expected = slow_softmax(inputs, 2, outputs, np.arange(FIRST_WORD, 11), 8, 0.3)
    assert softmax(case, 0.3) == pytest.approx(expected, rel=2e-6)
    case.check((inputs, outputs))


def test_full_softmax_follows_the_gradient_of_the_loss() -> None:
    def make() -> Step:
        return Step([2], [8], 7)

    inputs, outputs = make().matrices()

    def loss() -> float:
        products = outputs[FIRST_WORD:] @ inputs[2]
        return float(np.log(np.exp(products).sum()) - products[8 - FIRST_WORD])

    assert softmax(make(), 0.0) == pytest.approx(loss(), rel=1e-6)
    found = changes(make, softmax)
    np.testing.assert_allclose(found[0], -gradients(loss, inputs), atol=1e-4)
    np.testing.assert_allclose(found[1], -gradients(loss, outputs), atol=1e-4)
    assert np.all(found[1][:FIRST_WORD] == 0), "special tokens are no answers"


def test_full_softmax_of_large_products_is_finite() -> None:
    case = Step([2], [8], 8)
    case.inputs.matrix()[2], case.outputs.matrix()[:] = 50, 0
    case.outputs.matrix()[9] = 1
    assert softmax(case, 0.0, label=8) == pytest.approx(400)
    assert softmax(case, 0.0, label=9) == pytest.approx(0)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_means_and_their_changes_are_those_of_numpy(dimension: int) -> None:
    for count in (1, 2, 3, 7):
        case = Step(rows_for(count, 5), [0], dimension)
        inputs, _ = case.matrices()
        stride, width = case.inputs.stride, case.inputs.width
        mean, copy = np.full((2, width), 7, dtype=np.float32)
        window_kernels.mean_row(case.inputs.flat, case.rows, stride, width, mean, copy)
        expected = inputs[case.rows].mean(axis=0)
        for half in (mean, copy):
            np.testing.assert_allclose(half[:dimension], expected, atol=1e-6)
            assert np.all(half[dimension:] == 0)
        mean[:dimension] += np.float32(0.5)
        window_kernels.add_change(case.inputs.flat, case.rows, stride, width, mean, copy)
        np.add.at(inputs, case.rows, 0.5)
        np.testing.assert_allclose(case.inputs.matrix(), inputs, atol=2e-6)
        assert no_stray_numbers(case.inputs)
