"""The distribution that the next token is sampled from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import ArgumentError, ArtifactError

COLDEST = 1e-100  # a temperature below which logits overflow, and which is greedy anyway


class Sampling(NamedTuple):
    """Sampling parameters; temperature 0 is greedy decoding."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether the distribution is that of the model."""
        return self.temperature == 1 and self.top_k is None and self.top_p is None

    def check(self) -> None:
        """Raise `ArgumentError` if a parameter is out of range."""
        if not 0 <= self.temperature < np.inf:
            raise ArgumentError(f"--temperature is {self.temperature}: give 0 (greedy decoding) or above.")
        if self.top_k is not None and self.top_k < 1:
            raise ArgumentError(f"--top-k is {self.top_k}, which leaves no token: give 1 or more.")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ArgumentError(f"--top-p is {self.top_p}: give 0 to 1.")


def sampling_probabilities(log_probabilities: npt.NDArray[np.float64], sampling: Sampling) -> npt.NDArray[np.float64]:
    """The distribution to sample from: with temperature, top-k and top-p (nucleus) truncation.

    >>> sampling_probabilities(np.log([0.5, 0.3, 0.2]), Sampling(top_k=2)).round(3).tolist()
    [0.625, 0.375, 0.0]
    """
    if sampling.temperature < COLDEST:
        return np.asarray(np.arange(log_probabilities.size) == log_probabilities.argmax(), dtype=np.float64)
    weights = log_probabilities / sampling.temperature
    weights = np.exp(weights - weights.max())
    if not np.isfinite(weights.sum()):
        raise ArtifactError("the model gives no probabilities but NaN: its weights are damaged; train it again.")
    order = np.argsort(-weights, kind="stable")
    if sampling.top_k is not None:
        weights[order[sampling.top_k :]] = 0
    if sampling.top_p is not None:
        reached = np.cumsum(weights[order]) / weights.sum()
        weights[order[int(np.searchsorted(reached, sampling.top_p)) + 1 :]] = 0
    return np.asarray(weights / weights.sum())
