"""Masking policies: which groups of places are hidden from a masked language model, and by what.

All four are one: a row is a circle of units (tokens or whole words), on which spans of random lengths are laid where no
other lies. They differ in the units and in the lengths alone:

    token   units are tokens, spans are of length 1      word    units are words, spans are of length 1
    ngram   words, p(n) proportional to 1 / n            span    words, p(n) proportional to 0.2 x 0.8^(n - 1)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.recipe import MaskingRecipe
from firth.objectives._masking_kernels import FIRST_ID, MASK_ID, UNKNOWN_ID, choose_places, hide_places
from firth.objectives.draws import row_keys
from firth.tokens.tokenizer import MASK, UNK

assert (MASK, MASK + 1, UNK) == (MASK_ID, FIRST_ID, UNKNOWN_ID)
_STOP = 0.2  # of the geometric distribution of span lengths (Joshi et al. 2020)


class Groups(NamedTuple):
    """Places that were chosen."""

    places: Tensor
    """Numbers of places, row after row, in order; none twice."""
    numbers: Tensor
    """The group of each place: 0, 1, ..., in order."""


def length_shares(policy: str, longest: int) -> npt.NDArray[np.float64]:
    """The probabilities of spans of 1, 2, ... units.

    >>> length_shares("ngram", 3).round(4).tolist()  # ALBERT (Lan et al. 2020)
    [0.5455, 0.2727, 0.1818]
    >>> round(float((length_shares("span", 10) * np.arange(1, 11)).sum()), 1)  # SpanBERT (Joshi et al. 2020)
    3.8
    """
    if policy in ("token", "word"):
        return np.ones(1)
    lengths = np.arange(1, longest + 1)
    weights = 1.0 / lengths if policy == "ngram" else (1 - _STOP) ** (lengths - 1)
    return np.asarray(weights / weights.sum())


def choose(batch: Batch, recipe: MaskingRecipe, rng: np.random.Generator) -> Groups:
    """The groups of places that are to be hidden.

    Every word of text is chosen with the probability `rate`, special tokens and padding never. In a row of n units
    there are about `rate` x n / (mean length) spans; whether that is rounded up or down is drawn, too.
    """
    shares = length_shares(recipe.policy, recipe.longest)
    left = np.append(1.0, 1 - np.cumsum(shares))[:-1]  # p(length >= 1), p(length >= 2), ...
    ids = batch.ids.numpy()
    places, numbers = np.empty(ids.size, dtype=np.int64), np.empty(ids.size, dtype=np.int64)
    count = choose_places(
        ids,
        batch.starts.numpy(),
        row_keys(batch, rng),
        recipe.policy != "token",
        recipe.rate,
        np.cumsum(shares)[:-1],
        np.cumsum(left),
        places,
        numbers,
    )
    return Groups(torch.from_numpy(places[:count].copy()), torch.from_numpy(numbers[:count].copy()))


def hide(batch: Batch, groups: Groups, recipe: MaskingRecipe, vocabulary: int, rng: np.random.Generator) -> None:
    """Changes the ids of the chosen places: the mask, a random token, or as it was (Devlin et al. 2019).

    That is drawn for each token, or with the policy span for each span as a whole.
    """
    ids = batch.ids.numpy()
    places, numbers = groups.places.numpy(), groups.numbers.numpy()
    keys, alike = row_keys(batch, rng), recipe.policy == "span"
    hide_places(ids, keys, places, numbers, alike, recipe.mask, recipe.random, vocabulary)
