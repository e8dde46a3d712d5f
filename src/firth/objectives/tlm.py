"""Translation language modelling: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Source
from firth.nets.recipe import NetRecipe
from firth.objectives.mlm import MaskedLM


@dataclass(frozen=True, kw_only=True)
class TranslationLM(MaskedLM):
    """Masked tokens of a text and of its translation are predicted from both (Lample and Conneau 2019)."""

    name: ClassVar[str] = "tlm"
    source: ClassVar[Source] = "translations"

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if not recipe.embedding.languages:
            raise RecipeError(
                "tlm reads texts in two languages, and embedding.languages=0: set embedding.languages=2, or train xlm."
            )
