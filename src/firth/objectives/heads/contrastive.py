"""ContrastiveHead: a sentence is nearer to itself than to others (Gao et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.linear import init_linear
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.head import ObjectiveHead

_SENTENCE = 16  # tokens of a short sentence, for estimates


class ContrastiveHead(ObjectiveHead):
    """-log softmax(cos(z[i], z'[j]) / temperature)[i] over all sequences j of a batch.

    z and z' are tanh(V s + b) of the states s of the first token in two passes with different dropout. The layer serves
    training alone: vectors of sentences are s.
    """

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, temperature: float) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.temperature = temperature
        self.projection = nn.Linear(recipe.width, recipe.width)
        init_linear(self.projection)

    def positions(self, batch: Batch) -> Tensor:
        return first_positions(batch)

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: 1 / min(length, _SENTENCE)}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """A second pass of the network, and two projections of each sequence."""
        own = 4.0 * counts[self.name] * self.projection.weight.numel()
        return network.flops(length, counts[self.name], outputs=0.0) + own

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the cosines of all pairs."""
        return super().flops(network, batch) + 2.0 * self.count(batch) ** 2 * self.recipe.width

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions = self.positions(batch)
        again = network(batch, positions, rng)
        one, two = (torch.tanh(self.projection(each.at(positions))) for each in (states, again))
        cosines = f.normalize(one, dim=-1) @ f.normalize(two, dim=-1).T
        labels = torch.arange(len(positions))
        return Loss(f.cross_entropy(cosines / self.temperature, labels, reduction="sum"), len(positions))

    def saved_tensors(self) -> dict[str, Tensor]:
        return {}
