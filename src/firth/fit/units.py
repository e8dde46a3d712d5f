"""The columns of phrases and entities that a recipe requires of a text, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firth.errors import ArgumentError, CorpusError
from firth.fit.knowledge import Knowledge
from firth.nets.recipe import NetRecipe
from firth.objectives.masking import COLUMNS
from firth.progress import note
from firth.tokens.columns import BEGINS, Column
from firth.tokens.gazetteer import Gazetteer
from firth.tokens.store import TokenStore
from firth.tokens.structure import make_columns

_EVERYTHING = 0.9  # of the tokens, from which on a gazetteer tells nothing
_BLOCK = 1 << 24  # values read at a time


def recipe_columns(
    recipe: NetRecipe, gazetteer: Gazetteer | None, knowledge: Knowledge | None = None
) -> tuple[Column, ...]:
    """The columns that a recipe requires; raises if it does not mask the entities that are given."""
    if gazetteer is not None and not {"entities", "links"} & {*recipe.columns} and not recipe.entities.width:
        raise ArgumentError(
            "--entities is for recipes that mask or read entities, such as ernie: leave it out, or set "
            "mlm.masking.policy=entity."
        )
    return make_columns(recipe.columns, gazetteer, () if knowledge is None else knowledge.annotated)


def note_units(names: Sequence[str], store: TokenStore, gazetteer: Gazetteer | None) -> None:
    """Note how many phrases and entities a training text has; a gazetteer that has none of them is an error."""
    found = []
    for name in (one for one in COLUMNS.values() if one in names):
        spans, tokens = count_spans(store, name)
        share = tokens / max(len(store), 1)
        if name == "entities" and gazetteer is not None and not spans:
            raise CorpusError(
                f"none of the {len(gazetteer.entries):,} entities of {gazetteer.file} occurs in the text: "
                "name another file with --entities, or leave it out."
            )
        if not spans:
            advice = "; give some with --entities" if name == "entities" else ""
            note(f"there are no {name} in the text: words are masked in their place{advice}")
        elif share > _EVERYTHING:
            note(f"{share:.0%} of the text are {name}: masking them is hardly different from masking anything")
        else:
            found.append(f"{spans:,} {name} ({share:.0%} of the tokens)")
    if found:
        note("found in the text: " + " and ".join(found))


def count_spans(store: TokenStore, name: str) -> tuple[int, int]:
    """The number of spans of a column, and of their tokens."""
    spans = tokens = 0
    for begin in range(0, len(store), _BLOCK):
        values = store.columns[name][begin : begin + _BLOCK]
        spans, tokens = spans + int((values == BEGINS).sum()), tokens + int(np.count_nonzero(values))
    return spans, tokens
