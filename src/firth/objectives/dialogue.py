"""Dialogue language modelling: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.layouts import LaidOutObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead

ROLES = 2
"""Embeddings of roles, query and response, after those of two segments."""


@dataclass(frozen=True, kw_only=True)
class DialogueLM(LaidOutObjective):
    """Whether one of three turns of a dialogue is replaced; turns have roles instead of segments (Sun et al. 2019)."""

    name: ClassVar[str] = "dlm"
    task: ClassVar[int] = 5
    column: ClassVar[str] = "turns"
    material: ClassVar[str] = "dialogues (lines such as A: hello)"
    least: ClassVar[float] = 0.01

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.embedding.segments < 2 + ROLES:
            raise RecipeError(
                f"{self.name} has roles instead of segments, and embedding.segments={recipe.embedding.segments}: set "
                f"embedding.segments={2 + ROLES}."
            )

    @property
    def own_segments(self) -> int:
        return ROLES

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.dialogue import DialogueHead

        return DialogueHead(self, recipe, vocabulary)
