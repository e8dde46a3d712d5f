"""The table of recipes."""

from __future__ import annotations

from firth.recipes.table import find_entry


def test_a_recipe_of_any_order_has_the_description_of_its_smoothing() -> None:
    assert find_entry("mkn2").about == find_entry("modified-kneser-ney").about
    assert find_entry("mkn2").make().order == 2
