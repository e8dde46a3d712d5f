"""LinearPart: a linear model of a task beside the head of a network, whose scores are mixed with those of the head.

The mixture  score = (1 - weight) * score of the head + weight * score of the linear model  is a logarithmic opinion
pool: of two softmax or logistic models it is another one, of two linear-chain CRFs another CRF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts.em import add_prefix, strip_prefix
from firth.errors import ArtifactError
from firth.tasks.examples import Example
from firth.tasks.linear_classifier import LinearClassifier, restore_linear
from firth.tasks.linear_tagger import LinearTagger, restore_tagger
from firth.tasks.recipe import TaskRecipe
from firth.tokens.tokenizer import Tokenizer

PREFIX = "linear"
"""Of the names of its arrays."""


@dataclass(frozen=True)
class LinearPart:
    """A linear model and its weight, from 0 to 1."""

    model: LinearClassifier | LinearTagger
    weight: float

    def scores(self, examples: Sequence[Example]) -> list[npt.NDArray[np.float64]]:
        """For each example (labels), or (words, labels) of a sentence to tag."""
        return self.model.scores(examples)

    def mix(self, own: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Scores of the head mixed with those of the linear model."""
        return np.asarray((1 - self.weight) * own.astype(np.float64) + self.weight * added)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the artifact."""
        return add_prefix(PREFIX, self.model.arrays())


def split_arrays(
    arrays: Mapping[str, npt.NDArray[Any]],
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """The arrays of a linear part, without their prefix, and all others."""
    others = {name: array for name, array in arrays.items() if not name.startswith(f"{PREFIX}.")}
    return strip_prefix(PREFIX, arrays), others


def restore_linear_part(
    recipe: TaskRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer
) -> LinearPart | None:
    """The linear part of a recipe, if it has one, from its arrays, which are checked."""
    if recipe.linear is None:
        if arrays:
            raise ArtifactError("the recipe has no linear part, but the weights do: copy the folder again.")
        return None
    restore = restore_tagger if recipe.task == "tag" else restore_linear
    return LinearPart(restore(recipe.linear, arrays, tokenizer), recipe.linear_weight)
