"""The span boundary objective: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.mlm import MaskedLM

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class SpanBoundary(Objective):
    """Tokens of a masked span are predicted from the two tokens around it (Joshi et al. 2020)."""

    position_width: int = 200
    """Dimension of the embedding of a token's position in its span."""
    max_tokens: int = 15
    """Tokens of a span that are predicted, from its beginning; the rest of a longer one is left out."""

    name: ClassVar[str] = "sbo"
    needs_output: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.position_width <= 100_000 or not 1 <= self.max_tokens <= 10_000:
            raise RecipeError("sbo.position_width and sbo.max_tokens must be 1 or more, such as 200 and 15.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        before = recipe.objectives[: recipe.objectives.index(self)]
        if not any(isinstance(one, MaskedLM) for one in before):
            raise RecipeError(
                f"sbo predicts the spans that mlm has masked, not objectives={'+'.join(recipe.names)}: set "
                "objectives=mlm+sbo and mlm.masking.policy=span."
            )
        if recipe.embedding.characters:
            raise RecipeError(
                "sbo is tied to the table of token vectors, but embedding.characters is true: set it to false."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.sbo import SpanBoundaryHead

        return SpanBoundaryHead(self, recipe, vocabulary, self.position_width, self.max_tokens)

    @property
    def predicted(self) -> float:
        return 0.15  # about those that are masked
