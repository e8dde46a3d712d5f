"""Discourse relations: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.nets.recipe import NetRecipe
from firth.objectives.layouts import LaidOutObjective
from firth.text.discourse import RELATIONS

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class DiscourseRelation(LaidOutObjective):
    """The relation of two adjacent sentences, of which the marker that tells it is removed (Sun et al. 2020)."""

    name: ClassVar[str] = "discourse"
    task: ClassVar[int] = 3
    column: ClassVar[str] = "discourse"
    material: ClassVar[str] = "sentences that begin with a discourse marker"

    @property
    def classes(self) -> int:
        return len(RELATIONS)

    def published_noise(self) -> dict[str, float]:
        return {}  # relations are as frequent as their markers

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.discourse import DiscourseHead

        return DiscourseHead(self, recipe, vocabulary)
