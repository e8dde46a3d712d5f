"""Checks of the numbers in the parts of a recipe."""

from __future__ import annotations

from typing import Any

from firth.errors import RecipeError


def check_ranges(part: Any, **ranges: tuple[int, int]) -> None:
    """Raise `RecipeError` for a field outside of its range, the bounds included."""
    for name, (low, high) in ranges.items():
        value = getattr(part, name)
        if not low <= value <= high:
            raise RecipeError(f"{_field_of(part)}.{name}={value} must be from {low} to {high}.")


def check_fractions(part: Any, *names: str) -> None:
    """Raise `RecipeError` for a field that is not from 0 to 1, 1 excluded."""
    for name in names:
        value = getattr(part, name)
        if not 0 <= value < 1:
            raise RecipeError(f"{_field_of(part)}.{name}={value} must be from 0 to 1.")


def _field_of(part: Any) -> str:
    """The field of a recipe that has parts of this type: `encoder` for an `EncoderRecipe`."""
    return type(part).__name__.removesuffix("Recipe").lower()
