"""Causal and masked language modelling in one network: settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.objective import PAIRS, Objective
from firth.nets.recipe import STREAMS, NetRecipe
from firth.objectives.masking import Masking

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class MaskedNextToken(Objective):
    """Every prediction is made one position before its token (Charpentier and Samuel 2024).

    In some rows all tokens are predicted from those before them, in the others masked tokens from both sides. Both
    are the same task of the output layer, so that one network generates and fills.
    """

    causal: float = 1 / 16
    """Fraction of the rows that are read from left to right."""
    masking: Masking = field(default_factory=Masking)

    name: ClassVar[str] = "mntp"
    orders_attention: ClassVar[bool] = True
    predicts_early: ClassVar[bool] = True
    predicts: ClassVar[Literal["next", "masked"] | None] = "masked"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.causal <= 1:
            raise RecipeError(f"mntp.causal={self.causal} must be from 0 to 1, such as 0.25.")
        if self.masking.requires or self.masking.stages:
            raise RecipeError("mntp.masking has one policy of tokens or words: set mntp.masking.policy=token.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.sequence.format in STREAMS or recipe.sequence.format in PAIRS:
            raise RecipeError(
                f"mntp reads single sequences in two ways, and sequence.format={recipe.sequence.format} has none: set "
                "sequence.format=doc-sentences."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.mntp import MaskedNextTokenHead

        return MaskedNextTokenHead(self, recipe, vocabulary, self.causal, self.masking)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.hybrid import HybridNet

        return HybridNet

    @property
    def predicted(self) -> float:
        return self.causal + (1 - self.causal) * self.masking.rate

    @property
    def variants(self) -> int:
        return self.masking.variants

    def published_noise(self) -> dict[str, float]:
        return self.masking.published_noise() | {"read left to right": self.causal}

    def small_run_defaults(self) -> dict[str, tuple[Any, str]]:
        return {**self.masking.small_run_defaults()}
