"""EnsembleRecipe: trained models of any family, mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar

from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class EnsembleRecipe:
    """Language models over the same tokens, each with the weight l_k that suits held-out text: p = sum of l_k p_k."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    models: str = ""
    """The names of the models, with commas between them."""
    parts: str = "[]"
    """Their recipes as JSON."""
    home: ClassVar[str] = "firth.fit.mixing"  # recipes of all families are known there

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "mixture"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> EnsembleRecipe:
        """The same with another tokenizer."""
        return replace(self, tokenizer=tokenizer)

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> Any:
        """The model of a saved artifact's arrays."""
        return import_module(self.home).restore(self, arrays, tokenizer, layout)
