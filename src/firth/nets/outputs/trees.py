"""Tree softmax: a token is a path of left or right decisions in a binary tree."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from firth.errors import ArtifactError
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.linear import INIT_STD
from firth.nets.outputs._tree_kernels import huffman, node_depths, node_masses, split_tokens, walk, walk_back
from firth.nets.outputs.output import Counts, ExactLayer, predictable, state_width
from firth.nets.recipe import NetRecipe


class TreePaths(NamedTuple):
    """The depth of each token, and the tree cut into levels of equal depth."""

    parent: Tensor
    left: Tensor
    """Copies of the tree's arrays."""
    depths: Tensor
    """(vocabulary,): 0 for tokens that are not in the tree."""
    levels: list[tuple[Tensor, Tensor]]
    """For the nodes of each level: the index of the node above in the level before, and the decision: the number of
    the node above, plus the number of all inner nodes if this node is its left child."""
    row: Tensor
    """(vocabulary,): the index of each token in the concatenated levels, -1 if it is not in the tree."""


def find_paths(parent: Tensor, left: Tensor, vocabulary: int) -> TreePaths:
    """The paths of a tree (see `_tree_kernels`)."""
    parents, lefts = parent.numpy(), left.numpy()
    inner = parents.size - vocabulary
    depths = node_depths(parents, vocabulary)
    if depths[0] < 0:
        raise ArtifactError("the tree of the output layer is damaged: train the model again, or fetch a whole copy.")
    levels, rows = [], np.full(vocabulary, -1)
    index = np.zeros(parents.size, dtype=np.int64)  # of each node in its level
    done = 0
    for depth in range(1, int(depths.max(initial=0)) + 1):
        nodes = np.flatnonzero(depths == depth)
        index[nodes] = np.arange(nodes.size)
        above = parents[nodes]
        levels.append((torch.from_numpy(index[vocabulary + above]), torch.from_numpy(above + inner * lefts[nodes])))
        tokens = nodes[nodes < vocabulary]
        rows[tokens] = done + index[tokens]
        done += nodes.size
    token_depths = torch.from_numpy(depths[:vocabulary].copy())
    return TreePaths(parent.clone(), left.clone(), token_depths, levels, torch.from_numpy(rows))


def leaf_logprobs(scores: Tensor, paths: TreePaths) -> Tensor:
    """(positions, vocabulary): the log-probability of every token, from scores (inner nodes, positions)."""
    to_left = f.logsigmoid(scores)
    decisions = torch.cat([to_left - scores, to_left])  # log s(-x) = log s(x) - x
    reached = [scores.new_zeros(1, scores.shape[1])]
    for above, decision in paths.levels:
        reached.append(reached[-1][above] + decisions[decision])
    impossible = scores.new_full((1, scores.shape[1]), -torch.inf)
    return torch.cat([*reached[1:], impossible])[paths.row].T


class PathLosses(Function):
    """(positions,): -log of the probability of the path to each target.

    A path has about log2(V) nodes: gathering so few vectors for a matrix product would take longer than a kernel that
    walks each path.
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
        d_scores = states.new_empty(int(ends[-1]) if len(ends) else 0)
        losses = states.new_empty(len(targets))
        tensors = (states, targets, parent, left, weight.contiguous(), bias, starts, d_scores, losses)
        walk(*(tensor.detach().numpy() for tensor in tensors))
        ctx.save_for_backward(states, targets, parent, weight, starts, d_scores)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight = ctx.saved_tensors[3]
        d_states, d_weight = torch.zeros_like(ctx.saved_tensors[0]), torch.zeros_like(weight)
        d_bias = weight.new_zeros(len(weight))
        tensors = (*ctx.saved_tensors, gradient.contiguous(), d_states, d_weight, d_bias)
        walk_back(*(tensor.detach().numpy() for tensor in tensors))
        return d_states, d_weight, d_bias, None, None, None, None


TreeArrays = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""`parent` and `left` of all nodes, see `_tree_kernels`."""
_CHUNK = 256  # positions whose probabilities of all tokens are computed at once
_ACCUMULATE_FROM, _REBUILD_AT = 0.1, 0.2  # fractions of training: to sum up states, and to build the tree from them
_PROJECTED = 32
_MAX_DEPTH = 1000  # of a saved tree: those that are built have less than 100 levels


