"""Which parts go together: impossible products are refused before anything is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firth.errors import RecipeError, near_miss

if TYPE_CHECKING:
    from firth.nets.recipe import NetRecipe

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "clm": ("causal",),
    "bilm": ("forward+backward",),
    "mlm": ("bidirectional",),
    "nsp": ("bidirectional",),
    "sop": ("bidirectional",),
    "autoencoding": ("causal",),
    "ranking": ("bidirectional",),
}
"""Objective -> what its states may see: what is to be predicted must not be among it."""
_PAIRS = ("segment-pair", "sentence-pair")


def check(recipe: NetRecipe) -> None:
    """Raises `RecipeError` if the parts of a recipe do not fit together."""
    for name in recipe.names:
        if name not in OBJECTIVES:
            raise RecipeError(f"there is no objective {name!r}: {near_miss(name, OBJECTIVES)}")
        if recipe.visibility not in OBJECTIVES[name]:
            raise RecipeError(
                f"{name} cannot be learnt with visibility={recipe.visibility}: set visibility={OBJECTIVES[name][0]}."
            )
    if {"nsp", "sop"} & set(recipe.names) and recipe.rows.format not in _PAIRS:
        raise RecipeError("nsp and sop judge pairs: set rows.format=segment-pair or sentence-pair.")
    if recipe.output.kind == "tied" and recipe.embedding.characters:
        raise RecipeError("vectors made from letters cannot be tied to the output: set output.kind=full.")
    if recipe.encoder.kind in ("rnn", "lstm") and recipe.visibility == "bidirectional":
        raise RecipeError("a recurrent encoder reads in one direction: set visibility=forward+backward for both.")
    if recipe.encoder.kind == "bilinear" and recipe.visibility != "causal":
        raise RecipeError("a bilinear encoder predicts from what came before: set visibility=causal.")
    if recipe.encoder.start == "neighbours" and not can_see_neighbours(recipe):
        raise RecipeError(
            "only a Transformer with learned positions that sees both sides can start with its neighbours: "
            "set encoder.start=random."
        )
    if "ranking" in recipe.names and recipe.encoder.kind != "window":
        raise RecipeError("ranking judges windows: set encoder.kind=window.")
    if recipe.embedding.segments and recipe.embedding.segments < 2 and recipe.rows.format in _PAIRS:
        raise RecipeError("pairs need embedding.segments=2, or 0 to tell them apart by the separator alone.")


def can_see_neighbours(recipe: NetRecipe) -> bool:
    """Whether heads can be made that look at the tokens beside each one."""
    learned = recipe.encoder.kind == "transformer" and recipe.embedding.positions == "learned"
    return learned and recipe.visibility == "bidirectional"
