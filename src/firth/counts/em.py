"""What models made of other models share: weights found by EM, and the arrays of all parts in one artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _adaptive_kernels as kernels
from firth.errors import ArtifactError, RecipeError
from firth.tokens.language import Stream
from firth.tokens.tokenizer import EOS

MOST_ROUNDS = 500
SMALLEST_GAIN = 1e-9
"""EM ends when the log-likelihood grows by less than this share of itself."""


class Weights(NamedTuple):
    """The weights of a linear mixture, and how they were found."""

    weights: npt.NDArray[np.float64]
    history: npt.NDArray[np.float64]
    """The log-likelihood of the text (with a prior, that of the prior added) before every round and after the last."""
    left_out: int
    """Tokens to which no part gives any probability: they say nothing about the weights."""


def em_weights(
    probabilities: npt.NDArray[np.float64],
    start: npt.NDArray[np.float64] | None = None,
    prior: npt.NDArray[np.float64] | None = None,
) -> Weights:
    """The weights that make a text likeliest under a mixture of models (Jelinek and Mercer, 1980).

    `probabilities[k, t]` is what model k gives to token t of a text that it has not seen. Each round gives a model the
    share of the tokens that it explains. The likelihood has one maximum, so where EM begins does not matter, as long as
    every weight of `start` is above 0. `prior[k]` is a number of imagined tokens that model k alone explains: it keeps
    the weights sensible where there is little text.

    >>> found = em_weights(np.array([[0.5, 0.5, 0.1], [0.1, 0.1, 0.5]]))
    >>> found.weights.round(4).tolist()
    [0.75, 0.25]
    """
    parts = _checked(probabilities)
    weights = np.full(len(parts), 1 / len(parts)) if start is None else _normalised(start, len(parts))
    imagined = np.zeros(len(parts)) if prior is None else np.asarray(prior, dtype=np.float64)
    shares = np.empty(len(parts))
    history: list[float] = []
    left_out = 0
    for _ in range(MOST_ROUNDS + 1):
        likelihood, left_out = kernels.em_round(parts, weights, shares)
        likelihood += _log_prior(imagined, weights)
        history.append(float(likelihood))
        total = parts.shape[1] - left_out + imagined.sum()
        if total == 0 or (len(history) > 1 and history[-1] - history[-2] < SMALLEST_GAIN * abs(history[-2])):
            break
        if len(history) <= MOST_ROUNDS:
            weights = (shares + imagined) / total
    return Weights(weights / weights.sum(), np.array(history), int(left_out))


def going_on_stream(history: Sequence[int]) -> Stream:
    """A history as the stream of one text; the sentence that goes on has been given an end.

    >>> stream = going_on_stream([5, EOS, 6, 7])
    >>> stream.ids.tolist(), stream.bounds.tolist()
    ([5, 3, 6, 7, 3], [0, 2, 5])
    """
    ids = np.array([*history, EOS], dtype=np.uint32)
    ends = np.flatnonzero(ids == EOS) + 1
    fresh = np.zeros(ends.size, dtype=np.bool_)
    fresh[0] = True
    return Stream(ids, np.concatenate([[0], ends]), fresh)


def resets(stream: Stream) -> npt.NDArray[np.bool_]:
    """Before which tokens a model that remembers forgets."""
    flags = np.zeros(stream.ids.size, dtype=np.bool_)
    flags[stream.bounds[:-1][stream.fresh]] = True
    return flags


def prefixed(name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a part as the whole keeps them.

    >>> list(prefixed("base", {"words": np.zeros(1)}))
    ['base.words']
    """
    return {f"{name}.{key}": array for key, array in arrays.items()}


def arrays_of(name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one part of a saved model, under the names that the part gave them.

    >>> list(arrays_of("base", {"base.words": np.zeros(1), "weights": np.zeros(1)}))
    ['words']
    """
    start = name + "."
    return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}


def saved_array(
    arrays: Mapping[str, npt.NDArray[Any]], name: str, dtype: Any, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """An array of a saved model, after a look at its type and shape; None in `shape` stands for any length."""
    found = arrays.get(name)
    fits = found is not None and found.dtype == dtype and found.ndim == len(shape)
    if found is None or not fits or any(w not in (None, f) for w, f in zip(shape, found.shape, strict=True)):
        wanted = " x ".join("any" if length is None else str(length) for length in shape)
        raise ArtifactError(f"the array {name!r} is missing or not {np.dtype(dtype)} of {wanted}: train it again.")
    return found


def saved_weights(arrays: Mapping[str, npt.NDArray[Any]], name: str, shape: tuple[int | None, ...]) -> Any:
    """Saved weights: none below 0, and each row adds up to 1."""
    found = saved_array(arrays, name, np.float64, shape)
    if not (found.size and np.all(found >= 0) and np.allclose(found.sum(axis=-1), 1, rtol=0, atol=1e-9)):
        raise ArtifactError(f"the weights in {name!r} do not add up to 1: train the model again.")
    return found


def _checked(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    parts = np.ascontiguousarray(probabilities, dtype=np.float64)
    if parts.ndim != 2 or not len(parts):
        raise RecipeError("a mixture needs at least one part: give an array of parts x tokens.")
    if not (np.all(parts >= 0) and np.all(np.isfinite(parts))):
        raise RecipeError("the parts of a mixture must give probabilities, not negative or infinite numbers or NaN.")
    return parts


def _normalised(start: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    weights = np.asarray(start, dtype=np.float64)
    if weights.shape != (count,) or not (np.all(weights > 0) and np.all(np.isfinite(weights))):
        raise RecipeError(f"EM never changes a weight of 0: start with {count} weights above 0.")
    return np.asarray(weights / weights.sum())


def _log_prior(imagined: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    held = imagined > 0
    return float(np.sum(imagined[held] * np.log(weights[held])))
