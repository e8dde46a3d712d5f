"""Recipes of sentence encoders."""

from __future__ import annotations

from dataclasses import replace

from firth.nets.recipe import NetRecipe
from firth.objectives.contrastive import Contrastive
from firth.recipes.nets import bert


def simcse() -> NetRecipe:
    """BERT trained so that a sentence is nearest to itself, read again with other dropout."""
    base = bert()
    return replace(
        base,
        objectives=(Contrastive(),),
        output=replace(base.output, kind="none"),
        sequence=replace(base.sequence, format="sentences"),
    )
