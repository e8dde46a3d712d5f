"""Softmax over clusters of tokens by frequency: classes, or a head and lower-dimensional tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from firth.nets.embedding import Embedding
from firth.nets.linear import INIT_STD
from firth.nets.outputs.output import (
    Counts,
    ExactLayer,
    are_bounds,
    invert_order,
    is_ranking,
    rank_tokens,
    state_width,
)
from firth.nets.recipe import NetRecipe


class Segment(NamedTuple):
    """States `first` to `last` with a softmax over rows `low` to `high` of the weights."""

    first: int
    last: int
    low: int
    high: int


def segment_losses(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, segments: Sequence[Segment]
) -> Tensor:
    """(positions,): -log softmax of each state over the rows of its segment, at its target row.

    No row is in two segments. States in no segment have a loss of 0.

    >>> weight, segments = torch.zeros(5, 2), [Segment(0, 1, 0, 3), Segment(1, 2, 3, 5)]
    >>> segment_losses(torch.ones(3, 2), weight, None, torch.tensor([1, 4, 0]), segments).exp().tolist()
    [3.0, 2.0, 1.0]
    """
    losses: Tensor = _SegmentLosses.apply(states, weight, bias, targets, segments)  # type: ignore[no-untyped-call]
    return losses


class _SegmentLosses(Function):
    """Hand-written, because autograd would make a gradient of the whole weights for each slice of them."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, segments: Sequence[Segment]
    ) -> Tensor:
        losses = states.new_zeros(len(states))
        d_scores = []
        for first, last, low, high in segments:
            rows = weight[low:high].T
            some = states[first:last]
            scores = some @ rows if bias is None else torch.addmm(bias[low:high], some, rows)
            logs = scores.log_softmax(1)
            at = targets[first:last, None] - low
            losses[first:last] = -logs.gather(1, at)[:, 0]
            if any(ctx.needs_input_grad):
                d_scores.append(logs.exp_().scatter_add_(1, at, logs.new_full((1, 1), -1).expand_as(at)))
        ctx.segments = segments
        ctx.save_for_backward(states, weight, bias, *d_scores)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """d loss / d score of row r is p(r) - 1[r is the target]."""
        states, weight, bias, *d_scores = ctx.saved_tensors
        d_states, d_weight = torch.zeros_like(states), torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        for (first, last, low, high), slope in zip(ctx.segments, d_scores, strict=True):
            scaled = slope * gradient[first:last, None]
            torch.mm(scaled, weight[low:high], out=d_states[first:last])
            torch.mm(scaled.T, states[first:last], out=d_weight[low:high])
            if d_bias is not None:
                d_bias[low:high] += scaled.sum(0)
        return d_states, d_weight, d_bias, None, None


