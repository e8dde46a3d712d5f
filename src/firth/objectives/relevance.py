"""Relevance of texts to headlines: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.nets.recipe import NetRecipe
from firth.objectives.layouts import LaidOutObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class Relevance(LaidOutObjective):
    """Whether a text is what a headline announces, or a later part of it, or another text (after Sun et al. 2020)."""

    name: ClassVar[str] = "relevance"
    task: ClassVar[int] = 4
    column: ClassVar[str] = "headlines"
    material: ClassVar[str] = "documents whose first line is a headline"

    @property
    def classes(self) -> int:
        return 3

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.relevance import RelevanceHead

        return RelevanceHead(self, recipe, vocabulary)
