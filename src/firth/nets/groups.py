"""States in groups, such as those of the tokens of a sequence: pooled, or padded to the longest."""

from __future__ import annotations

import torch
from torch import Tensor


def pool(states: Tensor, groups: Tensor, count: int, pooling: str) -> Tensor:
    """(count, W): the pooled states of each group; zeros for an empty group. States are sorted by group.

    concat has three times the width: the last state, the maximum and the mean (Howard and Ruder 2018, 3.3).

    >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), 3, "mean").tolist()
    [[2.0], [0.0], [5.0]]
    """
    sizes = torch.bincount(groups, minlength=count)
    if pooling in ("first", "last") and len(groups) == count and bool((sizes == 1).all()):
        return states
    padded, mask = pad_groups(states, groups, count)
    if pooling == "concat":
        last = padded[torch.arange(count), (sizes - 1).clamp(min=0)]
        return torch.cat([last, _maxima(padded, mask), _means(padded, sizes)], 1)
    return _maxima(padded, mask) if pooling == "max" else _means(padded, sizes)


def _maxima(padded: Tensor, mask: Tensor) -> Tensor:
    return padded.masked_fill(~mask[..., None], -torch.inf).amax(1).masked_fill(~mask.any(1)[:, None], 0.0)


def _means(padded: Tensor, sizes: Tensor) -> Tensor:
    return padded.sum(1) / sizes.clamp(min=1)[:, None]


def pad_groups(values: Tensor, groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(count, longest, ...): the values of each group, padded with zeros; and the mask of real values."""
    sizes = torch.bincount(groups, minlength=count)
    longest = max(1, int(sizes.max()))
    rank = torch.arange(len(groups)) - (sizes.cumsum(0) - sizes)[groups]
    padded = values.new_zeros(count * longest, *values.shape[1:]).index_copy(0, groups * longest + rank, values)
    return padded.view(count, longest, *values.shape[1:]), torch.arange(longest) < sizes[:, None]