class ClassSoftmax(ExactLayer):
    """p(w | s) = p(class of w | s) * p(w | class of w, s) (Goodman 2001, Mikolov et al. 2011).

    Classes are bins of tokens of similar frequency, about the square root of the vocabulary in number, as is the cost
    of a prediction. Token vectors are stored class by class. The initial biases make every probability the token's
    frequency.
    """

    order: Tensor
    """Tokens, class by class."""
    row: Tensor
    """(vocabulary,): the index of each token in that order, -1 for those that are never predicted."""
    bounds: Tensor
    """Where each class begins in that order, and the end."""
    member: Tensor
    """Index in that order -> class."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        order, bounds = frequency_bins(self._frequencies)
        masses = np.add.reduceat(self._frequencies[order], bounds[:-1])
        member = np.repeat(np.arange(masses.size), np.diff(bounds))
        self._cost = masses.size + float(masses @ np.diff(bounds))
        self.register_buffer("order", torch.from_numpy(order))
        self.register_buffer("row", invert_order(order, counts.size))
        self.register_buffer("bounds", torch.from_numpy(bounds))
        self.register_buffer("member", torch.from_numpy(member))
        width = state_width(recipe)
        self.weight = nn.Parameter(torch.empty(order.size, width).normal_(std=INIT_STD))
        self.class_weight = nn.Parameter(torch.empty(masses.size, width).normal_(std=INIT_STD))
        self.bias = self.class_bias = None
        if recipe.output.bias:
            self.bias = nn.Parameter(torch.from_numpy(np.log(self._frequencies[order])).float())
            self.class_bias = nn.Parameter(torch.from_numpy(np.log(masses)).float())

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        rows = self.row[targets]
        classes = self.member[rows]
        every = [Segment(0, len(states), 0, len(self.class_weight))]
        of_class = segment_losses(states, self.class_weight, self.class_bias, classes, every)
        by_class = classes.argsort(stable=True)
        segments = self._segments(classes)
        of_word = segment_losses(states.index_select(0, by_class), self.weight, self.bias, rows[by_class], segments)
        return of_class + torch.zeros_like(of_word).index_copy(0, by_class, of_word)

    def _segments(self, classes: Tensor) -> list[Segment]:
        """The states of each class once sorted by class; a class of one token needs no softmax."""
        bounds = self.bounds.tolist()
        ends = classes.bincount(minlength=len(bounds) - 1).cumsum(0).tolist()
        parts = zip([0, *ends], ends, bounds, bounds[1:], strict=False)
        return [Segment(*part) for part in parts if part[1] > part[0] and part[3] > part[2] + 1]

    def all_logprobs(self, states: Tensor) -> Tensor:
        scores = f.linear(states, self.weight, self.bias)
        classes = f.linear(states, self.class_weight, self.class_bias).log_softmax(1)
        sizes = self.bounds.diff().tolist()
        pairs = zip(torch.split(scores, sizes, 1), torch.split(classes, 1, 1), strict=True)
        logs = torch.cat([some.log_softmax(1) + chosen for some, chosen in pairs], 1)
        return f.pad(logs, (0, 1), value=-torch.inf)[:, self.row]

    def is_sound(self) -> bool:
        order, rows, bounds = self.order.numpy(), self.row.numpy(), self.bounds.numpy()
        if not (is_ranking(rows) and are_bounds(bounds, order.size)):
            return False
        members = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
        return np.array_equal(order, np.argsort(rows)[-order.size :]) and np.array_equal(self.member.numpy(), members)

    def own_flops(self) -> float:
        return 2.0 * self.weight.shape[1] * self._cost


def frequency_bins(frequency: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tokens from frequent to rare, and where each class begins among them (and the end).

    Every class has about the same sum of square roots of frequencies, which minimises the expected size of a target's
    class: with bins 1/n(x) wide, sum p(x) / n(x) is least for n(x) proportional to the root of p(x).

    >>> from firth.nets.outputs.output import frequencies
    >>> order, bounds = frequency_bins(frequencies(np.array([0, 3, 0, 30, 0, 100, 90, 3, 2, 1, 1])))
    >>> order.tolist(), bounds.tolist()
    ([5, 6, 3, 1, 7, 8, 9, 10], [0, 1, 3, 8])
    """
    order = rank_tokens(frequency)
    roots = np.sqrt(frequency[order])
    wanted = max(1, round(np.sqrt(order.size)))
    middles = roots.cumsum() - roots / 2
    bins = np.minimum((wanted * middles / roots.sum()).astype(np.int64), wanted - 1)
    firsts = np.flatnonzero(np.diff(bins, prepend=-1))
    return order, np.append(firsts, order.size)


_COVERED = (0.8, 0.95)  # of the text: by the head, and by head and first tail
_NARROWER = 4  # division of the width from one cluster to the next
_MIN_TAIL = 8  # tokens: smaller tails stay in the cluster before


