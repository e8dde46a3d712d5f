"""Adaptive softmax: frequent tokens at full width, rarer ones behind narrower doors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.nets.outputs.output import ExactLayer, frequencies, predictable, state_width
from firth.nets.outputs.segments import Segment, segment_losses
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

_SPREAD = 0.02
_COVERED = (0.8, 0.95)  # of the text: by the head, and by head and first tail
_NARROWER = 4  # how much narrower each tail is than what comes before it
_FEWEST = 8  # tokens of a tail: fewer are left where they are


class Adaptive(ExactLayer):
    """p(w | s) = p_head(w | s) for frequent tokens, p_head(tail | s) * p_tail(w | s) for others (Grave et al. 2017).

    The head has the tokens that make up 80% of the text and an entry for each tail; a first tail the next 15%, with
    states brought to a quarter of their width, a second the rest with a sixteenth. The first biases make every
    probability the token's frequency.
    """

    row: Tensor
    """Token -> its row among all tokens from frequent to rare, -1 for those that are never predicted."""
    bounds: Tensor
    """Where the head and each tail begin in that order, and the end."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__(recipe)
        shares = frequencies(counts)
        order, bounds = frequency_cuts(shares)
        row = np.full(counts.size, -1)
        row[order] = np.arange(order.size)
        self.register_buffer("row", torch.from_numpy(row))
        self.register_buffer("bounds", torch.from_numpy(bounds))
        ranked = shares[order]
        self._masses = np.add.reduceat(ranked, bounds[:-1])
        width, bias = state_width(recipe), recipe.output.bias
        self.head = _table(width, np.append(ranked[: bounds[1]], self._masses[1:]), bias)
        self.tails = nn.ModuleList(
            _Tail(width, max(1, width // _NARROWER**number), ranked[bounds[number] : bounds[number + 1]], bias)
            for number in range(1, bounds.size - 1)
        )

    def losses(self, entered: Tensor, targets: Tensor) -> Tensor:
        rows = self.row[targets]
        part = torch.bucketize(rows, self.bounds[1:-1], right=True)
        begins = self.bounds.tolist()
        total = _losses(entered, self.head, torch.where(part == 0, rows, begins[1] + part - 1))
        for number, tail in enumerate(self._tails(), 1):
            places = (part == number).nonzero()[:, 0]
            losses = _losses(tail.door(entered.index_select(0, places)), tail.table, rows[places] - begins[number])
            total = total.index_add(0, places, losses)
        return total

    def all_logs(self, entered: Tensor) -> Tensor:
        head = self.head(entered).log_softmax(1)
        frequent = int(self.bounds[1])
        logs = [head[:, :frequent]]
        for number, tail in enumerate(self._tails()):
            logs.append(tail.table(tail.door(entered)).log_softmax(1) + head[:, frequent + number, None])
        never = entered.new_full((len(entered), 1), -torch.inf)
        return torch.cat([*logs, never], 1)[:, self.row]

    def own_work(self) -> float:
        pairs = zip(self._masses[1:], self._tails(), strict=True)
        weights = [share * (tail.door.weight.numel() + tail.table.weight.numel()) for share, tail in pairs]
        return 2.0 * (self.head.weight.numel() + float(sum(weights)))

    def _tails(self) -> list[_Tail]:
        return [tail for tail in self.tails if isinstance(tail, _Tail)]


class _Tail(nn.Module):
    """Rare tokens: a door that makes states narrower, and a table of narrow vectors behind it."""

    def __init__(self, width: int, narrow: int, shares: npt.NDArray[np.float64], bias: bool) -> None:
        super().__init__()
        self.door = nn.Linear(width, narrow, bias=False)
        self.door.weight.data.normal_(std=width**-0.5)
        self.table = _table(narrow, shares, bias)


def _table(width: int, shares: npt.NDArray[np.float64], bias: bool) -> nn.Linear:
    """Vectors of tokens that begin with probabilities in proportion to their shares."""
    table = nn.Linear(width, shares.size, bias=bias)
    table.weight.data.normal_(std=_SPREAD)
    if bias:
        table.bias.data.copy_(torch.from_numpy(np.log(shares / shares.sum())))
    return table


def _losses(states: Tensor, table: nn.Linear, answers: Tensor) -> Tensor:
    """-log of the softmax of the scores of a whole table."""
    every = [Segment(0, len(states), 0, table.out_features)] if len(states) else []
    return segment_losses(states, table.weight, table.bias, answers, every)


def frequency_cuts(shares: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tokens from frequent to rare, and where the head and each tail begin among them (and the end).

    >>> order, bounds = frequency_cuts(frequencies(np.r_[np.zeros(5, int), 900, 400, np.ones(90, int)]))
    >>> order[:3].tolist(), bounds.tolist()
    ([5, 6, 7], [0, 2, 56, 94])
    """
    kept = predictable(shares.size)
    order = kept[np.argsort(-shares[kept], kind="stable")]
    bounds = [0]
    for cut in np.searchsorted(shares[order].cumsum(), _COVERED) + 1:
        if cut - bounds[-1] >= (_FEWEST if len(bounds) > 1 else 1) and order.size - cut >= _FEWEST:
            bounds.append(int(cut))
    return order, np.array([*bounds, order.size])
