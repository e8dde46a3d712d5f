"""Prediction of a word from the context around it: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from firth.nets.objective import Objective, Visibility
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class ContextWord(Objective):
    """Each word is classified against noise, from the states of the words before and after it (Melamud et al. 2016)."""

    name: ClassVar[str] = "context"
    visibilities: ClassVar[tuple[Visibility, ...]] = ("forward+backward",)
    reads_both_sides: ClassVar[bool] = True
    predicts: ClassVar[Literal["next", "masked"] | None] = "masked"

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.context import ContextWordHead

        return ContextWordHead(self, recipe, vocabulary)

    @property
    def predicted(self) -> float:
        return 0.85  # all but the two ends of a sentence of a dozen words

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.context import ContextNet

        return ContextNet
