"""InterpolatedModel: a weighted sum of the probabilities of language models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.decoding.sampling import Sampling
from firth.lm.language_model import LanguageModel, LogProbs, TokenStream
from firth.lm.text_generator import TextGenerator


class InterpolatedModel(LanguageModel):
    """p(w | h) = sum of l_k p_k(w | h), of language models over the same tokens."""

    carries_context: ClassVar[bool] = True

    parts: list[LanguageModel]
    weights: npt.NDArray[np.float64]

    def token_logprobs(self, stream: TokenStream) -> LogProbs:
        return self._interpolate([part.token_logprobs(stream) for part in self.parts])

    def continue_document(self, stream: TokenStream, context: Any, keep: bool) -> tuple[LogProbs, Any]:
        contexts = context or [None] * len(self.parts)
        found = [part.continue_document(stream, one, keep) for part, one in zip(self.parts, contexts, strict=True)]
        return self._interpolate([logs for logs, _ in found]), [after for _, after in found] if keep else None

    def next_logprobs(self, history: Sequence[int]) -> LogProbs:
        return self._interpolate([part.next_logprobs(history) for part in self.parts])

    def continuations(
        self, history: Sequence[int], count: int, length: int, sampling: Sampling, beams: int = 1
    ) -> list[list[int]]:
        return TextGenerator.continuations(self, history, count, length, sampling, beams)

    def continuation_steps(self, history: Sequence[int], length: int, sampling: Sampling) -> Iterator[list[int]]:
        return TextGenerator.continuation_steps(self, history, length, sampling)

    def _interpolate(self, logs: Sequence[LogProbs]) -> LogProbs:
        """The log of the weighted sum of probabilities, without leaving log space."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(np.array(logs) + np.log(self.weights)[:, None], axis=0))
