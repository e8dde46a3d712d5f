"""Networks without the n-gram model beside them, for formats that have no place for it."""

from __future__ import annotations

from typing import Any

from firth.nets.with_ngrams import NgramNet
from firth.progress import note


def network_alone(model: Any, name: str) -> Any:
    """A model without its n-gram model, which a note says; any other model as it is."""
    if not isinstance(model, NgramNet):
        return model
    note(f"{name} has no place for the n-gram model: left out, so that scores are those of the network alone")
    alone = model.alone
    alone.card = getattr(model, "card", "")  # type: ignore[attr-defined]
    return alone
