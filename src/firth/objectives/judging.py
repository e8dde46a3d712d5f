"""Judging pairs of segments: what next-sentence prediction and sentence order have in common."""

from __future__ import annotations

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.objectives.objective import Objective

UNASKED = -1
"""The label of a part about which nothing is asked."""
_SPREAD = 0.02


class PairJudgement(Objective):
    """-log softmax(W tanh(V s + b) + c)[label], s being the state of the first token of a part (Devlin et al. 2019)."""

    def __init__(self, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.pooler = nn.Linear(recipe.width, recipe.width)
        self.classifier = nn.Linear(recipe.width, 2)
        for layer in (self.pooler, self.classifier):
            nn.init.normal_(layer.weight, std=_SPREAD)
            nn.init.zeros_(layer.bias)

    @property
    def mark(self) -> str:
        """Where the labels of a batch's parts are."""
        return f"{self.name}.labels"

    def places(self, batch: Batch) -> Tensor | None:
        return first_places(batch)[batch.marks[self.mark] != UNASKED]

    def count(self, batch: Batch) -> int:
        return int((batch.marks[self.mark] != UNASKED).sum())

    def judge(self, states: Tensor) -> Tensor:
        """(parts, 2): the scores of both answers, from the states of first tokens."""
        return self.classifier(torch.tanh(self.pooler(states)))  # type: ignore[no-any-return]

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        places, labels = self.places(batch), batch.marks[self.mark]
        assert places is not None
        total = f.cross_entropy(self.judge(states.at(places)), labels[labels != UNASKED], reduction="sum")
        return Loss(total, len(places))


def first_places(batch: Batch) -> Tensor:
    """The first place of each part of a batch, row after row.

    >>> parts = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 0, 1]])
    >>> first_places(Batch(parts, parts == 0, parts=parts)).tolist()
    [0, 2, 5, 9]
    """
    begins = torch.zeros_like(batch.ids, dtype=torch.bool)
    begins[:, 0] = True
    if batch.parts is not None:
        begins[:, 1:] = batch.parts[:, 1:] != batch.parts[:, :-1]
        begins &= batch.parts >= 0
    return begins.flatten().nonzero()[:, 0]
