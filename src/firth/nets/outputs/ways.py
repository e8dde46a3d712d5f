"""The ways from the root of a binary tree to its tokens: losses of some, and the probabilities of all."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from firth.errors import ArtifactError
from firth.nets.outputs._tree_kernels import node_depths, walk, walk_back


class Level(NamedTuple):
    """All nodes, inner ones and tokens, with the same number of nodes above them."""

    above: Tensor
    """The place of the node above among those of the level before."""
    turn: Tensor
    """The number of the node above, plus that of all inner nodes if this one hangs on the left."""


class Ways(NamedTuple):
    """What is the same for every state: how deep tokens are, and the tree cut into levels."""

    parent: Tensor
    left: Tensor
    """The tree that these ways are of: a copy."""
    depths: Tensor
    """Of each token; 0 for those that are not in the tree."""
    levels: list[Level]
    row: Tensor
    """Token -> its row in all levels one after the other, -1 if it is not in the tree."""


def find_ways(parent: Tensor, left: Tensor, size: int) -> Ways:
    """The ways of a tree over a vocabulary of `size` tokens (see `_tree_kernels`)."""
    parents, lefts = parent.numpy(), left.numpy()
    inner = parents.size - size
    depths = node_depths(parents, size)
    if depths[0] < 0:
        raise ArtifactError("the tree of the output layer is damaged: train the model again, or fetch a whole copy.")
    levels, rows = [], np.full(size, -1)
    place = np.zeros(parents.size, dtype=np.int64)  # of each node in its level
    done = 0
    for depth in range(1, int(depths.max(initial=0)) + 1):
        nodes = np.flatnonzero(depths == depth)
        place[nodes] = np.arange(nodes.size)
        above = parents[nodes]
        levels.append(Level(torch.from_numpy(place[size + above]), torch.from_numpy(above + inner * lefts[nodes])))
        rows[nodes[nodes < size]] = done + place[nodes[nodes < size]]
        done += nodes.size
    return Ways(parent.clone(), left.clone(), torch.from_numpy(depths[:size].copy()), levels, torch.from_numpy(rows))


def all_ways(scores: Tensor, ways: Ways) -> Tensor:
    """(places, tokens): the log-probability of every token, from the scores (inner nodes, places) of all nodes."""
    to_left = f.logsigmoid(scores)
    turns = torch.cat([to_left - scores, to_left])  # log s(-x) = log s(x) - x
    reached = [scores.new_zeros(1, scores.shape[1])]
    for above, turn in ways.levels:
        reached.append(reached[-1][above] + turns[turn])
    nowhere = scores.new_full((1, scores.shape[1]), -torch.inf)
    return torch.cat([*reached[1:], nowhere])[ways.row].T


class WayLosses(Function):
    """(places): -log of the probability of the way to each target.

    A way has about log2(V) nodes: so few products that gathering them for a matrix product would take longer than they
    do, and a kernel walks each way instead.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        parent: Tensor,
        left: Tensor,
        depths: Tensor,
    ) -> Tensor:
        states, targets = states.contiguous(), targets.contiguous()
        steps = depths[targets]
        ends = steps.cumsum(0)
        starts = ends - steps
        slopes = states.new_empty(int(ends[-1]) if len(ends) else 0)
        losses = states.new_empty(len(targets))
        tensors = (states, targets, parent, left, weight.contiguous(), bias, starts, slopes, losses)
        walk(*(tensor.detach().numpy() for tensor in tensors))
        ctx.save_for_backward(states, targets, parent, weight, starts, slopes)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        weight = ctx.saved_tensors[3]
        to_states, to_weight = torch.zeros_like(ctx.saved_tensors[0]), torch.zeros_like(weight)
        to_bias = weight.new_zeros(len(weight))
        tensors = (*ctx.saved_tensors, above.contiguous(), to_states, to_weight, to_bias)
        walk_back(*(tensor.detach().numpy() for tensor in tensors))
        return to_states, to_weight, to_bias, None, None, None, None
