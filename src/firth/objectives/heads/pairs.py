"""Classification of segment pairs: next-sentence prediction and sentence order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.linear import init_linear
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives._noise_kernels import exchange
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import Sequences

IGNORED_LABEL = -1
"""The label of a sequence without a pair."""


class PairClassificationHead(ObjectiveHead):
    """-log softmax(W tanh(V s + b) + c)[label], s being the state of a sequence's first token (Devlin et al. 2019)."""

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, classes: int = 2) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.pooler = nn.Linear(recipe.width, recipe.width)
        self.classifier = nn.Linear(recipe.width, classes)
        init_linear(self.pooler)
        init_linear(self.classifier)

    @property
    def label_key(self) -> str:
        """The key of the labels of a batch's sequences."""
        return f"{self.name}.labels"

    def pair_labels(self, batch: Batch) -> Tensor:
        return batch.labels[self.label_key]

    def positions(self, batch: Batch) -> Tensor:
        return first_positions(batch)[batch.labels[self.label_key] != IGNORED_LABEL]

    def classify(self, states: Tensor) -> Tensor:
        """(sequences, classes): logits from the states of first tokens."""
        return self.classifier(torch.tanh(self.pooler(states)))  # type: ignore[no-any-return]

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: 1 / length}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        return 2.0 * counts[self.name] * (self.pooler.weight.numel() + self.classifier.weight.numel())

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, labels = self.positions(batch), batch.labels[self.label_key]
        total = f.cross_entropy(self.classify(states.at(positions)), labels[labels != IGNORED_LABEL], reduction="sum")
        return Loss(total, len(positions))


class NextSentenceHead(PairClassificationHead):
    """Label 0: it follows. Label 1: it is from another document."""

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Half of the sequences exchange their second segments with one another, so that every token is kept.

        Segments of equal or similar length are exchanged, so that both fit and length is no cue, and of different
        documents if there are enough; in a small text a segment may be truncated, or be of the same document.
        """
        return self.exchange_segments(sequences, sequences.has_next_segment, rng)

    def exchange_segments(
        self, sequences: Sequences, paired: npt.NDArray[np.bool_], rng: np.random.Generator
    ) -> Sequences:
        """The same for some of the sequences that have a next segment; the others are not labelled."""
        starts, ends = sequences.starts.copy(), sequences.ends.copy()
        labels = np.where(paired, 0, IGNORED_LABEL)
        chosen = np.flatnonzero(paired & (rng.random(paired.size) < 0.5))
        lengths = ends[chosen, 1] - starts[chosen, 1]
        order = chosen[np.lexsort((rng.random(chosen.size), lengths))]
        documents = np.searchsorted(sequences.documents, starts[order, 0], side="right")
        exchange(starts, ends, order, documents, sequences.max_tokens, labels)
        return sequences._replace(starts=starts, ends=ends).with_labels(self.label_key, labels)


class SentenceOrderHead(PairClassificationHead):
    """Label 0: in text order. Label 1: swapped."""

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Swap the segments of half of the sequences."""
        paired = sequences.has_next_segment
        swapped = paired & (rng.random(paired.size) < 0.5)
        columns = np.where(swapped[:, None], [1, 0], [0, 1])
        starts = np.take_along_axis(sequences.starts, columns, 1)
        ends = np.take_along_axis(sequences.ends, columns, 1)
        labels = np.where(paired, swapped.astype(np.int64), IGNORED_LABEL)
        return sequences._replace(starts=starts, ends=ends).with_labels(self.label_key, labels)
