"""Heads of objectives with sequences of their own, which they classify."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.pairs import PairClassificationHead
from firth.objectives.layouts import LaidOutObjective
from firth.objectives.sequences import Integers, Sequences, StoredText


class LaidOutHead(PairClassificationHead):
    """-log softmax(W tanh(V s + b) + c)[label], s being the state of a sequence's first token."""

    segments = 2
    """The number of segments of a sequence, at most."""
    tells_segments = True
    """Whether the segments of a sequence have segment embeddings."""

    def __init__(self, objective: LaidOutObjective, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(objective, recipe, vocabulary, objective.classes)
        self.classes, self.task = objective.classes, objective.task

    @abstractmethod
    def find(self, text: StoredText) -> Integers:
        """(examples, ...): where the text has something to classify."""

    @abstractmethod
    def lay_out(self, examples: Integers, text: StoredText, limit: int, rng: np.random.Generator) -> Sequences:
        """The sequences of an epoch, of at most `limit` tokens of text, with their labels."""

    def capacity(self, length: int) -> int:
        """The tokens of text in a sequence of a length."""
        return length - 1 - self.segments

    def positions(self, batch: Batch) -> Tensor:
        return super().positions(batch) if self.label_key in batch.labels else torch.zeros(0, dtype=torch.int64)

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        if self.label_key not in batch.labels:
            return Loss(torch.zeros(()), 0)
        return super().loss(network, states, batch, rng)

    def pair_labels(self, batch: Batch) -> Tensor | None:  # type: ignore[override]
        return None

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        """The share of each class of the sequences."""
        labels = batch.labels.get(self.label_key)
        if labels is None:
            return {}
        counts = torch.bincount(labels, minlength=self.classes).tolist()
        return {f"class {number}": (float(count), float(len(labels))) for number, count in enumerate(counts)}


def truncate(starts: Integers, ends: Integers, limit: int) -> Integers:
    """The ends of segments of sequences of at most `limit` tokens: of longer ones the longest segments are cut.

    >>> truncate(np.array([[0, 10]]), np.array([[9, 13]]), 8).tolist()
    [[5, 13]]
    """
    lengths = ends - starts
    level = np.sort(lengths, axis=1)
    rest, left = np.full(len(starts), limit), np.full(len(starts), starts.shape[1])
    most = np.full(len(starts), limit)
    for column in range(starts.shape[1]):  # segments that are shorter than an equal share leave the rest to others
        share = rest // np.maximum(left, 1)
        fits = level[:, column] <= share
        most = np.where(fits, most, np.minimum(most, share))
        rest, left = rest - np.where(fits, level[:, column], share), left - 1
    over = lengths.sum(1) > limit
    return np.where(over[:, None], starts + np.minimum(lengths, most[:, None]), ends)
