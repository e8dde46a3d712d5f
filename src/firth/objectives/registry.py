"""The objectives of a recipe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.objectives.bilm import BidirectionalLM
from firth.objectives.clm import Autoencoding, CausalLM
from firth.objectives.mlm import MaskedLM
from firth.objectives.objective import Objective
from firth.objectives.pairs import NextSentence, SentenceOrder
from firth.objectives.ranking import Ranking

_OBJECTIVES: dict[str, type[Objective]] = {
    one.name: one for one in (CausalLM, BidirectionalLM, MaskedLM, NextSentence, SentenceOrder, Autoencoding, Ranking)
}


def make_objectives(recipe: NetRecipe, vocabulary: Vocabulary) -> dict[str, Objective]:
    """The objectives of a recipe by name."""
    return {name: _OBJECTIVES[name](recipe, vocabulary) for name in recipe.names}


def union_positions(positions: Sequence[Tensor | None]) -> Tensor | None:
    """The sorted union of positions; None if any of them is None."""
    given = [one for one in positions if one is not None]
    if len(given) < len(positions):
        return None
    return given[0] if len(given) == 1 else torch.unique(torch.cat(given))
