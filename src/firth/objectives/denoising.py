"""Denoising of documents: settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.restoring import RestoringObjective

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead

_STATED = 6  # words of spans whose shares are stated


@dataclass(frozen=True, kw_only=True)
class Denoising(RestoringObjective):
    """A text is predicted from itself with noise of five kinds, in this order (Lewis et al. 2020)."""

    permute: float = 1.0
    """Fraction of the sentences of a text whose order is changed at random."""
    mask: float = 0.0
    """Fraction of the tokens that are masked."""
    delete: float = 0.0
    """Fraction of the tokens that are deleted."""
    infill: float = 0.3
    """Fraction of the words that are replaced in spans, each of them by one mask; none of its words: a mask more."""
    span_length: float = 3.0
    """Mean of the Poisson distribution of the words of a span."""
    rotate: float = 0.0
    """Fraction of the texts that are rotated to begin with a random token."""

    name: ClassVar[str] = "denoising"
    needs_sentences: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("permute", "infill", "rotate"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(f"denoising.{name}={getattr(self, name)} must be from 0 to 1.")
        for name in ("mask", "delete"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"denoising.{name}={getattr(self, name)} must be 0 or more and below 1.")
        if not 0 < self.span_length <= 20:
            raise RecipeError(f"denoising.span_length={self.span_length} must be above 0 and at most 20, such as 3.")
        if not any((self.permute, self.mask, self.delete, self.infill, self.rotate)):
            raise RecipeError("denoising without any noise copies its text: set denoising.infill=0.3, say.")

    def span_probabilities(self) -> list[float]:
        """The Poisson probabilities of 0, 1, ... words, up to 99.

        >>> [round(one, 3) for one in Denoising().span_probabilities()[:3]]
        [0.05, 0.149, 0.224]
        """
        mean = self.span_length
        return [math.exp(number * math.log(mean) - mean - math.lgamma(number + 1)) for number in range(100)]

    def published_noise(self) -> dict[str, float]:
        found = {"masked": self.mask, "deleted": self.delete, "words in spans": self.infill, "rotated": self.rotate}
        if self.infill:
            found["mean span"] = self.span_length
            found |= {f"spans of {n}": share for n, share in enumerate(self.span_probabilities()[:_STATED])}
        return {name: value for name, value in found.items() if value}

    @property
    def sides(self) -> tuple[float, float]:
        return (1 - self.infill + self.infill / self.span_length) * (1 - self.delete), 1.0

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.denoising import DenoisingHead

        rates = (self.permute, self.mask, self.delete, self.infill, self.rotate)
        return DenoisingHead(self, recipe, vocabulary, rates, self.span_probabilities())

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.denoising import DenoisingNet

        return DenoisingNet
