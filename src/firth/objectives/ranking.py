"""Ranking of windows of text: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class Ranking(Objective):
    """A window of text scores higher than the same with a wrong word in the middle (Collobert et al. 2011)."""

    name: ClassVar[str] = "ranking"
    needs_output: ClassVar[bool] = False

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.encoder.kind != "window":
            raise RecipeError(
                f"ranking compares windows, not the states of encoder.kind={recipe.encoder.kind}: set "
                "encoder.kind=window."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.ranking import RankingHead

        return RankingHead(self, recipe, vocabulary)
