"""Denoising entity auto-encoder (Zhang et al. 2019, equation 9)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.entities import ENTITIES
from firth.nets.linear import make_linear
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.norm import LayerNorm
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives._noise_kernels import uniforms_at
from firth.objectives.heads.head import ObjectiveHead, row_seeds
from firth.objectives.sequences import Integers


class EntityDenoisingHead(ObjectiveHead):
    """-log softmax(E norm(gelu(W s + b)))[entity], s being the state of a linked token.

    E has the vectors of the distinct entities of the batch. Of these, some are replaced and some removed in the input.
    """

    def __init__(
        self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, replaced: float, dropped: float
    ) -> None:
        """`replaced` and `dropped` are fractions of the entities."""
        super().__init__(objective, recipe, vocabulary)
        self.replaced, self.dropped = replaced, dropped
        self.transform = make_linear(recipe.width, recipe.entities.width)
        self.norm = LayerNorm(recipe.entities.width, eps=recipe.encoder.eps)
        self.activation = ACTIVATIONS[recipe.encoder.activation]

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Side ids: the corrupted entities. Labels: the positions of linked tokens, and their true entities."""
        links = batch.columns.get("links", torch.zeros_like(batch.ids)).to(torch.int64)
        positions = links.flatten().nonzero().flatten()
        targets = links.flatten()[positions]
        batch.labels[f"{self.name}.positions"] = positions
        batch.labels[f"{self.name}.targets"] = targets
        action, choice = (uniforms_at(row_seeds(batch, rng), positions.numpy(), batch.shape[1]) for _ in range(2))
        entities = targets.numpy().copy()
        is_replaced = action < self.replaced
        entities[is_replaced] = _others(entities, choice)[is_replaced]
        entities[(action >= self.replaced) & (action < self.replaced + self.dropped)] = 0
        noisy = links.flatten().clone()
        noisy[positions] = torch.from_numpy(entities)
        batch.side_ids[ENTITIES] = noisy.view_as(batch.ids)

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        """Of the linked tokens: those whose entity was replaced, removed or kept."""
        given = batch.side_ids[ENTITIES].flatten()[self.positions(batch)]
        targets = batch.labels[f"{self.name}.targets"]
        counts = {
            "replaced": (given != targets) & (given > 0),
            "dropped": given == 0,
            "kept": given == targets,
        }
        return {name: (float(one.sum()), float(len(targets))) for name, one in counts.items()}

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels[f"{self.name}.positions"]

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        return 2.0 * counts[self.name] * self.transform.weight.numel()

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the products with all candidates."""
        candidates = len(torch.unique(batch.labels[f"{self.name}.targets"]))
        return super().flops(network, batch) + 2.0 * self.count(batch) * candidates * self.recipe.entities.width

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions = self.positions(batch)
        assert network.entities is not None
        candidates, labels = torch.unique(batch.labels[f"{self.name}.targets"], return_inverse=True)
        found = self.norm(self.activation(self.transform(states.at(positions))))
        logits = found @ f.embedding(candidates, network.entities.vectors).T
        return Loss(f.cross_entropy(logits, labels, reduction="sum"), len(positions))


def _others(entities: Integers, choice: npt.NDArray[np.float64]) -> Integers:
    """For each entity another one of them, by a number from 0 to 1; the same if there is no other.

    >>> _others(np.array([7, 9, 9]), np.array([0.9, 0.2, 0.9])).tolist()
    [9, 7, 7]
    """
    distinct, own = np.unique(entities, return_inverse=True)
    if distinct.size < 2:
        return entities
    steps = 1 + np.minimum((choice * (distinct.size - 1)).astype(np.int64), distinct.size - 2)
    return np.asarray(distinct[(own + steps) % distinct.size])
