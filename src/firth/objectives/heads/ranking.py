"""RankingHead: a window of text scores higher than the same with a wrong word in the middle (Collobert et al. 2011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives._noise_kernels import choose_middles
from firth.objectives.heads.head import ObjectiveHead, row_seeds


class RankingHead(ObjectiveHead):
    """max(0, 1 - f(window) + f(window with another word in the middle)), f being linear in the middle's state.

    One position in 2 x context + 1 is the middle of a window, from a random offset in each row. No window reaches the
    middle of another, so one more forward pass with all middles replaced gives the states of replacing them singly.
    """

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.score = nn.Linear(recipe.width, 1)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Labels: the middles and a negative sample for each; the ids are not changed."""
        context = self.recipe.encoder.context
        positions, words = choose_middles(batch.ids.numpy(), row_seeds(batch, rng), 2 * context + 1, self.vocabulary)
        batch.labels["ranking.positions"] = torch.from_numpy(positions)
        batch.labels["ranking.negatives"] = torch.from_numpy(words)

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels["ranking.positions"]

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: 1 / (2 * self.recipe.encoder.context + 1)}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """A second pass of the network, and two scores of each window."""
        return network.flops(length, counts[self.name], outputs=0.0) + 4.0 * counts[self.name] * self.recipe.width

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, negatives = batch.labels["ranking.positions"], batch.labels["ranking.negatives"]
        replaced = batch.ids.flatten().index_put((positions,), negatives).view_as(batch.ids)
        others = network(replace(batch, ids=replaced), positions, rng)
        true, false = self.score(states.at(positions)), self.score(others.at(positions))
        return Loss(torch.relu(1 - true + false).sum(), len(positions))
