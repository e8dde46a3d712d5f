"""EnsembleRecipe: trained language models of any family, interpolated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from firth.tokens.recipe import TokenizerRecipe


@dataclass(frozen=True, kw_only=True)
class EnsembleRecipe:
    """Language models over the same tokens, with weights fitted to held-out text: p = sum of l_k p_k."""

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    models: str = ""
    """The names of the models, separated by commas."""
    parts: str = "[]"
    """Their recipes as JSON."""

    @property
    def kind(self) -> str:
        """The kind of artifact that this recipe makes."""
        return "mixture"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> EnsembleRecipe:
        """The same recipe with another tokenizer."""
        return replace(self, tokenizer=tokenizer)