class TreeSoftmax(ExactLayer):
    """p(w | s) = product over the nodes i on the path to w of s(q_i . s + b_i) to the left, 1 - that to the right.

    The initial biases make every probability the token's frequency.
    """

    parent: Tensor
    """The node above each token and each inner node: see `_tree_kernels`."""
    left: Tensor

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        inner = predictable(counts.size).size - 1
        self.weight = nn.Parameter(torch.empty(inner, state_width(recipe)))
        self.bias = nn.Parameter(torch.empty(inner)) if recipe.output.bias else None
        self.register_buffer("parent", torch.empty(counts.size + inner, dtype=torch.int64))
        self.register_buffer("left", torch.empty(counts.size + inner, dtype=torch.bool))
        self._paths: TreePaths | None = None
        self._mean_depth = math.log2(inner + 1)

    def _set_tree(self, tree: TreeArrays, generator: torch.Generator | None = None) -> None:
        """Replace the tree and initialise its nodes."""
        parent, left = tree
        self.parent.copy_(torch.from_numpy(parent))
        self.left.copy_(torch.from_numpy(left))
        masses = node_masses(parent, left, self._frequencies)
        with torch.no_grad():
            self.weight.normal_(std=INIT_STD, generator=generator)
            if self.bias is not None:
                self.bias.copy_(torch.from_numpy(np.log(masses[:, 0] / masses[:, 1])))

    @property
    def paths(self) -> TreePaths:
        """The levels of the tree, cached until the tree changes, as when a saved state is loaded."""
        found = self._paths
        if found is None or not (torch.equal(found.parent, self.parent) and torch.equal(found.left, self.left)):
            self._paths = found = find_paths(self.parent, self.left, self._frequencies.size)
        return found

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        bias = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        tree = (self.parent, self.left, self.paths.depths)
        made: Tensor = PathLosses.apply(states, self.weight, bias, targets, *tree)  # type: ignore[no-untyped-call]
        return made

    def all_logprobs(self, states: Tensor) -> Tensor:
        bias = 0 if self.bias is None else self.bias[:, None]
        chunks = torch.split(states, _CHUNK)
        return torch.cat([leaf_logprobs(self.weight @ some.T + bias, self.paths) for some in chunks])

    def is_sound(self) -> bool:
        return is_tree(self.parent.numpy(), self.left.numpy(), self._frequencies.size)

    def own_flops(self) -> float:
        return 2.0 * self.weight.shape[1] * self._mean_depth


def is_tree(parent: npt.NDArray[np.int64], left: npt.NDArray[np.bool_], vocabulary: int) -> bool:
    """Whether every inner node has a left and a right child, and all predictable tokens are leaves.

    >>> parent, left = huffman_tree(np.array([0, 0.2, 0, 0.3, 0, 0.5]))
    >>> swapped = parent.copy()
    >>> swapped[1] = 0
    >>> is_tree(parent, left, 6), is_tree(swapped, left, 6)
    (True, False)
    """
    inner = parent.size - vocabulary
    nodes = np.append(predictable(vocabulary), np.arange(vocabulary + 1, parent.size))
    others = np.delete(parent, nodes)
    if np.any(others != -1) or np.any(parent[nodes] < 0):
        return False
    depths = node_depths(parent, vocabulary)
    if depths[0] < 0 or depths.max() > _MAX_DEPTH:
        return False
    children = np.bincount(2 * parent[nodes] + left[nodes], minlength=2 * inner)
    return children.size == 2 * inner and bool(np.all(children == 1))


