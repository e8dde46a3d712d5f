"""The heads of a recipe's objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from firth.nets.network import Network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead


def make_heads(recipe: NetRecipe, network: Network) -> dict[str, ObjectiveHead]:
    """The heads of the objectives of a recipe, by name, for a network of it."""
    return {one.name: cast(ObjectiveHead, one.build(recipe, network.vocabulary, network)) for one in recipe.objectives}


def union_positions(positions: Sequence[Tensor | None]) -> Tensor | None:
    """The sorted union of positions; None if any of them is None."""
    given = [one for one in positions if one is not None]
    if len(given) < len(positions):
        return None
    return given[0] if len(given) == 1 else torch.unique(torch.cat(given))
