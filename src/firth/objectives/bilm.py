"""Bidirectional language modelling: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.nets.objective import Objective, Visibility
from firth.nets.recipe import STREAMS, NetRecipe

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class BidirectionalLM(Objective):
    """Each token is predicted from those before it, and from those after it (Peters et al. 2018)."""

    name: ClassVar[str] = "bilm"
    visibilities: ClassVar[tuple[Visibility, ...]] = ("forward+backward",)

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.bilm import BidirectionalLMHead

        return BidirectionalLMHead(self, recipe, vocabulary)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.causal import BidirectionalNet, BidirectionalStreamNet

        return BidirectionalStreamNet if recipe.sequence.format in STREAMS else BidirectionalNet
