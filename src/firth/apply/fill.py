"""What stands at the hidden places of a text."""

from __future__ import annotations

from typing import Any

from firth.abilities import Fills
from firth.errors import AbilityError


def fill_text(model: Any, text: str, top: int = 5) -> list[list[dict[str, Any]]]:
    """For each mask of a text the likeliest tokens, each with its probability and, if it is the only mask, the text."""
    return [[one._asdict() for one in mask] for mask in require_fills(model).fill(text, top)]


def require_fills(model: Any) -> Fills:
    """The model, if it fills masks; `AbilityError` otherwise."""
    if not isinstance(model, Fills):
        raise AbilityError(
            f"a {type(model).__name__} fills no masks: use a masked model, such as bert or roberta; a language model "
            "goes on with a text by firth generate."
        )
    return model
