"""Objectives that predict the neighbours of a sentence: what their settings have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective, Visibility
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.model import NetModel


@dataclass(frozen=True, kw_only=True)
class NeighbourObjective(Objective):
    """Trained on batches of consecutive sentences, each of which is read into one vector."""

    visibilities: ClassVar[tuple[Visibility, ...]] = ("causal", "forward+backward", "bidirectional")
    compares_sequences: ClassVar[bool] = True

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.sequence.format != "consecutive":
            raise RecipeError(
                f"{self.name} needs consecutive sentences, not sequence.format={recipe.sequence.format}: set "
                "sequence.format=consecutive."
            )
        if recipe.encoder.kind == "none":
            raise RecipeError(f"{self.name} trains an encoder of sentences, and encoder.kind is none: set it to gru.")

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.sentence_net import SentenceNet

        return SentenceNet
