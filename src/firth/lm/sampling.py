"""The distribution that the next token is sampled from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, RecipeError

_COLDEST = 1e-100  # a temperature below which logits overflow, and which is greedy anyway


def sampling_probabilities(
    log_probabilities: npt.NDArray[np.float64], *, temperature: float, top_k: int | None, top_p: float | None
) -> npt.NDArray[np.float64]:
    """The distribution to sample from: with temperature, top-k and top-p (nucleus) truncation.

    >>> sampling_probabilities(np.log([0.5, 0.3, 0.2]), temperature=1.0, top_k=2, top_p=None).round(3).tolist()
    [0.625, 0.375, 0.0]
    """
    if not temperature >= 0:
        raise RecipeError(f"temperature={temperature} must not be below 0; 0 always takes the likeliest.")
    if temperature < _COLDEST:
        return np.asarray(np.arange(log_probabilities.size) == log_probabilities.argmax(), dtype=np.float64)
    weights = log_probabilities / temperature
    weights = np.exp(weights - weights.max())
    if not np.isfinite(weights.sum()):
        raise ArtifactError("the model gives no probabilities but NaN: its weights are damaged; train it again.")
    order = np.argsort(-weights, kind="stable")
    if top_k is not None:
        weights[order[top_k:]] = 0
    if top_p is not None:
        reached = np.cumsum(weights[order]) / weights.sum()
        weights[order[int(np.searchsorted(reached, top_p)) + 1 :]] = 0
    return np.asarray(weights / weights.sum())
