"""Linear interpolation of language models of any family: an n-gram model with a cache and an LSTM, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.counts.em import add_prefix
from firth.lm.language_model import LanguageModel, TokenStream
from firth.recipes.ensemble import EnsembleRecipe


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

    def continue_document(self, stream: TokenStream, context: Any, keep: bool) -> tuple[npt.NDArray[np.float64], Any]:
        contexts = context or [None] * len(self.parts)
        found = [part.continue_document(stream, one, keep) for part, one in zip(self.parts, contexts, strict=True)]
        return self._interpolate([logs for logs, _ in found]), [after for _, after in found] if keep else None

    def next_logprobs(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        return self._interpolate([part.next_logprobs(history) for part in self.parts])

    def _interpolate(self, logs: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """The log of the weighted sum of probabilities, without leaving log space."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(np.array(logs) + np.log(self.weights)[:, None], axis=0))
