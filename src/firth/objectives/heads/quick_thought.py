"""Choice of neighbouring sentences among those of a batch (Logeswaran and Lee 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, build_second_network
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.nets.sentence_vectors import sentence_vectors, vector_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import DOCUMENTS, SENTENCES


class QuickThoughtHead(ObjectiveHead):
    """-mean over the neighbours t of log softmax(f(s) g(t')), t' being all sentences of the batch but s itself.

    f(s) is the vector of a sentence by the network, g(t) that by the second one. Neighbours are of the same document; a
    sentence without any is a candidate only.
    """

    def __init__(self, objective: Objective, second: NetRecipe, network: Network, context_size: int) -> None:
        super().__init__(objective, network.recipe, network.vocabulary)
        self.context_size = context_size
        self.second = build_second_network(second, network, shared=False)

    def positions(self, batch: Batch) -> Tensor:
        return vector_positions(self.recipe, batch)

    def neighbours(self, batch: Batch) -> Tensor:
        """(sentences, sentences): true for pairs of a sentence and a neighbour."""
        numbers, documents = batch.labels[SENTENCES], batch.labels[DOCUMENTS]
        distances = (numbers[:, None] - numbers).abs()
        return (distances > 0) & (distances <= self.context_size) & (documents[:, None] == documents)

    def count(self, batch: Batch) -> int:
        """The number of sentences with neighbours."""
        return int(self.neighbours(batch).any(1).sum())

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        one = sentence_vectors(self.recipe, states, batch)
        two = sentence_vectors(self.recipe, self.second(batch, states.positions, rng), batch)
        return neighbour_loss(one @ two.T, self.neighbours(batch))

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """A pass of the second network."""
        return self.second.flops(length, counts[self.name], outputs=0.0)

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the products of all pairs."""
        return super().flops(network, batch) + 2.0 * len(batch.labels[SENTENCES]) ** 2 * self.recipe.width


def neighbour_loss(scores: Tensor, neighbours: Tensor) -> Loss:
    """The cross-entropy of scores (sentences, candidates) and the uniform distribution over neighbours, by row.

    The diagonal, a sentence itself, is no candidate. Rows without a neighbour are left out.
    """
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    logs = scores.masked_fill(itself, -torch.inf)[neighbours.any(1)].log_softmax(1)
    wanted = neighbours[neighbours.any(1)]
    # Not a product with the distribution: the logarithm on the diagonal is infinite.
    chosen = logs.masked_fill(~wanted, 0.0).sum(1) / wanted.sum(1)
    return Loss(-chosen.sum(), len(wanted))
