"""LinearRecipe: a linear model on n-grams, or on words and their neighbours, and the task that it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal

from firth.errors import RecipeError
from firth.tasks.schemes import Scheme
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

_FORMS = {"classify": ("single", "multi"), "pair": ("single", "number"), "tag": ("single",)}


@dataclass(frozen=True, kw_only=True)
class LinearRecipe:
    """A linear model that does a task."""

    task: Literal["classify", "pair", "tag"] = "classify"
    form: Literal["single", "multi", "number"] = "single"
    """classify: one label or several; pair: a label or a number; tag: one of each word."""
    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    labels: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Where the parts of examples stand in files, as ROLE=NAME."""
    features: Literal["auto", "tokens", "characters"] = "auto"
    """What n-grams are made of; auto: of tokens, but of characters where the tokens are words and the text is Chinese,
    because words of Chinese are many and a vocabulary from another text knows too few of them. tag: whether words are
    looked at with their beginnings and endings, or characters with their neighbours, which suits single ones."""
    ngrams: int = 2
    """The longest n-grams; all shorter ones are there, too."""
    min_count: int = 2
    """n-grams that fewer texts have, or features that fewer words have, are left out."""
    weighting: Literal["tfidf", "binary", "counts"] = "tfidf"
    cost: float | Literal["auto"] = "auto"
    """C of logistic regression, or of the field over tags: what errors cost beside the squared length of the weights;
    auto: what is best on the dev examples."""
    scheme: Scheme = "plain"
    """tag: how tags mark entities, which answers never break."""
    home: ClassVar[str] = "firth.tasks.linear"

    def __post_init__(self) -> None:
        if self.form not in _FORMS[self.task]:
            raise RecipeError(f"form={self.form} does not go with {self.task}: leave it out.")
        if not 1 <= self.ngrams <= 6:
            raise RecipeError(f"ngrams={self.ngrams} must be from 1 to 6.")
        if self.min_count < 1:
            raise RecipeError(f"min_count={self.min_count} must be 1 or more.")
        if self.cost != "auto" and not 0 < self.cost < math.inf:
            raise RecipeError(f"cost={self.cost} must be a number above 0, or auto.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "tasks"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> LinearRecipe:
        """The same with another tokenizer."""
        return replace(self, tokenizer=tokenizer)

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> Any:
        """The model of a saved artifact's arrays."""
        home = f"{self.home}_tag" if self.task == "tag" else self.home
        return import_module(home).restore(self, arrays, tokenizer)
