"""Nearest rows: against plain NumPy, for any number of threads, and by the index."""

from __future__ import annotations

import numpy as np
import pytest

from firth.errors import AbilityError
from firth.vectors import _neighbour_kernels
from firth.vectors.index import ApproximateIndex, _make_directions, _pack, _query_planes, build_index
from firth.vectors.neighbours import ExactIndex, Floats, empty_heaps, ordered, unit


def gaussian(rows: int, dimension: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)


def clustered(rows: int, dimension: int) -> Floats:
    random = np.random.default_rng(1)
    centres = random.standard_normal((200, dimension))
    return (centres[random.integers(0, 200, rows)] + 0.5 * random.standard_normal((rows, dimension))).astype(np.float32)


def cosines(vectors: Floats, query: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    return np.divide(vectors @ query, lengths, out=np.zeros(len(vectors), np.float32), where=lengths > 0)


def test_nearest_are_those_that_numpy_finds() -> None:
    vectors = gaussian(3000, 30)
    vectors[:5] = 0
    near = ExactIndex(vectors, 5)
    for row in (5, 17, 2999):
        scores = cosines(vectors, vectors[row])
        scores[[0, 1, 2, 3, 4, row]] = -2
        expected = np.argsort(-scores)[:12]
        found = near.nearest(vectors[row], 12, [row])
        assert [position for position, _ in found] == expected.tolist()
        assert [score for _, score in found] == pytest.approx(scores[expected].tolist(), abs=1e-6)


def test_all_rows_can_be_requested_and_zeros_score_nothing() -> None:
    near = ExactIndex(np.array([[0, 0], [2, 0], [0, 3], [0, 0], [-1, 0]], dtype=np.float32), 1)
    assert near.nearest(np.array([4.0, 0.0]), 99) == [(1, 1.0), (2, 0.0), (3, 0.0), (4, -1.0)]
    assert near.nearest(np.zeros(2), 2) == [(1, 0.0), (2, 0.0)]


def test_equal_scores_come_in_the_order_of_rows() -> None:
    vectors = np.ones((50, 3), dtype=np.float32)
    assert [row for row, _ in ExactIndex(vectors).nearest(vectors[0], 7, [2])] == [0, 1, 3, 4, 5, 6, 7]


def test_the_heap_keeps_what_sorting_keeps() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 5, 40):
        scores = random.integers(0, 20, (3, 100)).astype(np.float32)
        best, rows = empty_heaps(3, size)
        _neighbour_kernels.heap_push_tile(scores[:, :60].copy(), 0, best, rows)
        _neighbour_kernels.heap_push_tile(scores[:, 60:].copy(), 60, best, rows)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :size]
        assert np.array_equal(ordered(best, rows)[1], order)


def test_threads_change_no_bit() -> None:
    vectors = gaussian(60_000, 20)
    one, two = ExactIndex(vectors, 5, threads=1), ExactIndex(vectors, 5, threads=3)
    assert (one.threads, two.threads) == (1, 3)
    assert np.array_equal(one.inverse, two.inverse)
    assert np.array_equal(one.cosines(vectors[9]), two.cosines(vectors[9]))
    rows = np.arange(100, 300)
    assert np.array_equal(one.nearest_to_rows(rows, 10), two.nearest_to_rows(rows, 10))


def test_many_at_once_are_what_one_by_one_are() -> None:
    vectors = gaussian(9000, 25)
    near = ExactIndex(vectors, 5)
    rows = np.array([5, 77, 8999, 4096, 4101])
    found = near.nearest_to_rows(rows, 10)
    for row, line in zip(rows.tolist(), found.tolist(), strict=True):
        assert line == [position for position, _ in near.nearest(vectors[row], 10, [row])]


