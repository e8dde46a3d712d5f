"""Masking policies.

In all of them a row is a circle of units (tokens or whole words), on which spans of random lengths are placed without
overlap. They differ in the units and in the lengths alone:

    token   units are tokens, spans are of length 1      word    units are words, spans are of length 1
    ngram   words, p(n) proportional to 1 / n            span    words, p(n) proportional to 0.2 x 0.8^(n - 1)
    basic   words and Chinese characters (ERNIE)         phrase, entity   those, and words outside them
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.objectives import _noise_kernels as kernels
from firth.objectives.heads.head import row_seeds
from firth.objectives.masking import COLUMNS, Masking
from firth.tokens.columns import BEGINS, OUTSIDE
from firth.tokens.tokenizer import MASK, UNK

assert (MASK, MASK + 1, UNK) == (kernels.MASK_ID, kernels.FIRST_ID, kernels.UNKNOWN_ID)
_STOP = 0.2  # of the geometric distribution of span lengths (Joshi et al. 2020)


class ChosenPositions(NamedTuple):
    """Positions to mask."""

    positions: Tensor
    """Sorted distinct indices into the flattened batch."""
    groups: Tensor
    """The group of each position: 0, 1, ..., ascending."""


def span_length_probabilities(policy: str, max_length: int) -> npt.NDArray[np.float64]:
    """The probabilities of spans of 1, 2, ... units.

    >>> span_length_probabilities("ngram", 3).round(4).tolist()  # ALBERT (Lan et al. 2020)
    [0.5455, 0.2727, 0.1818]
    >>> round(float((span_length_probabilities("span", 10) * np.arange(1, 11)).sum()), 1)  # SpanBERT
    3.8
    """
    if policy not in ("ngram", "span"):
        return np.ones(1)
    lengths = np.arange(1, max_length + 1)
    weights = 1.0 / lengths if policy == "ngram" else (1 - _STOP) ** (lengths - 1)
    return np.asarray(weights / weights.sum())


def unit_starts(batch: Batch, policy: str, characters: npt.NDArray[np.bool_]) -> Tensor:
    """(batch, length): true where a unit of a policy begins; `characters` says which ids are units by themselves."""
    if policy == "basic":
        is_character = torch.from_numpy(characters)[batch.ids]
        after = torch.roll(is_character, 1, 1)
        after[:, 0] = False
        return batch.word_starts | is_character | after
    spans = batch.columns.get(COLUMNS.get(policy, ""))
    if spans is None:
        return batch.word_starts
    before = torch.roll(spans, 1, 1)
    before[:, 0] = OUTSIDE
    return (spans == BEGINS) | ((spans == OUTSIDE) & (batch.word_starts | (before != OUTSIDE)))


def choose_positions(
    batch: Batch, masking: Masking, rng: np.random.Generator, starts: Tensor | None = None
) -> ChosenPositions:
    """The positions to mask.

    Every word is chosen with the probability `rate`, special tokens and padding never. A row of n units has about
    `rate` x n / (mean length) spans, rounded up or down randomly. Units begin at `starts`, or they are words.
    """
    probabilities = span_length_probabilities(masking.policy, masking.max_length)
    return choose_spans(batch.ids, batch, masking.policy != "token", masking.rate, probabilities, rng, starts)


def choose_spans(
    tokens: Tensor,
    batch: Batch,
    whole: bool,
    rate: float,
    probabilities: npt.NDArray[np.float64],
    rng: np.random.Generator,
    starts: Tensor | None = None,
) -> ChosenPositions:
    """Positions of spans of 1, 2, ... tokens (or words, with `whole`) of given probabilities that cover `rate`.

    `tokens` are the ids of the batch, or others that have text where a position may be chosen.
    """
    tails = np.append(1.0, 1 - np.cumsum(probabilities))[:-1]  # p(length >= 1), p(length >= 2), ...
    ids = tokens.numpy()
    positions, groups = np.empty(ids.size, dtype=np.int64), np.empty(ids.size, dtype=np.int64)
    count = kernels.choose_positions(
        ids,
        (batch.word_starts if starts is None else starts).numpy(),
        row_seeds(batch, rng),
        whole,
        rate,
        np.cumsum(probabilities)[:-1],
        np.cumsum(tails),
        positions,
        groups,
    )
    return ChosenPositions(*(torch.from_numpy(each[:count].copy()) for each in (positions, groups)))


def mask_tokens(
    batch: Batch, chosen: ChosenPositions, masking: Masking, vocabulary: int, rng: np.random.Generator
) -> None:
    """Replace the ids at the chosen positions by the mask or a random token, or keep them (Devlin et al. 2019).

    This is drawn for each token, or with the policy span for each span as a whole.
    """
    positions, groups = chosen.positions.numpy(), chosen.groups.numpy()
    seeds, by_group = row_seeds(batch, rng), masking.policy == "span"
    kernels.mask_tokens(batch.ids.numpy(), seeds, positions, groups, by_group, masking.mask, masking.random, vocabulary)
