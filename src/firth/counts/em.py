"""Shared by models made of other models: mixture weights by EM, and the arrays of all components in one artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _adaptive_kernels as kernels
from firth.counts.trie import Floats, Mask
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import TokenStream
from firth.tokens.tokenizer import EOS

MAX_ITERATIONS = 500
MIN_GAIN = 1e-9  # EM ends when the log-likelihood grows by a smaller fraction

Arrays = Mapping[str, npt.NDArray[Any]]


class EmResult(NamedTuple):
    """The weights of a linear mixture, and how EM found them."""

    weights: Floats
    history: Floats  # the log-likelihood before every iteration and after the last, with prior
    left_out: int  # tokens without probability under any component


def em_weights(probabilities: Floats, start: Floats | None = None, prior: Floats | None = None) -> EmResult:
    """The mixture weights with the highest likelihood (Jelinek and Mercer, 1980).

    `probabilities[k, t]` is the probability of token t of an unseen text under component k. The likelihood has one
    maximum, so EM reaches it from any `start` above 0. `prior[k]` is a pseudo-count of tokens explained by component k
    alone: it regularises the weights where there is little text.

    >>> found = em_weights(np.array([[0.5, 0.5, 0.1], [0.1, 0.1, 0.5]]))
    >>> found.weights.round(4).tolist()
    [0.75, 0.25]
    """
    parts = np.ascontiguousarray(probabilities, dtype=np.float64)
    if parts.ndim != 2 or not len(parts):
        raise RecipeError("a mixture needs at least one component: give an array of components x tokens.")
    if not (np.all(parts >= 0) and np.all(np.isfinite(parts))):
        raise RecipeError("the components of a mixture must give probabilities, no negative or infinite numbers.")
    weights = np.full(len(parts), 1 / len(parts)) if start is None else _normalised(start, len(parts))
    pseudo = np.zeros(len(parts)) if prior is None else np.asarray(prior, dtype=np.float64)
    expected = np.empty(len(parts))
    history: list[float] = []
    left_out = 0
    for _ in range(MAX_ITERATIONS + 1):
        likelihood, left_out = kernels.em_step(parts, weights, expected)
        likelihood += np.sum(pseudo[pseudo > 0] * np.log(weights[pseudo > 0]))
        history.append(float(likelihood))
        total = parts.shape[1] - left_out + pseudo.sum()
        if total == 0 or (len(history) > 1 and history[-1] - history[-2] < MIN_GAIN * abs(history[-2])):
            break
        if len(history) <= MAX_ITERATIONS:
            weights = (expected + pseudo) / total
    return EmResult(weights / weights.sum(), np.array(history), int(left_out))


def _normalised(start: Floats, count: int) -> Floats:
    weights = np.asarray(start, dtype=np.float64)
    if weights.shape != (count,) or not (np.all(weights > 0) and np.all(np.isfinite(weights))):
        raise RecipeError(f"EM never changes a weight of 0: start with {count} weights above 0.")
    return np.asarray(weights / weights.sum())


def floored_likelihood(logprobs: Floats) -> float:
    """The log-likelihood of a text, with impossible tokens counted as exp(-700), for the comparison of settings."""
    return float(np.maximum(logprobs, -700.0).sum())


def history_stream(history: Sequence[int]) -> TokenStream:
    """A history as the stream of one document; the last, unfinished sentence is given an end.

    >>> stream = history_stream([5, EOS, 6, 7])
    >>> stream.ids.tolist(), stream.bounds.tolist()
    ([5, 3, 6, 7, 3], [0, 2, 5])
    """
    ids = np.array([*history, EOS], dtype=np.uint32)
    ends = np.flatnonzero(ids == EOS) + 1
    return TokenStream(ids, np.concatenate([[0], ends]), np.arange(ends.size) == 0)


def document_starts(stream: TokenStream) -> Mask:
    """The mask of the first tokens of documents, where adaptive models are reset."""
    flags = np.zeros(stream.ids.size, dtype=np.bool_)
    flags[stream.bounds[:-1][stream.starts_document]] = True
    return flags


def add_prefix(name: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a component under the names of the whole model.

    >>> list(add_prefix("base", {"words": np.zeros(1)}))
    ['base.words']
    """
    return {f"{name}.{key}": array for key, array in arrays.items()}


def strip_prefix(name: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one component of a saved model, under the component's names.

    >>> list(strip_prefix("base", {"base.words": np.zeros(1), "weights": np.zeros(1)}))
    ['words']
    """
    prefix = name + "."
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def saved_array(arrays: Arrays, name: str, dtype: Any, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """An array of a saved model after a check of its type and shape; None in `shape` matches any length."""
    found = arrays.get(name)
    fits = found is not None and found.dtype == dtype and found.ndim == len(shape)
    if found is None or not fits or any(w not in (None, f) for w, f in zip(shape, found.shape, strict=True)):
        wanted = " x ".join("any" if length is None else str(length) for length in shape)
        raise ArtifactError(f"the array {name!r} is missing or not {np.dtype(dtype)} of {wanted}: train it again.")
    return found


def saved_weights(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> Any:
    """Saved weights: non-negative, with a sum of 1 over the last axis."""
    found = saved_array(arrays, name, np.float64, shape)
    if not (found.size and np.all(found >= 0) and np.allclose(found.sum(axis=-1), 1, rtol=0, atol=1e-9)):
        raise ArtifactError(f"the weights in {name!r} do not sum to 1: train the model again.")
    return found
