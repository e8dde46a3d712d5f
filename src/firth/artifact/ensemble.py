"""Linear interpolation of language models of any family: an n-gram model with a cache and an LSTM, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts.em import add_prefix
from firth.lm.interpolation import InterpolatedModel
from firth.lm.language_model import LanguageModel
from firth.recipes.ensemble import EnsembleRecipe


class EnsembleModel(InterpolatedModel):
    """Language models of any kind over the same tokens; the first one spells unknown words."""

    def __init__(
        self, recipe: EnsembleRecipe, parts: Sequence[LanguageModel], weights: npt.NDArray[np.float64]
    ) -> None:
        super().__init__(recipe, parts[0].tokenizer, parts[0].layout, parts[0].unknown_word_model)
        self.parts = list(parts)
        self.weights = weights

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights}
        for number, part in enumerate(self.parts):
            arrays |= add_prefix(f"part{number}", part.arrays())
        return arrays
