"""Ranking: a window of text scores higher than the same with a wrong word in the middle (Collobert et al. 2011)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.objectives._ranking_kernels import choose_middles
from firth.objectives.draws import row_keys
from firth.objectives.objective import Objective


class Ranking(Objective):
    """max(0, 1 - f(window) + f(window with another word in the middle)), f being linear in the middle's state.

    One place in 2 x context + 1 is the middle of a window, counted from a random place of each row: then no window
    reaches to the middle of another, and one more pass over the batch with all middles replaced gives exactly the
    states that replacing them one by one would give.
    """

    name: ClassVar[str] = "ranking"

    def __init__(self, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.vocabulary = len(vocabulary)
        self.score = nn.Linear(recipe.width, 1)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Marks: the middles, and the wrong word for each; the ids stay as they are."""
        context = self.recipe.encoder.context
        places, words = choose_middles(batch.ids.numpy(), row_keys(batch, rng), 2 * context + 1, self.vocabulary)
        batch.marks["ranking.places"] = torch.from_numpy(places)
        batch.marks["ranking.words"] = torch.from_numpy(words)

    def places(self, batch: Batch) -> Tensor | None:
        return batch.marks["ranking.places"]

    def count(self, batch: Batch) -> int:
        return len(batch.marks["ranking.places"])

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        places, words = batch.marks["ranking.places"], batch.marks["ranking.words"]
        wrong = batch.ids.flatten().index_put((places,), words).view_as(batch.ids)
        others = network(replace(batch, ids=wrong), places, noise)
        true, false = self.score(states.at(places)), self.score(others.at(places))
        return Loss(torch.relu(1 - true + false).sum(), len(places))
