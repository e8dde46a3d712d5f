"""Sentence reordering: settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.layouts import LaidOutObjective

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class SentenceReordering(LaidOutObjective):
    """The order of the shuffled segments of a paragraph, one class for each order (Sun et al. 2020)."""

    segments: int = 3
    """Segments of a paragraph, at most."""
    name: ClassVar[str] = "reordering"
    task: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.segments <= 5:
            raise RecipeError(f"reordering.segments={self.segments} must be from 2 to 5.")

    @property
    def classes(self) -> int:
        """1! + 2! + ... of them.

        >>> SentenceReordering().classes, SentenceReordering(segments=4).classes
        (9, 33)
        """
        return sum(math.factorial(number) for number in range(1, self.segments + 1))

    def published_noise(self) -> dict[str, float]:
        """The number of segments is uniform, and so is the order."""
        counts = range(1, self.segments + 1)
        shares = [1 / self.segments / math.factorial(n) for n in counts for _ in range(math.factorial(n))]
        return {f"class {number}": share for number, share in enumerate(shares)}

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.reordering import ReorderingHead

        return ReorderingHead(self, recipe, vocabulary, self.segments)
