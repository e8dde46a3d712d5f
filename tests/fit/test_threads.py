"""The number of threads changes no bit of a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firth.fit.nets import torch_settings
from firth.nets.recipe import NetRecipe
from tests.fit.small_nets import make_run, masked, open_small, parameters, same, small

LARGE = 4096  # tokens of a batch that torch divides between threads


def wide(recipe: NetRecipe, **encoder: Any) -> NetRecipe:
    """The recipe with layers that are large enough to be computed by several threads."""
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=64, norm=encoder.get("kind") != "lstm"),
        encoder=replace(recipe.encoder, width=64, ffn_width=encoder.pop("ffn_width", 256), **encoder),
        learning=replace(recipe.learning, batch=LARGE),
    )


@pytest.mark.parametrize(
    "recipe",
    [wide(small()), wide(masked()), wide(small(), kind="lstm", norm="none", ffn_width=0)],
    ids=["causal", "masked", "lstm"],
)
def test_any_number_of_threads_gives_the_same_weights(recipe: NetRecipe) -> None:
    found = []
    for threads in (1, 2, 3):
        trainer = open_small(recipe, make_run(budget="2ktok"))
        with torch_settings(threads):
            trainer.train()
        found.append(parameters(trainer))
    assert all(same(found[0], one) for one in found[1:])
