"""k-means against scikit-learn from the same centroids, and on groups that are far apart."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from firth.vectors.kmeans import find_centroids, nearest_centroids


def test_it_is_the_algorithm_of_lloyd() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 5)).astype(np.float32)
    start = rows[np.random.default_rng(1).permutation(len(rows))[:7]]
    for rounds in (1, 4):
        theirs = KMeans(7, init=start, n_init=1, max_iter=rounds, tol=0, algorithm="lloyd").fit(rows)
        ours = find_centroids(rows, 7, np.random.default_rng(1), rounds)
        assert ours == pytest.approx(theirs.cluster_centers_, abs=1e-4)
        assert (nearest_centroids(rows, ours) == theirs.predict(rows)).mean() > 0.999


def test_groups_that_are_far_apart_are_found() -> None:
    centres = np.eye(3) * 10
    rows = np.concatenate([centre + 0.1 * np.random.default_rng(2).normal(size=(50, 3)) for centre in centres])
    starts = (rows[np.random.default_rng(seed).permutation(len(rows))[:3]].argmax(1) for seed in range(100))
    seed = next(seed for seed, start in enumerate(starts) if len(set(start.tolist())) == 3)  # one in each group
    found = find_centroids(rows, 3, np.random.default_rng(seed))
    assert sorted(np.round(found.max(1)).tolist()) == [10, 10, 10]
    assert len(set(nearest_centroids(rows, found)[[0, 50, 100]].tolist())) == 3


def test_centroids_that_no_row_is_nearest_to_stay() -> None:
    rows = np.array([[1.0], [3.0]])
    found = find_centroids(rows, 5, np.random.default_rng(0))
    assert set(found[:, 0].tolist()) <= {1.0, 2.0, 3.0}
    assert np.isfinite(found).all()
