"""Linear interpolation of language models of any family: an n-gram model with a cache and an LSTM, say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.counts.em import add_prefix, saved_weights, strip_prefix
from firth.errors import ArtifactError
from firth.lm.language_model import LanguageModel, TokenStream
from firth.recipes.ensemble import EnsembleRecipe
from firth.recipes.values import recipe_from_json
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer


class EnsembleModel(LanguageModel):
    """Language models of any kind over the same tokens; the first one spells unknown words."""

    carries_context: ClassVar[bool] = True

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

    def token_logprobs(self, stream: TokenStream) -> npt.NDArray[np.float64]:
        return self._interpolate([part.token_logprobs(stream) for part in self.parts])

    def next_logprobs(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        return self._interpolate([part.next_logprobs(history) for part in self.parts])

    def _interpolate(self, logs: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """The log of the weighted sum of probabilities, without leaving log space."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(np.array(logs) + np.log(self.weights)[:, None], axis=0))


def restore_ensemble(
    recipe: EnsembleRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> EnsembleModel:
    """The model of a saved artifact's arrays."""
    weights = saved_weights(arrays, "weights", (None,))
    try:
        recipes = [recipe_from_json(dict(one)) for one in json.loads(recipe.parts)]
    except (ValueError, TypeError):
        recipes = []
    if len(recipes) != weights.size:
        raise ArtifactError("the recipe does not say what the parts of the mixture are: mix them again.")
    parts = []
    for number, one in enumerate(recipes):
        own = strip_prefix(f"part{number}", arrays)
        part: Any = None
        if isinstance(one, EnsembleRecipe):
            part = restore_ensemble(one, own, tokenizer, layout)
        elif not isinstance(one, TokenizerRecipe):
            part = one.restore(own, tokenizer, layout)
        if not isinstance(part, LanguageModel):
            raise ArtifactError(f"part {number} of the mixture is no language model: mix them again.")
        parts.append(part)
    return EnsembleModel(recipe, parts, weights)
