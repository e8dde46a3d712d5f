"""Adaptive softmax whose token vectors are the embedding's (Dai et al. 2019)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.embedding import Embedding
from firth.nets.linear import INIT_STD
from firth.nets.outputs.clusters import Segment, frequency_cuts, segment_losses
from firth.nets.outputs.output import Counts, ExactLayer, are_bounds, invert_order, is_ranking, state_width
from firth.nets.recipe import NetRecipe


class TiedAdaptiveSoftmax(ExactLayer):
    """p(w | s) as in `AdaptiveSoftmax`, with clusters of the full width and the embedding's token vectors.

    The initial biases make every probability the token's frequency.
    """

    order: Tensor
    """Tokens from frequent to rare."""
    row: Tensor
    """(vocabulary,): the rank of each token in that order, -1 for those that are never predicted."""
    bounds: Tensor
    """Where the head and each tail begin in that order, and the end."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        if embedding.table.shape[1] != state_width(recipe):
            raise RecipeError(
                f"token vectors of dimension {embedding.table.shape[1]} cannot be tied to states of "
                f"{state_width(recipe)}: set output.kind=adaptive, or make embedding.width the same."
            )
        order, bounds = frequency_cuts(self._frequencies)
        self.table = embedding.table
        self.register_buffer("order", torch.from_numpy(order))
        self.register_buffer("row", invert_order(order, counts.size))
        self.register_buffer("bounds", torch.from_numpy(bounds))
        ranked = self._frequencies[order]
        self._masses = np.add.reduceat(ranked, bounds[:-1])
        tails = bounds.size - 2
        self.tail_weight = nn.Parameter(torch.empty(tails, state_width(recipe)).normal_(std=INIT_STD))
        self.bias = self.tail_bias = None
        if recipe.output.bias:
            within = ranked / np.repeat(self._masses, np.diff(bounds))
            head = np.where(np.arange(order.size) < bounds[1], ranked, within)
            self.bias = nn.Parameter(torch.from_numpy(np.log(head)).float())
            self.tail_bias = nn.Parameter(torch.from_numpy(np.log(self._masses[1:])).float())

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        rows = self.row[targets]
        cluster = torch.bucketize(rows, self.bounds[1:-1], right=True)
        first = int(self.bounds[1])
        weight, bias = self._head()
        total = _losses(states, weight, bias, torch.where(cluster == 0, rows, first + cluster - 1))
        for number in range(1, len(self.bounds) - 1):
            members = (cluster == number).nonzero()[:, 0]
            if len(members):
                weight, bias = self._cluster(number)
                within = rows[members] - self.bounds[number]
                total = total.index_add(0, members, _losses(states.index_select(0, members), weight, bias, within))
        return total

    def all_logprobs(self, states: Tensor) -> Tensor:
        head = _logprobs(states, *self._head())
        frequent = int(self.bounds[1])
        logs = [head[:, :frequent]]
        for number in range(1, len(self.bounds) - 1):
            logs.append(_logprobs(states, *self._cluster(number)) + head[:, frequent + number - 1, None])
        never = states.new_full((len(states), 1), -torch.inf)
        return torch.cat([*logs, never], 1)[:, self.row]

    def is_sound(self) -> bool:
        order, rows, bounds = self.order.numpy(), self.row.numpy(), self.bounds.numpy()
        are_complete = are_bounds(bounds, order.size) and bounds.size == len(self.tail_weight) + 2
        return are_complete and is_ranking(rows) and np.array_equal(order, np.argsort(rows)[-order.size :])

    def own_flops(self) -> float:
        sizes = np.diff(self.bounds.numpy())
        expected = float(sizes[0] + sizes.size - 1 + self._masses[1:] @ sizes[1:])
        return 2.0 * self.tail_weight.shape[1] * expected

    def _head(self) -> tuple[Tensor, Tensor | None]:
        """The weights and biases of frequent tokens, then of the tails."""
        weight, bias = self._cluster(0)
        joined = None if bias is None or self.tail_bias is None else torch.cat([bias, self.tail_bias])
        return torch.cat([weight, self.tail_weight]), joined

    def _cluster(self, number: int) -> tuple[Tensor, Tensor | None]:
        """The weights and biases of the tokens of a cluster."""
        begin, end = (int(bound) for bound in self.bounds[number : number + 2])
        weight = self.table.index_select(0, self.order[begin:end])
        return weight, None if self.bias is None else self.bias[begin:end]


def _logprobs(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(states, weight, bias).log_softmax(1)


def _losses(states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    return segment_losses(
        states, weight, bias, targets, [Segment(0, len(states), 0, len(weight))] if len(states) else []
    )