@pytest.mark.parametrize("method", ["add", "mul"])
def test_answers_to_analogies_are_those_of_numpy(method: str) -> None:
    vectors = gaussian(2500, 12)
    near = ExactIndex(vectors, 5)
    questions = np.random.default_rng(3).integers(5, 2500, (40, 3))
    groups = np.arange(2500)
    groups[1000:1500] = np.arange(500, 1000)  # the same words in another case
    among = np.arange(5, 2400)[::-1].copy()
    found = near.analogies(questions, groups, among, "mul" if method == "mul" else "add")
    for (a, b, c), row in zip(questions.tolist(), found.tolist(), strict=True):
        one, two, three = (cosines(vectors, vectors[position]).astype(np.float64) for position in (a, b, c))
        scores = two + three - one
        if method == "mul":
            scores = (1 + two) / 2 * (1 + three) / 2 / ((1 + one) / 2 + 1e-6)
        scores[np.isin(groups, groups[[a, b, c]])] = -np.inf
        scores[[*range(5), *range(2400, 2500)]] = -np.inf
        assert row == int(scores.argmax())


def test_mean_rows_leave_out_special_tokens() -> None:
    vectors, means = gaussian(10, 3), np.zeros((3, 3), dtype=np.float32)
    ids, bounds = np.array([7, 1, 9, 0, 6], dtype=np.uint32), np.array([0, 3, 4, 5])
    _neighbour_kernels.mean_rows(vectors, ids, bounds, 5, means)
    expected = np.array([(vectors[7] + vectors[9]) / 2, np.zeros(3), vectors[6]])
    assert means == pytest.approx(expected, abs=1e-6)


def test_codes_are_scored_as_plain_sums() -> None:
    random = np.random.default_rng(5)
    signs = random.random((70, 256)) > 0.5
    values = random.standard_normal(256).astype(np.float32)
    planes, scale, shift = _query_planes(values)
    weights, offsets = random.random((2, 70)).astype(np.float32) / 100
    scores = np.empty(60, dtype=np.int16)
    codes = np.ascontiguousarray(_pack(signs).T)
    _neighbour_kernels.score_codes(codes, weights, offsets, planes, scale, shift, np.float32(0.1), 10, scores)
    step = np.abs(values).max() / 15
    rounded = step * (2 * np.clip(np.rint((values / step + 15) / 2), 0, 15) - 15)
    assert np.abs(rounded - values).max() <= step * 1.001
    estimate = 0.1 + offsets + weights * np.where(signs, rounded, -rounded).sum(axis=1)
    assert scores / _neighbour_kernels.ONE == pytest.approx(
        np.clip(estimate, -1, 1)[10:], abs=2 / _neighbour_kernels.ONE
    )


def test_scores_that_reach_the_limit_are_candidates() -> None:
    random = np.random.default_rng(0)
    scores = random.integers(-50, 50, 1000).astype(np.int16)
    rows = random.permutation(1000).astype(np.int32)
    kept, kept_scores = np.zeros(1001, np.int32), np.zeros(1001, np.int16)
    histogram = np.zeros(2 * _neighbour_kernels.ONE + 1, np.int32)
    count = _neighbour_kernels.append_candidates(scores, rows, 40, kept, kept_scores, 1, histogram)
    assert kept[1:count].tolist() == rows[scores >= 40].tolist()
    assert kept_scores[1:count].tolist() == scores[scores >= 40].tolist()
    assert histogram[_neighbour_kernels.ONE + 45] == (scores == 45).sum()
    assert histogram.sum() == count - 1


def test_chosen_rows_are_compared_as_numpy_does() -> None:
    random = np.random.default_rng(0)
    vectors, query = gaussian(500, 37), unit(gaussian(1, 37, seed=1)[0])
    near = ExactIndex(vectors)
    kept, kept_scores = random.permutation(500).astype(np.int32), random.integers(-50, 50, 500).astype(np.int16)
    expected = kept[:400][kept_scores[:400] >= 10]
    count = _neighbour_kernels.select(kept, kept_scores, 10, 400)
    assert kept[:count].tolist() == expected.tolist()
    best, found = empty_heaps(1, 12)
    _neighbour_kernels.push_exact(kept, count, near.vectors, near.inverse, query, best[0], found[0])
    best, found = ordered(best, found)
    scores = cosines(vectors, query)[expected]
    order = np.argsort(-scores)[:12]
    assert found[0].tolist() == expected[order].tolist()
    assert best[0] == pytest.approx(scores[order], abs=1e-6)


