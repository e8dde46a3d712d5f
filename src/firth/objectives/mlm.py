"""Masked language modelling: settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.combination import CONTIGUOUS
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.masking import Masking

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class MaskedLM(Objective):
    """Masked tokens are predicted from all others (Devlin et al. 2019)."""

    masking: Masking = field(default_factory=Masking)

    name: ClassVar[str] = "mlm"
    predicts: ClassVar[Literal["next", "masked"] | None] = "masked"

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.mlm import MaskedLMHead

        return MaskedLMHead(self, recipe, vocabulary, self.masking)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.masked import MaskedNet

        return MaskedNet

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if self.requires and (recipe.embedding.languages or recipe.sequence.format in CONTIGUOUS):
            part = f"embedding.languages={recipe.embedding.languages}" if recipe.embedding.languages else ""
            raise RecipeError(
                f"{self.name}.masking masks {' and '.join(self.requires)}, which "
                f"{part or f'sequence.format={recipe.sequence.format}'} does not go with: set "
                f"{self.name}.masking.policy=word and {self.name}.masking.stages=word."
            )

    @property
    def requires(self) -> tuple[str, ...]:
        return self.masking.requires

    @property
    def stages(self) -> tuple[float, ...]:
        return self.masking.bounds

    @property
    def stage_name(self) -> str:
        return self.masking.policy

    def at(self, progress: float) -> MaskedLM:
        return replace(self, masking=self.masking.at(progress))

    @property
    def predicted(self) -> float:
        return self.masking.rate

    @property
    def variants(self) -> int:
        return self.masking.variants

    def published_noise(self) -> dict[str, float]:
        return self.masking.published_noise()

    def small_run_defaults(self) -> dict[str, tuple[Any, str]]:
        return {**self.masking.small_run_defaults()}
