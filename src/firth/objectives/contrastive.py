"""Contrastive learning of sentence vectors: settings."""

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
class Contrastive(Objective):
    """A sentence is nearer to itself, read again with other dropout, than to the others of its batch (SimCSE)."""

    name: ClassVar[str] = "contrastive"
    needs_output: ClassVar[bool] = False
    needs_dropout: ClassVar[bool] = True
    compares_sequences: ClassVar[bool] = True
    temperature: float = 0.05
    """Divisor of the cosines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature <= 100:
            raise RecipeError(f"contrastive.temperature={self.temperature} must be above 0, such as 0.05.")

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.contrastive import ContrastiveHead

        return ContrastiveHead(self, recipe, vocabulary, self.temperature)
