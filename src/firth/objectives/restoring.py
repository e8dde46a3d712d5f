"""Objectives whose decoder restores a text: what they have in common."""

from __future__ import annotations

from dataclasses import dataclass

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import Format, NetRecipe

FORMATS: tuple[Format, ...] = ("doc-sentences", "full-sentences", "sentences")
"""Sequences of one segment, which can be noised as a whole."""


@dataclass(frozen=True, kw_only=True)
class RestoringObjective(Objective):
    """An objective whose decoder predicts a text, or parts of it, from a source made of it by noise."""

    @property
    def sides(self) -> tuple[float, float]:
        return 1.0, self.predicted

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.decoder is None:
            raise RecipeError(f"{self.name} predicts by a decoder, and the recipe has none: train bart or t5, say.")
        if recipe.sequence.format not in FORMATS:
            raise RecipeError(
                f"{self.name} makes noise of single sequences, not of sequence.format={recipe.sequence.format}: set "
                f"sequence.format={FORMATS[0]}."
            )
