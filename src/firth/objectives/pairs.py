"""Next-sentence prediction and sentence order: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class NextSentence(Objective):
    """Whether the second segment follows the first, or is from another document (Devlin et al. 2019)."""

    name: ClassVar[str] = "nsp"
    needs_pairs: ClassVar[bool] = True
    classifies_pairs: ClassVar[bool] = True
    needs_output: ClassVar[bool] = False

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.pairs import NextSentenceHead

        return NextSentenceHead(self, recipe, vocabulary)

    @property
    def predicted(self) -> float:
        return 0.0  # one for each sequence

    def published_noise(self) -> dict[str, float]:
        return {"negative": 0.5}


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(NextSentence):
    """Whether two segments are in the order of the text, or swapped (Lan et al. 2020)."""

    name: ClassVar[str] = "sop"

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.pairs import SentenceOrderHead

        return SentenceOrderHead(self, recipe, vocabulary)
