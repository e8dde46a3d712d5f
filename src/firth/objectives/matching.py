"""Matching of adjacent sentences among those of a batch: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.field_checks import check_ranges
from firth.nets.recipe import NetRecipe
from firth.objectives.sentences import SentenceObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class AdjacentMatching(SentenceObjective):
    """The sentence that is adjacent to another one in the text is found among those of the batch."""

    temperature: float = 0.05
    """Divisor of the cosines."""

    compares_sequences: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature <= 100:
            raise RecipeError(f"{self.name}.temperature={self.temperature} must be above 0, such as 0.05.")


@dataclass(frozen=True, kw_only=True)
class Neighbours(AdjacentMatching):
    """The next and the previous sentence among those of the batch (the skip-thought-like task of Cer et al. 2018)."""

    name: ClassVar[str] = "neighbours"

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.matching import NeighboursHead

        return NeighboursHead(self, recipe, vocabulary, self.temperature)


@dataclass(frozen=True, kw_only=True)
class ResponseMatching(AdjacentMatching):
    """The response to a sentence or turn among those of the batch; responses have layers of their own."""

    layers: int = 2
    """Feed-forward layers over the vectors of responses (Yang et al. 2018)."""

    name: ClassVar[str] = "response"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, layers=(0, 100))

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.matching import ResponseHead

        return ResponseHead(self, recipe, vocabulary, self.temperature, self.layers)
