"""Masked fragments: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.restoring import RestoringObjective

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class MaskedFragment(RestoringObjective):
    """A fragment of a text is predicted from the rest, and from the tokens before it (Song et al. 2019)."""

    rate: float = 0.5
    """Length of the fragment as a fraction of the sequence."""
    at_start: float = 0.2
    """Probability that the fragment begins with the first token of the text."""
    at_end: float = 0.2
    """Probability that it ends with the sequence; otherwise it is anywhere."""
    mask: float = 0.8
    """Fraction of the fragment's tokens that the encoder reads as masks."""
    random: float = 0.1
    """Fraction that it reads as random tokens. The rest is kept."""

    name: ClassVar[str] = "fragment"
    hides_masks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise RecipeError(f"fragment.rate={self.rate} must be above 0 and below 1, such as 0.5.")
        for one, two in (("at_start", "at_end"), ("mask", "random")):
            first, second = getattr(self, one), getattr(self, two)
            if not (first >= 0 and second >= 0 and first + second <= 1):  # or one is NaN
                raise RecipeError(f"fragment.{one} and fragment.{two} must be from 0 to 1, and at most 1 together.")

    def published_noise(self) -> dict[str, float]:
        anywhere = 1 - self.at_start - self.at_end
        return {
            "chosen": self.rate,
            "masked": self.mask,
            "random": self.random,
            "kept": 1 - self.mask - self.random,
            "fragments at the start": self.at_start,
            "fragments at the end": self.at_end,
            "fragments anywhere": anywhere,
        }

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.fragments import MaskedFragmentHead

        rates = (self.rate, self.at_start, self.at_end, self.mask, self.random)
        return MaskedFragmentHead(self, recipe, vocabulary, rates)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.fragments import FragmentNet

        return FragmentNet

    @property
    def predicted(self) -> float:
        return self.rate
