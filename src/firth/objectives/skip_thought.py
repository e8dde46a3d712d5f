"""Generation of neighbouring sentences: settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.combination import RECURRENT
from firth.nets.recipe import NetRecipe
from firth.objectives.neighbours import NeighbourObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class SkipThought(NeighbourObjective):
    """Two decoders write the sentences before and after one, given its vector (Kiros et al. 2015).

    They share the token vectors and the output layer of the network.
    """

    name: ClassVar[str] = "skip-thought"
    combined: bool = False
    """Train a second network of two directions with decoders of its own; both vectors are concatenated (combine-skip).
    Each of its directions has half of the width."""

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if self.combined and (recipe.encoder.kind not in RECURRENT or recipe.visibility != "causal"):
            raise RecipeError(
                "skip-thought.combined adds a network of two directions to one of one direction: set "
                "visibility=causal and encoder.kind=gru, or leave it out."
            )
        if self.combined and recipe.encoder.width % 2:
            raise RecipeError(f"encoder.width={recipe.encoder.width} must be even for skip-thought.combined.")

    def second_network(self, recipe: NetRecipe) -> NetRecipe | None:
        """The network of two directions."""
        if not self.combined:
            return None
        encoder = replace(recipe.encoder, width=recipe.encoder.width // 2)
        return replace(recipe, encoder=encoder, visibility="forward+backward", objectives=())

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.skip_thought import SkipThoughtHead

        return SkipThoughtHead(self, self.second_network(recipe), network)

    @property
    def predicted(self) -> float:
        return 1.6  # a token is predicted from both sides, but for sentences at the ends of documents
