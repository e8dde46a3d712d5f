"""Vectors that another program has trained, as an artifact keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.model import VectorModel, restore_vectors
from firth.vectors.recipe import ImportedRecipe
from firth.vectors.subwords import restore_subwords


def restore(recipe: ImportedRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> VectorModel:
    """The model of a saved artifact's arrays."""
    make = restore_subwords if recipe.max_n else restore_vectors
    return make(recipe, arrays, tokenizer, layout)