def test_directions_stand_at_right_angles() -> None:
    directions = _make_directions(np.random.default_rng(0), 20)
    assert directions.shape == (20, 256)
    assert directions[:, :20].T @ directions[:, :20] == pytest.approx(np.eye(20), abs=1e-5)


def recall(index: ApproximateIndex, vectors: Floats, rows: list[int]) -> float:
    exact = index.exact.nearest_to_rows(np.array(rows), 10)
    hits = 0
    for row, line in zip(rows, exact.tolist(), strict=True):
        found = index.nearest(vectors[row], 10, [row])
        assert len(found) == 10
        assert row not in [position for position, _ in found]
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        hits += len({position for position, _ in found} & set(line))
    return hits / exact.size


@pytest.mark.parametrize("make", [gaussian, clustered])
def test_the_index_finds_nearly_all(make: object) -> None:
    vectors = make(20_000, 50)  # type: ignore[operator]
    index = build_index(ExactIndex(vectors, 5))
    assert recall(index, vectors, list(range(100, 20_000, 199))) >= 0.95
    assert index.recall >= 0.95


def test_the_index_of_clustered_rows_searches_a_part_of_them() -> None:
    vectors = clustered(20_000, 50)
    index = build_index(ExactIndex(vectors, 5))
    assert index.cells < len(index.centroids) / 4
    assert index.candidates < 2000


def test_codes_tell_cosines_roughly() -> None:
    vectors = clustered(5000, 50)
    index = build_index(ExactIndex(vectors, 5))
    target = unit(vectors[77])
    planes, scale, shift = _query_planes(target @ index.directions)
    scores = np.empty(len(index.rows), dtype=np.int16)
    for cell, base in enumerate(index.centroids @ target):
        begin, end = index.starts[cell], index.starts[cell + 1]
        _neighbour_kernels.score_codes(
            index.codes, index.weights, index.offsets, planes, scale, shift, base, begin, scores[begin:end]
        )
    errors = scores / _neighbour_kernels.ONE - cosines(vectors, vectors[77])[index.rows]
    assert np.abs(errors.mean()) < 0.005
    assert errors.std() < 0.05


def test_few_candidates_are_the_right_ones() -> None:
    vectors = clustered(5000, 50)
    index = build_index(ExactIndex(vectors, 5))
    index.cells, index.candidates = len(index.centroids), 60
    assert recall(index, vectors, list(range(100, 5000, 99))) > 0.9


def test_the_index_is_the_same_for_any_number_of_threads() -> None:
    vectors = clustered(41_000, 16)
    one, two = (build_index(ExactIndex(vectors, 5, threads=threads)) for threads in (1, 2))
    for name in ("centroids", "rows", "codes", "weights", "offsets"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert (one.cells, one.candidates, one.recall) == (two.cells, two.candidates, two.recall)


@pytest.mark.parametrize("rows", [1, 2, 3, 30])
def test_the_index_of_few_rows(rows: int) -> None:
    vectors = gaussian(rows, 4)
    index = build_index(ExactIndex(vectors))
    assert len(index.nearest(vectors[0], 50)) <= rows
    assert index.nearest(vectors[0], 1)[0][0] == 0


def test_an_index_of_nothing_is_refused() -> None:
    with pytest.raises(AbilityError, match="no words"):
        build_index(ExactIndex(gaussian(5, 3), 5))


def test_a_unit_of_zeros_is_zeros() -> None:
    assert unit(np.zeros(3)).tolist() == [0, 0, 0]
    assert np.linalg.norm(unit([3, 4])) == pytest.approx(1)
