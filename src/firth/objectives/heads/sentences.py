"""SentenceHead: losses on the vectors of groups of sentences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch
from firth.nets.network import HiddenStates, Network
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import Integers, SentenceGroups, StoredText

_SPECIAL = 2  # tokens around each sentence


class SentenceHead(ObjectiveHead):
    """Finds groups of sentences in a text, and has a loss on the vectors of those of a batch.

    The sequences of a batch are the sentences of one group after another.
    """

    members: int = 2
    """Sentences of a group."""
    predictions: int = 1
    """Of each group."""
    sentence_length: float = 16
    """Tokens of a short sentence with special ones, for estimates."""

    @abstractmethod
    def find(self, text: StoredText, labels: Integers | None) -> SentenceGroups:
        """The groups of a text; `labels` are those of its documents, -1 for others."""

    @property
    def label_key(self) -> str:
        """The key of the labels of a batch's groups."""
        return f"{self.name}.labels"

    def positions(self, batch: Batch) -> Tensor:
        """Those that the vectors of sentences are made of: first tokens, or all of the text."""
        if self.recipe.sentence.pooling == "first":
            return first_positions(batch)
        return self.changeable(batch).flatten().nonzero()[:, 0]

    def count(self, batch: Batch) -> int:
        return self.predictions * (len(first_positions(batch)) // self.members)

    def vectors(self, network: Network, states: HiddenStates, batch: Batch) -> Sequence[Tensor]:
        """(groups, width) for each member of the groups."""
        found = self.all_vectors(network, states, batch)
        return found.view(-1, self.members, found.shape[-1]).unbind(1)

    def all_vectors(self, network: Network, states: HiddenStates, batch: Batch) -> Tensor:
        """(sequences, width): the vectors of all sentences, in the order of the batch."""
        positions, firsts = self.positions(batch), first_positions(batch)
        groups = torch.searchsorted(firsts, positions, right=True) - 1
        ids = batch.ids.flatten()[positions]
        return network.sentence(states.at(positions), ids, groups, len(firsts))  # type: ignore[no-any-return]

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: self.predictions / (self.members * min(length, self.sentence_length))}

    def expected_positions(self, length: int) -> float:
        tokens = min(length, self.sentence_length)
        return 1 / tokens if self.recipe.sentence.pooling == "first" else 1 - _SPECIAL / tokens

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """The layers over pooled vectors, and those of each prediction."""
        groups = counts[self.name] / self.predictions
        return groups * (self.members * network.sentence.flops() + self.group_flops())

    def group_flops(self) -> float:
        """Floating-point operations of its own layers for a group."""
        return 0.0


def make_layers(widths: Sequence[int]) -> list[nn.Linear]:
    """Linear layers between widths, with torch's initial weights."""
    return [nn.Linear(before, after) for before, after in pairwise(widths)]


def layer_flops(layers: nn.ModuleList) -> float:
    """Floating-point operations of linear layers for one vector."""
    return sum(2.0 * one.weight.numel() for one in layers if isinstance(one, nn.Linear))


def cosine_table(one: Tensor, two: Tensor) -> Tensor:
    """(n, m): the cosine of each of n vectors with each of m others."""
    return f.normalize(one, dim=-1) @ f.normalize(two, dim=-1).T


def adjacent_sentences(text: StoredText) -> SentenceGroups:
    """Each sentence of a document with the next one.

    >>> nothing = np.zeros(0)
    >>> found = adjacent_sentences(StoredText(nothing, nothing, np.array([0, 3, 5, 9]), np.array([0, 2, 3]), {}))
    >>> found.starts.tolist(), found.ends.tolist()
    ([[0, 3]], [[3, 5]])
    """
    bounds = text.sentences
    is_last = np.zeros(len(bounds) - 1, dtype=bool)
    is_last[text.documents[1:] - 1] = True
    first = np.flatnonzero(~is_last[:-1])
    return SentenceGroups(
        np.stack([bounds[first], bounds[first + 1]], 1), np.stack([bounds[first + 1], bounds[first + 2]], 1)
    )


def labelled_pairs(text: StoredText, labels: Integers | None) -> SentenceGroups:
    """The documents of two sentences that have a label."""
    assert labels is not None
    return document_pairs(text, labels)


def document_pairs(text: StoredText, labels: Integers | None = None) -> SentenceGroups:
    """The documents of two sentences; with labels, those that have one."""
    has_two = np.diff(text.documents) == 2
    chosen = np.flatnonzero(has_two if labels is None else has_two & (labels >= 0))
    first, bounds = text.documents[:-1][chosen], text.sentences
    starts = np.stack([bounds[first], bounds[first + 1]], 1)
    ends = np.stack([bounds[first + 1], bounds[first + 2]], 1)
    return SentenceGroups(starts, ends, None if labels is None else labels[chosen])
