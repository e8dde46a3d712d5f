"""Denoising entity auto-encoder: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead

_LINKED = 0.05  # of the tokens, for estimates


@dataclass(frozen=True, kw_only=True)
class EntityDenoising(Objective):
    """The entity of a token is predicted among those of its batch; some entities of the input are wrong or missing."""

    replaced: float = 0.05
    """Fraction of the entities that are replaced by another one of the batch."""
    dropped: float = 0.15
    """Fraction of the entities that are removed."""

    name: ClassVar[str] = "dea"
    needs_output: ClassVar[bool] = False
    compares_sequences: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.replaced >= 0 and self.dropped >= 0 and self.replaced + self.dropped <= 1):
            raise RecipeError(
                f"dea.replaced={self.replaced} and dea.dropped={self.dropped} must be fractions, together at most 1."
            )

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if not recipe.entities.width:
            raise RecipeError("dea predicts entities, which the network does not read: set entities.width=100, say.")
        if recipe.embedding.languages:
            raise RecipeError("dea links entities in one text, not in several languages: set embedding.languages=0.")

    @property
    def requires(self) -> tuple[str, ...]:
        return ("links",)

    @property
    def predicted(self) -> float:
        return _LINKED

    def published_noise(self) -> dict[str, float]:
        return {"replaced": self.replaced, "dropped": self.dropped, "kept": 1 - self.replaced - self.dropped}

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.dea import EntityDenoisingHead

        return EntityDenoisingHead(self, recipe, vocabulary, self.replaced, self.dropped)
