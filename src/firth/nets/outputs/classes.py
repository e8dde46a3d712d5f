"""Classes: the softmax in two steps, first a class of tokens and then one of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.outputs.output import ExactLayer, frequencies, predictable, state_width
from firth.nets.outputs.segments import Segment, segment_losses
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

_SPREAD = 0.02


class Classes(ExactLayer):
    """p(w | s) = p(class of w | s) * p(w | class of w, s) (Goodman 2001, Mikolov et al. 2011).

    Classes are bins of tokens of like frequency, about as many as the square root of the tokens, so a prediction costs
    that order of products. The tokens' vectors are kept in the order of classes. The first biases make every
    probability the token's frequency.
    """

    order: Tensor
    """Tokens, class after class."""
    row: Tensor
    """Token -> its row in that order, -1 for those that are never predicted."""
    bounds: Tensor
    """Where each class begins in that order, and the end."""
    member: Tensor
    """Row -> its class."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__(recipe)
        shares = frequencies(counts)
        order, bounds = frequency_bins(shares)
        masses = np.add.reduceat(shares[order], bounds[:-1])
        member = np.repeat(np.arange(masses.size), np.diff(bounds))
        row = np.full(counts.size, -1)
        row[order] = np.arange(order.size)
        self._cost = masses.size + float(masses @ np.diff(bounds))
        for name, values in {"order": order, "row": row, "bounds": bounds, "member": member}.items():
            self.register_buffer(name, torch.from_numpy(values))
        width = state_width(recipe)
        self.weight = nn.Parameter(torch.empty(order.size, width).normal_(std=_SPREAD))
        self.class_weight = nn.Parameter(torch.empty(masses.size, width).normal_(std=_SPREAD))
        self.bias = self.class_bias = None
        if recipe.output.bias:
            self.bias = nn.Parameter(torch.from_numpy(np.log(shares[order])).float())
            self.class_bias = nn.Parameter(torch.from_numpy(np.log(masses)).float())

    def losses(self, entered: Tensor, targets: Tensor) -> Tensor:
        rows = self.row[targets]
        classes = self.member[rows]
        every = [Segment(0, len(entered), 0, len(self.class_weight))]
        of_class = segment_losses(entered, self.class_weight, self.class_bias, classes, every)
        by_class = classes.argsort(stable=True)
        segments = self._segments(classes)
        of_word = segment_losses(entered.index_select(0, by_class), self.weight, self.bias, rows[by_class], segments)
        return of_class + torch.zeros_like(of_word).index_copy(0, by_class, of_word)

    def _segments(self, classes: Tensor) -> list[Segment]:
        """Where the states of each class are once they are in its order; a class of one token has no choice."""
        bounds = self.bounds.tolist()
        ends = classes.bincount(minlength=len(bounds) - 1).cumsum(0).tolist()
        parts = zip([0, *ends], ends, bounds, bounds[1:], strict=False)
        return [Segment(*part) for part in parts if part[1] > part[0] and part[3] > part[2] + 1]

    def all_logs(self, entered: Tensor) -> Tensor:
        scores = f.linear(entered, self.weight, self.bias)
        classes = f.linear(entered, self.class_weight, self.class_bias).log_softmax(1)
        sizes = self.bounds.diff().tolist()
        pairs = zip(torch.split(scores, sizes, 1), torch.split(classes, 1, 1), strict=True)
        logs = torch.cat([some.log_softmax(1) + chosen for some, chosen in pairs], 1)
        return f.pad(logs, (0, 1), value=-torch.inf)[:, self.row]

    def own_work(self) -> float:
        return 2.0 * self.weight.shape[1] * self._cost


def frequency_bins(shares: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tokens from frequent to rare, and where each class begins among them (and the end).

    Every class has about the same sum of square roots of shares. Of all ways to cut the tokens into so many bins this
    one makes the expected size of a target's class smallest: with bins 1/n(x) wide, sum p(x) / n(x) is least for n(x)
    in proportion to the root of p(x).

    >>> order, bounds = frequency_bins(frequencies(np.array([0, 3, 0, 30, 0, 100, 90, 3, 2, 1, 1])))
    >>> order.tolist(), bounds.tolist()
    ([5, 6, 3, 1, 7, 8, 9, 10], [0, 1, 3, 8])
    """
    kept = predictable(shares.size)
    order = kept[np.argsort(-shares[kept], kind="stable")]
    roots = np.sqrt(shares[order])
    wanted = max(1, round(np.sqrt(order.size)))
    middles = roots.cumsum() - roots / 2
    bins = np.minimum((wanted * middles / roots.sum()).astype(np.int64), wanted - 1)
    firsts = np.flatnonzero(np.diff(bins, prepend=-1))
    return order, np.append(firsts, order.size)
