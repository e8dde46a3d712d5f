"""Count models: probabilities from how often things occur."""

from __future__ import annotations

from firth.counts.unigram import UnigramRecipe


def unigram() -> UnigramRecipe:
    """Words by their frequency alone, one added to every count."""
    return UnigramRecipe()
