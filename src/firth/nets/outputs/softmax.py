"""Softmax over all tokens, with weights of its own or those of the embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.noise import Noise
from firth.nets.outputs.output import NEVER, OutputLayer
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding


class Softmax(OutputLayer):
    """p(w) is proportional to exp(s . v_w + b_w)."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__()
        self.weight = (
            embedding.table if recipe.output.kind == "tied" else nn.Parameter(torch.empty(counts.size, recipe.width))
        )
        if recipe.output.kind == "full":
            nn.init.normal_(self.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(counts.size)) if recipe.output.bias else None

    def logits(self, states: Tensor) -> Tensor:
        return f.linear(states, self.weight, self.bias)

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        return f.cross_entropy(self.logits(states), targets, reduction="sum")

    def log_probabilities(self, states: Tensor) -> Tensor:
        logits = self.logits(states)
        logits[:, list(NEVER)] = -torch.inf
        return logits.log_softmax(-1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        return self.log_probabilities(states).gather(1, targets[:, None])[:, 0]

    def work(self) -> float:
        return 2.0 * self.weight.numel()


class Direct(Softmax):
    """The states are the scores themselves: nothing is hidden between a token and the next (Xu and Rudnicky 2000)."""
