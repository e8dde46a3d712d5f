"""Crf: a linear-chain conditional random field (Lafferty et al. 2001).

The score of labels y for emissions x is start[y_1] + sum of x_t[y_t] + sum of between[y_t, y_t+1] + end[y_n]. Sequences
are padded; only the first `lengths` positions count, and an empty sequence has score 0. Shapes: emissions (batch,
length, labels); labels (batch, length); lengths (batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from firth.metrics.tags import Scheme, fault_table

FORBIDDEN = -10_000.0
"""Score of a forbidden transition: its probability is exactly 0, but the loss and gradients of gold labels that contain
one stay finite."""


def decode_jointly(
    emissions: npt.NDArray[Any], transitions: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The best labels for the emissions of one sequence and their marginal probabilities."""
    from firth.tasks._crf_kernels import decode

    return decode(emissions, transitions)


class Crf(nn.Module):
    """Transition scores between labels.

    >>> crf = Crf(["O", "B-PER", "I-PER"], constrained=True)
    >>> crf.decode(np.array([[0.0, 0.0, 5.0], [0.0, 0.0, 9.0]]))[0].tolist()
    [1, 2]
    """

    barred: Tensor

    def __init__(self, labels: Sequence[str], constrained: bool = False) -> None:
        """constrained: forbid transitions that violate BIO or BIOES."""
        super().__init__()
        count = len(labels)
        self.start = nn.Parameter(torch.zeros(count))
        self.between = nn.Parameter(torch.zeros(count, count))
        self.end = nn.Parameter(torch.zeros(count))
        faults = torch.from_numpy(fault_table(labels, constraint_scheme(labels) if constrained else "plain"))
        barred = torch.zeros(faults.shape).masked_fill(faults, FORBIDDEN)
        self.register_buffer("barred", barred, persistent=False)  # it follows from the labels

    def loss(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Summed negative log-likelihood; labels of padding are ignored."""
        return (self.log_partition(emissions, lengths) - self.score(emissions, labels, lengths)).sum()

    def score(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """(batch): the score of the labels of each sequence."""
        start, between, end = self._transitions()
        padding = torch.arange(emissions.shape[1], device=lengths.device) >= lengths[:, None]
        labels = labels.masked_fill(padding, 0)
        emitted = emissions.gather(2, labels[:, :, None])[:, :, 0].masked_fill(padding, 0.0)
        steps = between[labels[:, :-1], labels[:, 1:]].masked_fill(padding[:, 1:], 0.0)
        last = labels.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        whole = emitted.sum(1) + steps.sum(1) + start[labels[:, 0]] + end[last]
        return whole.masked_fill(lengths == 0, 0.0)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """(batch): the logarithm of the partition function, by the forward algorithm."""
        found: Tensor = _LogPartition.apply(emissions, *self._transitions(), lengths)  # type: ignore[no-untyped-call]
        return found

    def decode(self, emissions: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The best labels for the emissions of one sequence, (length, labels), and their marginal probabilities."""
        return decode_jointly(emissions, self.transitions())

    def transitions(self) -> npt.NDArray[np.float64]:
        """(labels + 1, labels + 1): transition scores as `decode` takes them."""
        start, between, end = (one.detach().double().numpy() for one in self._transitions())
        return np.block([[between, end[:, None]], [start[None], np.zeros((1, 1))]])

    def _transitions(self) -> tuple[Tensor, Tensor, Tensor]:
        """Start, transition and end scores with the constraints."""
        barred = self.barred
        return self.start + barred[-1, :-1], self.between + barred[:-1, :-1], self.end + barred[:-1, -1]


class _LogPartition(Function):
    """Hand-written, because autograd would record an operation for each position.

    The derivatives are the marginal probabilities of labels and the expected counts of transitions.
    """

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, start: Tensor, between: Tensor, end: Tensor, lengths: Tensor) -> Tensor:
        from firth.tasks._crf_kernels import log_partitions

        scores = [one.detach().double().numpy() for one in (emissions, start, between, end)]
        results: Any = log_partitions(scores[0], scores[1], scores[2], scores[3], lengths.numpy())
        found, *derivatives = map(torch.from_numpy, results)
        ctx.save_for_backward(*(one.to(emissions.dtype) for one in derivatives))
        return found.to(emissions.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        labels, start, between, end = ctx.saved_tensors
        rows = gradient[:, None]
        return labels * rows[:, :, None], gradient @ start, (rows[:, :, None] * between).sum(0), gradient @ end, None


def constraint_scheme(labels: Sequence[str]) -> Scheme:
    """The scheme that constrains transitions: BIOES if a label begins with E or S, BIO, or plain for other labels.

    >>> constraint_scheme(["B", "M", "E", "S"]), constraint_scheme(["O", "B-X"]), constraint_scheme(["DET", "I-X"])
    ('BIOES', 'BIO', 'plain')
    """
    prefixes = {label.partition("-")[0] for label in labels}
    if not prefixes <= set("BIMESO"):
        return "plain"
    return "BIOES" if prefixes & {"E", "S"} else "BIO"
