"""Trees: a token is found by turning left or right at each node of the way to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.nets.noise import Noise
from firth.nets.outputs._tree_kernels import join_rarest, node_masses, split_tokens
from firth.nets.outputs.output import ExactLayer, frequencies, predictable, state_width
from firth.nets.outputs.ways import WayLosses, Ways, all_ways, find_ways
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

Parents = npt.NDArray[np.int64]
Lefts = npt.NDArray[np.bool_]
_SPREAD = 0.02
_CHUNK = 256  # places whose probabilities of all tokens are made at once
_GATHER, _RENEWAL = 0.1, 0.2  # shares of training: when states are added up, and when the tree is made of them
_PROJECTED = 32


class Tree(ExactLayer):
    """p(w | s) = product over the nodes i on the way to w of s(q_i . s + b_i) to the left, 1 - that to the right.

    The first biases make every probability the token's frequency.
    """

    parent: Tensor
    """Node above each token and each inner node: see `_tree_kernels`."""
    left: Tensor

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__(recipe)
        self._shares = frequencies(counts)
        inner = predictable(counts.size).size - 1
        self.weight = nn.Parameter(torch.empty(inner, state_width(recipe)))
        self.bias = nn.Parameter(torch.empty(inner)) if recipe.output.bias else None
        self.register_buffer("parent", torch.empty(counts.size + inner, dtype=torch.int64))
        self.register_buffer("left", torch.empty(counts.size + inner, dtype=torch.bool))
        self._ways: Ways | None = None
        self._turns = math.log2(inner + 1)  # to a token, about

    def _plant(self, parent: Parents, left: Lefts, chance: torch.Generator | None = None) -> None:
        """Takes over a tree; all that was learnt about another is forgotten."""
        self.parent.copy_(torch.from_numpy(parent))
        self.left.copy_(torch.from_numpy(left))
        masses = node_masses(parent, left, self._shares)
        with torch.no_grad():
            self.weight.normal_(std=_SPREAD, generator=chance)
            if self.bias is not None:
                self.bias.copy_(torch.from_numpy(np.log(masses[:, 0] / masses[:, 1])))

    @property
    def ways(self) -> Ways:
        """The tree cut into levels; found again whenever it is another one, such as that of a saved state."""
        found = self._ways
        if found is None or not (torch.equal(found.parent, self.parent) and torch.equal(found.left, self.left)):
            self._ways = found = find_ways(self.parent, self.left, self._shares.size)
        return found

    def losses(self, entered: Tensor, targets: Tensor) -> Tensor:
        bias = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        tree = (self.parent, self.left, self.ways.depths)
        made: Tensor = WayLosses.apply(entered, self.weight, bias, targets, *tree)  # type: ignore[no-untyped-call]
        return made

    def all_logs(self, entered: Tensor) -> Tensor:
        bias = 0 if self.bias is None else self.bias[:, None]
        return torch.cat([all_ways(self.weight @ some.T + bias, self.ways) for some in torch.split(entered, _CHUNK)])

    def own_work(self) -> float:
        return 2.0 * self.weight.shape[1] * self._turns


class Huffman(Tree):
    """Frequent tokens have short ways, so that a prediction takes as few turns as can be (Huffman 1952)."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        self._plant(*huffman_tree(self._shares))
        self._turns = float(self.ways.depths.numpy() @ self._shares)


class LearntTree(Tree):
    """Tokens that follow like contexts share most of their way (HLBL; Mnih and Hinton 2008).

    As in the paper a random tree is learnt with first. From a tenth of training on the states from which each token is
    predicted are added up, and at a fifth the tree is made anew from their means, by splitting them in two again and
    again; its nodes begin anew. Of wide states 32 random projections are added up instead, which keep the distances
    between them well enough (Johnson and Lindenstrauss 1984).
    """

    sums: Tensor
    """Token -> the sum of the states, projected, from which it was predicted."""
    seen: Tensor
    """Token -> how many these were."""
    learnt: Tensor
    """Whether the tree has been made anew."""
    signs: Tensor

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        wide = self.weight.shape[1]
        signs = np.eye(wide) if wide <= _PROJECTED else np.random.default_rng(0).choice([-1.0, 1.0], (wide, _PROJECTED))
        self.register_buffer("signs", torch.from_numpy(signs).float(), persistent=False)
        self.register_buffer("sums", torch.zeros(counts.size, signs.shape[1]))
        self.register_buffer("seen", torch.zeros(counts.size, dtype=torch.int64))
        self.register_buffer("learnt", torch.zeros((), dtype=torch.bool))
        self._gathers = False
        shuffled = torch.randperm(predictable(counts.size).size).numpy()
        self._plant(*split_tree(np.zeros((counts.size, 0), np.float32), shuffled, 0))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        if self._gathers and noise is not None:
            self.sums.index_add_(0, targets, states.detach() @ self.signs)
            self.seen += targets.bincount(minlength=self.seen.numel())
        return super().loss(states, targets, previous, noise)

    def renew(self, share: float) -> bool:
        self._gathers = share >= _GATHER and not self.learnt
        if share < _RENEWAL or self.learnt or not self.seen.any():
            return False
        means = self.sums / self.seen[:, None]
        known = self.seen > 0
        means[~known] = means[known].mean(0)  # what has not been seen is like nothing else
        self.rebuild(means, seed=0)
        self.sums.zero_()
        self.seen.zero_()
        self.learnt.fill_(True)
        self._gathers = False
        return True

    def rebuild(self, vectors: Tensor, seed: int) -> None:
        """Another tree: near vectors (tokens, any width) get near leaves. Its nodes begin anew."""
        chosen = vectors.detach().float().contiguous().numpy()
        tree = split_tree(chosen, np.arange(predictable(len(chosen)).size), seed)
        self._plant(*tree, torch.Generator().manual_seed(seed))


def huffman_tree(shares: npt.NDArray[np.float64]) -> tuple[Parents, Lefts]:
    """The tree whose expected way is shortest.

    >>> parent, left = huffman_tree(frequencies(np.array([0, 0, 0, 3, 0, 7, 2])))
    >>> find_ways(torch.from_numpy(parent), torch.from_numpy(left), 7).depths.tolist()
    [0, 3, 0, 2, 0, 1, 3]
    """
    parent, left = _bare_tree(shares.size)
    tokens = predictable(shares.size)
    tokens = tokens[np.argsort(shares[tokens], kind="stable")]
    join_rarest(shares[tokens], tokens, parent, left)
    return parent, left


def split_tree(vectors: npt.NDArray[np.float32], shuffled: npt.NDArray[np.int64], seed: int) -> tuple[Parents, Lefts]:
    """The tree that 2-means makes of vectors, by splitting in two until single tokens are left.

    `shuffled` is the order in which tokens are split where their vectors do not tell them apart.
    """
    parent, left = _bare_tree(len(vectors))
    tokens = predictable(len(vectors))[shuffled]
    split_tokens(vectors[tokens], tokens, len(vectors), parent, left, seed)
    return parent, left


def _bare_tree(size: int) -> tuple[Parents, Lefts]:
    nodes = size + predictable(size).size - 1
    return np.full(nodes, -1), np.zeros(nodes, dtype=np.bool_)
