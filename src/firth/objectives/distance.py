"""Sentence distance: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.nets.recipe import NetRecipe
from firth.objectives.layouts import LaidOutObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class SentenceDistance(LaidOutObjective):
    """Whether two sentences are adjacent, of one document, or of two (Sun et al. 2020)."""

    name: ClassVar[str] = "distance"
    task: ClassVar[int] = 2

    @property
    def classes(self) -> int:
        return 3

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.distance import DistanceHead

        return DistanceHead(self, recipe, vocabulary)