class AdaptiveSoftmax(ExactLayer):
    """p(w | s) = p_head(w | s) for frequent tokens, p_head(tail | s) * p_tail(w | s) for others (Grave et al. 2017).

    The head has the tokens that make up 80% of the text and an entry for each tail; a first tail the next 15%, with
    states projected to a quarter of their width, a second the rest with a sixteenth. The initial biases make every
    probability the token's frequency.
    """

    row: Tensor
    """(vocabulary,): the rank of each token from frequent to rare, -1 for those that are never predicted."""
    bounds: Tensor
    """Where the head and each tail begin in that order, and the end."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        order, bounds = frequency_cuts(self._frequencies)
        self.register_buffer("row", invert_order(order, counts.size))
        self.register_buffer("bounds", torch.from_numpy(bounds))
        ranked = self._frequencies[order]
        self._masses = np.add.reduceat(ranked, bounds[:-1])
        width, bias = state_width(recipe), recipe.output.bias
        self.head = _make_softmax(width, np.append(ranked[: bounds[1]], self._masses[1:]), bias)
        self.tails = nn.ModuleList(
            _Tail(width, max(1, width // _NARROWER**number), ranked[bounds[number] : bounds[number + 1]], bias)
            for number in range(1, bounds.size - 1)
        )

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        rows = self.row[targets]
        cluster = torch.bucketize(rows, self.bounds[1:-1], right=True)
        begins = self.bounds.tolist()
        total = _losses(states, self.head, torch.where(cluster == 0, rows, begins[1] + cluster - 1))
        for number, tail in enumerate(self._tails(), 1):
            members = (cluster == number).nonzero()[:, 0]
            narrow = tail.project(states.index_select(0, members))
            total = total.index_add(0, members, _losses(narrow, tail.softmax, rows[members] - begins[number]))
        return total

    def all_logprobs(self, states: Tensor) -> Tensor:
        head = self.head(states).log_softmax(1)
        frequent = int(self.bounds[1])
        logs = [head[:, :frequent]]
        for number, tail in enumerate(self._tails()):
            logs.append(tail.softmax(tail.project(states)).log_softmax(1) + head[:, frequent + number, None])
        never = states.new_full((len(states), 1), -torch.inf)
        return torch.cat([*logs, never], 1)[:, self.row]

    def is_sound(self) -> bool:
        rows, bounds = self.row.numpy(), self.bounds.numpy()
        sizes = [self.head.out_features - len(self.tails), *(tail.softmax.out_features for tail in self._tails())]
        return is_ranking(rows) and np.array_equal(bounds, np.cumsum([0, *sizes]))

    def own_flops(self) -> float:
        pairs = zip(self._masses[1:], self._tails(), strict=True)
        weights = [mass * (tail.project.weight.numel() + tail.softmax.weight.numel()) for mass, tail in pairs]
        return 2.0 * (self.head.weight.numel() + float(sum(weights)))

    def _tails(self) -> list[_Tail]:
        return [tail for tail in self.tails if isinstance(tail, _Tail)]


class _Tail(nn.Module):
    """Rare tokens: a projection to fewer dimensions and a softmax over them."""

    def __init__(self, width: int, narrow: int, frequency: npt.NDArray[np.float64], bias: bool) -> None:
        super().__init__()
        self.project = nn.Linear(width, narrow, bias=False)
        self.project.weight.data.normal_(std=width**-0.5)
        self.softmax = _make_softmax(narrow, frequency, bias)


def _make_softmax(width: int, frequency: npt.NDArray[np.float64], bias: bool) -> nn.Linear:
    """Logits whose initial probabilities are proportional to the frequencies."""
    made = nn.Linear(width, frequency.size, bias=bias)
    made.weight.data.normal_(std=INIT_STD)
    if bias:
        made.bias.data.copy_(torch.from_numpy(np.log(frequency / frequency.sum())))
    return made


def _losses(states: Tensor, softmax: nn.Linear, targets: Tensor) -> Tensor:
    every = [Segment(0, len(states), 0, softmax.out_features)] if len(states) else []
    return segment_losses(states, softmax.weight, softmax.bias, targets, every)


def frequency_cuts(frequency: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tokens from frequent to rare, and where the head and each tail begin among them (and the end).

    >>> from firth.nets.outputs.output import frequencies
    >>> order, bounds = frequency_cuts(frequencies(np.r_[np.zeros(5, int), 900, 400, np.ones(90, int)]))
    >>> order[:3].tolist(), bounds.tolist()
    ([5, 6, 7], [0, 2, 56, 94])
    """
    order = rank_tokens(frequency)
    bounds = [0]
    for cut in np.searchsorted(frequency[order].cumsum(), _COVERED) + 1:
        if cut - bounds[-1] >= (_MIN_TAIL if len(bounds) > 1 else 1) and order.size - cut >= _MIN_TAIL:
            bounds.append(int(cut))
    return order, np.array([*bounds, order.size])
