"""Objectives with sequences of their own: what their settings have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from firth.errors import RecipeError
from firth.nets.combination import CONTIGUOUS
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe


@dataclass(frozen=True, kw_only=True)
class LaidOutObjective(Objective):
    """Classifies sequences of several segments that it makes of the text, in batches of their own.

    Objectives of single tokens are trained on these batches, too; other classifications of sequences are not.
    """

    lays_out: ClassVar[bool] = True
    needs_output: ClassVar[bool] = False
    task: ClassVar[int]
    """Its row of the task embedding; 0 is that of the text."""
    column: ClassVar[str] = ""
    """The column of the token store that tells its examples."""
    material: ClassVar[str] = "documents of two sentences"
    """What the text must have."""
    least: ClassVar[float] = 0.0
    """The fraction of the sentences below which examples are taken for chance."""

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        form, tasks = recipe.sequence.format, recipe.embedding.tasks
        if form in CONTIGUOUS or form in ("consecutive", "parallel"):
            raise RecipeError(
                f"{self.name} makes sequences of its own, which do not go with sequence.format={form}: set "
                "sequence.format=segment-pair or doc-sentences."
            )
        if 0 < tasks <= self.task:
            raise RecipeError(
                f"embedding.tasks={tasks} is too few for {self.name}, which is number {self.task}: set it to "
                f"{self.task + 1}, or to 0 for none."
            )

    @property
    def requires(self) -> tuple[str, ...]:
        return (self.column,) if self.column else ()

    @property
    def stages(self) -> tuple[float, ...]:
        """Its sequences are made while it is trained."""
        return tuple(bound for bound in (self.begin, self.end) if 0 < bound < 1)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return 2

    @property
    def predicted(self) -> float:
        return 0.0  # one for each sequence

    def lacks(self, store: Any) -> str:
        if self.column and self.column not in store.columns:
            return self.material
        if self.column:
            share = np.count_nonzero(store.columns[self.column][store.sentences[:-1]]) / store.info.sentences
            return "" if share > self.least else self.material
        return "" if (np.diff(store.documents.astype(np.int64)) > 1).any() else self.material

    def published_noise(self) -> dict[str, float]:
        return {f"class {number}": 1 / self.classes for number in range(self.classes)}