class HuffmanTree(TreeSoftmax):
    """Frequent tokens have short paths, which minimises the expected number of decisions (Huffman 1952)."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        self._set_tree(huffman_tree(self._frequencies))
        self._mean_depth = float(self.paths.depths.numpy() @ self._frequencies)


class LearnedTree(TreeSoftmax):
    """Tokens that follow similar contexts share most of their path (HLBL; Mnih and Hinton 2008).

    As in the paper training starts with a random tree. From a tenth of training on the states that predict each token
    are summed up, and at a fifth the tree is rebuilt from their means by recursive bisection, with newly initialised
    nodes. Of wide states 32 random projections are summed up, which preserve distances well enough (Johnson and
    Lindenstrauss 1984).
    """

    sums: Tensor
    """(vocabulary, projected): the sum of the projected states that predicted each token."""
    seen: Tensor
    """(vocabulary,): the number of these states."""
    rebuilt: Tensor
    """Whether the tree has been rebuilt."""
    signs: Tensor

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        wide = self.weight.shape[1]
        signs = np.eye(wide) if wide <= _PROJECTED else np.random.default_rng(0).choice([-1.0, 1.0], (wide, _PROJECTED))
        self.register_buffer("signs", torch.from_numpy(signs).float(), persistent=False)
        self.register_buffer("sums", torch.zeros(counts.size, signs.shape[1]))
        self.register_buffer("seen", torch.zeros(counts.size, dtype=torch.int64))
        self.register_buffer("rebuilt", torch.zeros((), dtype=torch.bool))
        self._accumulates = False
        shuffled = torch.randperm(predictable(counts.size).size).numpy()
        self._set_tree(split_tree(np.zeros((counts.size, 0), np.float32), shuffled, 0))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        if self._accumulates and rng is not None:
            self.sums.index_add_(0, targets, states.detach() @ self.signs)
            self.seen += targets.bincount(minlength=self.seen.numel())
        return super().loss(states, targets, previous, rng)

    def update_structure(self, progress: float) -> bool:
        self._accumulates = progress >= _ACCUMULATE_FROM and not self.rebuilt
        if progress < _REBUILD_AT or self.rebuilt or not self.seen.any():
            return False
        means = self.sums / self.seen[:, None]
        known = self.seen > 0
        means[~known] = means[known].mean(0)
        self.rebuild(means, seed=0)
        self.sums.zero_()
        self.seen.zero_()
        self.rebuilt.fill_(True)
        self._accumulates = False
        return True

    def rebuild(self, vectors: Tensor, seed: int) -> None:
        """Build another tree, in which near vectors (vocabulary, any width) are near leaves, with new nodes."""
        chosen = vectors.detach().float().contiguous().numpy()
        tree = split_tree(chosen, np.arange(predictable(len(chosen)).size), seed)
        self._set_tree(tree, torch.Generator().manual_seed(seed))


def huffman_tree(frequency: npt.NDArray[np.float64]) -> TreeArrays:
    """The tree with the shortest expected path.

    >>> from firth.nets.outputs.output import frequencies
    >>> parent, left = huffman_tree(frequencies(np.array([0, 0, 0, 3, 0, 7, 2])))
    >>> find_paths(torch.from_numpy(parent), torch.from_numpy(left), 7).depths.tolist()
    [0, 3, 0, 2, 0, 1, 3]
    """
    parent, left = _empty_tree(frequency.size)
    tokens = predictable(frequency.size)
    tokens = tokens[np.argsort(frequency[tokens], kind="stable")]
    huffman(frequency[tokens], tokens, parent, left)
    return parent, left


def split_tree(vectors: npt.NDArray[np.float32], shuffled: npt.NDArray[np.int64], seed: int) -> TreeArrays:
    """The tree of recursive 2-means over vectors; `shuffled` is the order in which equal vectors are split."""
    parent, left = _empty_tree(len(vectors))
    tokens = predictable(len(vectors))[shuffled]
    split_tokens(vectors[tokens], tokens, len(vectors), parent, left, seed)
    return parent, left


def _empty_tree(vocabulary: int) -> TreeArrays:
    nodes = vocabulary + predictable(vocabulary).size - 1
    return np.full(nodes, -1), np.zeros(nodes, dtype=np.bool_)
