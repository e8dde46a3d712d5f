"""Many small softmax losses in a row: each for some states, over some neighbouring rows of one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable


class Segment(NamedTuple):
    """States from `first` to `last` choose among rows `low` to `high` of a table."""

    first: int
    last: int
    low: int
    high: int


def segment_losses(
    states: Tensor, weight: Tensor, bias: Tensor | None, answers: Tensor, segments: Sequence[Segment]
) -> Tensor:
    """(places): -log of the softmax of each state's scores over the rows of its segment, at its answer.

    `answers` are numbers of rows of the table. No row is in two segments. States that are in none have nothing to
    choose: their loss is 0.

    >>> table, choose = torch.zeros(5, 2), [Segment(0, 1, 0, 3), Segment(1, 2, 3, 5)]
    >>> segment_losses(torch.ones(3, 2), table, None, torch.tensor([1, 4, 0]), choose).exp().tolist()
    [3.0, 2.0, 1.0]
    """
    losses: Tensor = _SegmentLosses.apply(states, weight, bias, answers, segments)  # type: ignore[no-untyped-call]
    return losses


class _SegmentLosses(Function):
    """Written by hand, because a slice of a table would give a gradient as large as the whole table, each time."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, answers: Tensor, segments: Sequence[Segment]
    ) -> Tensor:
        losses = states.new_zeros(len(states))
        slopes = []
        for first, last, low, high in segments:
            rows = weight[low:high].T
            some = states[first:last]
            scores = some @ rows if bias is None else torch.addmm(bias[low:high], some, rows)
            logs = scores.log_softmax(1)
            at = answers[first:last, None] - low
            losses[first:last] = -logs.gather(1, at)[:, 0]
            if any(ctx.needs_input_grad):
                slopes.append(logs.exp_().scatter_add_(1, at, logs.new_full((1, 1), -1).expand_as(at)))
        ctx.segments = segments
        ctx.save_for_backward(states, weight, bias, *slopes)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        """d loss / d score of row r is p(r) - 1[r is the answer]."""
        states, weight, bias, *slopes = ctx.saved_tensors
        to_states, to_weight = torch.zeros_like(states), torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        for (first, last, low, high), slope in zip(ctx.segments, slopes, strict=True):
            scaled = slope * above[first:last, None]
            torch.mm(scaled, weight[low:high], out=to_states[first:last])
            torch.mm(scaled.T, states[first:last], out=to_weight[low:high])
            if to_bias is not None:
                to_bias[low:high] += scaled.sum(0)
        return to_states, to_weight, to_bias, None, None
