"""Choice of neighbouring sentences: settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.neighbours import NeighbourObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class QuickThought(NeighbourObjective):
    """The neighbours of a sentence are found among all sentences of its batch (Logeswaran and Lee 2018).

    A second network with parameters of its own reads the candidates.
    """

    name: ClassVar[str] = "quick-thought"
    needs_output: ClassVar[bool] = False
    context_size: int = 1
    """Sentences on each side that are neighbours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.context_size <= 100:
            raise RecipeError(f"quick-thought.context_size={self.context_size} must be from 1 to 100.")

    def second_network(self, recipe: NetRecipe) -> NetRecipe:
        """The network that reads candidates."""
        return replace(recipe, objectives=(), output=replace(recipe.output, kind="none"))

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.quick_thought import QuickThoughtHead

        return QuickThoughtHead(self, self.second_network(recipe), network, self.context_size)

    @property
    def predicted(self) -> float:
        return 1 / 16  # one for each sentence
