"""Models in use for texts in one of their languages."""

from __future__ import annotations

from typing import Any

from firth.errors import AbilityError
from firth.progress import note


def has_languages(model: Any) -> bool:
    """Whether a model reads texts in a language."""
    return bool(getattr(model, "languages", ()))


def in_language(model: Any, language: str | None) -> Any:
    """The model for texts in that language; by default the language of each text is that of its script, and noted."""
    if language is not None:
        if not has_languages(model):
            raise AbilityError(
                f"a {type(model).__name__} without language embeddings reads all languages alike: leave --language out."
            )
        return model.in_language(language)
    if has_languages(model):
        if chosen := model.recipe.language:
            note(f"texts are read in {chosen}: --language names another")
        else:
            names = ", ".join(model.languages)
            note(f"the language of each text ({names}) is chosen by its script, the first if unclear: or --language")
    return model
