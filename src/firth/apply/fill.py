"""Predictions of masked tokens."""

from __future__ import annotations

from typing import Any

from firth.abilities import Fills
from firth.errors import AbilityError


def fill_text(model: Any, text: str, top: int = 5) -> list[list[dict[str, Any]]]:
    """The most probable tokens for each mask of a text, with probabilities and, for a single mask, the text."""
    return [[one._asdict() for one in mask] for mask in require_fills(model).fill(text, top)]


def require_fills(model: Any) -> Fills:
    """The model if it fills masks, or else `AbilityError`."""
    if not isinstance(model, Fills):
        raise AbilityError(
            "this model fills no masks: use a masked model, such as bert or roberta; a language model continues a "
            "text with firth generate."
        )
    return model
