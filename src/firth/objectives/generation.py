"""Generation of texts from the vectors of sentences: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Source
from firth.nets.recipe import NetRecipe
from firth.objectives.sentences import SentenceObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class GenerationObjective(SentenceObjective):
    """A decoder writes a text and reads the vector of a sentence at every step (Subramanian et al. 2018).

    It has token vectors and an output layer of its own, which serve training alone.
    """

    targets: ClassVar[tuple[int, ...]] = (1,)
    """The members of a pair that are written, each by its own decoder, from the vector of the other one."""

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.decoder is not None:
            raise RecipeError(f"{self.name} has a decoder of its own, and the recipe has one, too: set decoder=none.")

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.generation import GenerationHead

        return GenerationHead(self, recipe, vocabulary, network, self.targets)


@dataclass(frozen=True, kw_only=True)
class NeighbourGeneration(GenerationObjective):
    """The next sentence of a document is written from the previous one, and the previous one from the next."""

    name: ClassVar[str] = "neighbour-generation"
    targets: ClassVar[tuple[int, ...]] = (1, 0)


@dataclass(frozen=True, kw_only=True)
class TranslationGeneration(GenerationObjective):
    """The translation of a sentence is written."""

    name: ClassVar[str] = "translation"
    source: ClassVar[Source] = "translations"
    is_optional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ParseGeneration(GenerationObjective):
    """The parse tree of a sentence is written, as brackets in a line (Vinyals et al. 2015)."""

    name: ClassVar[str] = "parsing"
    source: ClassVar[Source] = "trees"
    is_optional: ClassVar[bool] = True
