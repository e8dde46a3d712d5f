"""SIF: weights, means and components by their equations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.errors import ArtifactError, RecipeError
from firth.vectors.recipe import SifRecipe
from firth.vectors.sif import SifModel, principal_components

TEXT = [["the dog ran", "the cat sat", "a dog sat", "the the the"]] * 20


def trained(folder: Path, **settings: Any) -> Any:
    given = {"tokenizer.min_count": 1, "base.dimension": 6, "base.epochs": 3} | settings
    return firth.train("sif", TEXT, out=folder, settings=given)


def test_vectors_are_weighted_means_less_the_component(tmp_path: Path) -> None:
    model = trained(tmp_path / "m", smoothing=0.01)
    assert isinstance(model, SifModel)
    (found,) = model.embed(["the dog flew"])  # an unknown word does not count
    shares = {"the": 100 / 240, "dog": 40 / 240}
    mean = sum(0.01 / (0.01 + share) * model.vector(word) for word, share in shares.items()) / 2
    direction = model.components[0]
    np.testing.assert_allclose(found, mean - (mean @ direction) * direction, atol=1e-6)
    assert abs(float(found @ direction)) < 1e-6
    assert not model.embed(["", "unknown"]).any()
    alone, together = model.embed(["a dog sat"]), model.embed(["a dog sat", "the cat sat"])
    np.testing.assert_array_equal(alone[0], together[0])


def test_components_are_the_right_singular_vectors() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    expected = np.linalg.svd(rows.astype(np.float64), full_matrices=False)[2][:2]
    found = principal_components(np.vstack([rows, np.zeros((3, 5), np.float32)]), 2)
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=1)), 1, atol=1e-5)


def test_no_component_and_round_trips(tmp_path: Path) -> None:
    model = trained(tmp_path / "m", components=0)
    assert model.components.shape == (0, 6)
    loaded = firth.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.embed(["the dog"]), model.embed(["the dog"]))
    np.testing.assert_allclose(model.embed(["dog"])[0], model.weights[model.row("dog")] * model.vector("dog"))


def test_wrong_settings_and_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="smoothing"):
        SifRecipe(smoothing=0.0)
    with pytest.raises(RecipeError, match="components"):
        SifRecipe(components=101)
    from firth.vectors.sif import restore_sif

    model = trained(tmp_path / "m")
    arrays = model.arrays() | {"components": np.zeros((1, 5), np.float32)}
    with pytest.raises(ArtifactError, match="components"):
        restore_sif(model.recipe, arrays, model.tokenizer, "lines")
