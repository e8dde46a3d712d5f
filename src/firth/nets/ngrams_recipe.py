"""NgramsRecipe: the n-gram model beside a causal network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firth.errors import RecipeError
from firth.nets.field_checks import check_fractions, check_ranges

if TYPE_CHECKING:
    from firth.nets.recipe import NetRecipe


@dataclass(frozen=True, kw_only=True)
class NgramsRecipe:
    """An n-gram model of the training text, whose probabilities are interpolated with those of the network.

    It reads in seconds what a network reads in hours, and remembers names and phrases; the network generalises.
    """

    order: int = 0
    """Length of the longest n-grams (modified Kneser-Ney); 0: no n-gram model."""
    prune: float = 1e-8
    """Drop n-grams whose removal raises the perplexity by less than this fraction (Stolcke 1998); 0: none."""
    cache: int = 3
    """Length of the longest n-grams of a cache of the document's last words, at most 3; 0: no cache."""
    decay: float | None = None
    """The decay rate of the cache, which training fits."""

    def __post_init__(self) -> None:
        check_ranges(self, order=(0, 8), cache=(0, 3))
        check_fractions(self, "prune")
        if self.decay is not None and not 0 <= self.decay <= 10:
            raise RecipeError(f"ngrams.decay={self.decay} must be from 0 to 10, or none to fit it on held-out text.")

    def check(self, recipe: NetRecipe) -> None:
        """Raise `RecipeError` unless the network predicts from left to right."""
        if not self.order:
            return
        is_mixed = any(one.predicts_early for one in recipe.objectives)
        if not ("next" in recipe.predicts or is_mixed) or recipe.visibility == "forward+backward":
            raise RecipeError(
                "an n-gram model predicts the next token, so that it is mixed with networks that read from left to "
                f"right, such as gpt2 and gpt-bert: set ngrams.order=0 (it is {self.order})."
            )
        if recipe.embedding.languages or recipe.memory.length or recipe.decoder is not None:
            raise RecipeError(
                "an n-gram model is mixed with networks of one language without memory and decoder: set ngrams.order=0 "
                f"(it is {self.order})."
            )
