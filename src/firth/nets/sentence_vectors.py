"""The vector of a sentence: the states in which a network has read all of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.network import HiddenStates
from firth.nets.recipe import NetRecipe


class SequenceEnds(NamedTuple):
    """The positions of the first and the last token of each sequence of a batch."""

    firsts: Tensor
    lasts: Tensor


def sequence_ends(batch: Batch) -> SequenceEnds:
    """The first and the last position of each sequence of a flattened batch.

    >>> sequence_ids = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 0, 1]])
    >>> [ends.tolist() for ends in sequence_ends(Batch(sequence_ids, sequence_ids == 0, sequence_ids))]
    [[0, 2, 5, 9], [1, 3, 8, 9]]
    """
    is_first, is_last = (torch.zeros_like(batch.ids, dtype=torch.bool) for _ in range(2))
    is_first[:, 0] = is_last[:, -1] = True
    if batch.sequence_ids is not None:
        differs = batch.sequence_ids[:, 1:] != batch.sequence_ids[:, :-1]
        is_first[:, 1:], is_last[:, :-1] = differs, differs
        is_first, is_last = (each & (batch.sequence_ids >= 0) for each in (is_first, is_last))
    return SequenceEnds(*(each.flatten().nonzero()[:, 0] for each in (is_first, is_last)))


def vector_positions(recipe: NetRecipe, batch: Batch) -> Tensor:
    """The sorted positions whose states make the vectors of a batch's sequences."""
    firsts, lasts = sequence_ends(batch)
    if _has_halves(recipe):
        found: Tensor = torch.unique(torch.cat([firsts, lasts]))
        return found
    return lasts if recipe.visibility == "causal" else firsts


def sentence_vectors(recipe: NetRecipe, states: HiddenStates, batch: Batch) -> Tensor:
    """(sequences, width): the last state forwards and the first one backwards, or that of the first token.

    The latter is `[CLS]` of a network whose states depend on the whole text.
    """
    firsts, lasts = sequence_ends(batch)
    if not _has_halves(recipe):
        return states.at(lasts if recipe.visibility == "causal" else firsts)
    half = states.last_hidden_state.shape[-1] // 2
    return torch.cat([states.at(lasts)[:, :half], states.at(firsts)[:, half:]], 1)


def _has_halves(recipe: NetRecipe) -> bool:
    """Whether one half of a state is that of a network which reads forwards, and the other backwards."""
    return recipe.directions == 2 or recipe.encoder.kind == "bilstm"
