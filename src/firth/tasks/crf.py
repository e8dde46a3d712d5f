"""Conditional random field over a row of labels (Lafferty et al. 2001): labels are chosen together.

The score of labels y for emissions x is  start[y_1] + sum of x_t[y_t] + sum of between[y_t, y_t+1] + end[y_n],  and
their probability its exponential over the sum of those of all rows of labels. Rows are padded; only the first `lengths`
places of each count, and a row without places has score 0.

Shapes: emissions (rows, places, labels); labels (rows, places); lengths (rows,), integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from firth.tasks.chain import Decoded, Floats, decode

FORBIDDEN = -10_000.0
"""What a step that may not be costs. Its probability is exactly 0, but loss and gradients stay finite where gold labels
take such a step."""


class Steps(NamedTuple):
    """Which labels may begin a row, follow each other and end a row, as truth values."""

    start: Tensor
    between: Tensor
    """Rows are the labels before, columns those after."""
    end: Tensor


class Crf(nn.Module):
    """The scores of steps between labels, learnt, and what follows from them and the emissions.

    >>> crf = Crf(["O", "B-PER", "I-PER"], constrained=True)
    >>> crf.decode(np.array([[0.0, 0.0, 5.0], [0.0, 0.0, 9.0]])).labels.tolist()
    [1, 2]
    """

    barred_start: Tensor
    barred_between: Tensor
    barred_end: Tensor

    def __init__(self, labels: Sequence[str], constrained: bool = False) -> None:
        """constrained: steps that BIO or BIOES labels cannot take are ruled out (`legal_steps`)."""
        super().__init__()
        number = len(labels)
        self.start = nn.Parameter(torch.zeros(number))
        self.between = nn.Parameter(torch.zeros(number, number))
        self.end = nn.Parameter(torch.zeros(number))
        legal = legal_steps(labels if constrained else ["O"] * number)
        for name, allowed in zip(("start", "between", "end"), legal, strict=True):
            barred = torch.zeros(allowed.shape).masked_fill(~allowed, FORBIDDEN)
            self.register_buffer(f"barred_{name}", barred, persistent=False)  # it follows from the labels

    def loss(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """The sum over rows of the negative log-probability of their labels; labels in padding may be anything."""
        return (self.log_partition(emissions, lengths) - self.score(emissions, labels, lengths)).sum()

    def score(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """The score of each row's labels."""
        start, between, end = self._steps()
        padding = _padding(lengths, emissions.shape[1])
        labels = labels.masked_fill(padding, 0)
        emitted = emissions.gather(2, labels[:, :, None])[:, :, 0].masked_fill(padding, 0.0)
        steps = between[labels[:, :-1], labels[:, 1:]].masked_fill(padding[:, 1:], 0.0)
        last = labels.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        whole = emitted.sum(1) + steps.sum(1) + start[labels[:, 0]] + end[last]
        return whole.masked_fill(lengths == 0, 0.0)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The logarithm of the sum of the exponential scores of all rows of labels: the forward algorithm."""
        start, between, end = self._steps()
        sums = start + emissions[:, 0]  # over all rows of labels up to this place, by their last label
        for place in range(1, emissions.shape[1]):
            further = (sums[:, :, None] + between).logsumexp(1) + emissions[:, place]
            sums = torch.where((place < lengths)[:, None], further, sums)
        return (sums + end).logsumexp(1).masked_fill(lengths == 0, 0.0)

    def decode(self, emissions: Floats) -> Decoded:
        """The best labels of one row by its emissions, (places, labels), and the probability of each of them."""
        return decode(emissions, self._table())

    def _table(self) -> Floats:
        """All steps in one table: the last row is the beginning, the last column the end."""
        start, between, end = (one.detach().double().numpy() for one in self._steps())
        return np.block([[between, end[:, None]], [start[None], np.zeros((1, 1))]])

    def _steps(self) -> Steps:
        return Steps(self.start + self.barred_start, self.between + self.barred_between, self.end + self.barred_end)


def legal_steps(labels: Sequence[str]) -> Steps:
    """The steps that labels can take which mark chunks by BIO, or by BIOES if any begins with E or S; M is I.

    BIO: `I-X` follows `B-X` or `I-X`. BIOES: `I-X` and `E-X` follow `B-X` or `I-X`, and nothing else does. Labels of
    other forms (parts of speech) can take every step.

    >>> legal_steps(["B", "I", "E", "S"]).between.int().tolist()
    [[0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1]]
    """
    marks = [_mark(label) for label in labels]
    known = [mark for mark in marks if mark is not None]
    if len(known) < len(marks):
        every = torch.ones(len(labels), dtype=torch.bool)
        return Steps(every, every.expand(len(labels), -1), every)
    closing = any(prefix in "ES" for prefix, _ in known)
    goes_on = torch.tensor([prefix in "IE" for prefix, _ in known], dtype=torch.bool)  # needs a chunk to go on with
    leaves_open = torch.tensor([prefix in "BI" for prefix, _ in known], dtype=torch.bool)
    alike = torch.tensor([[one == two for _, two in known] for _, one in known], dtype=torch.bool)
    inside = leaves_open[:, None] & goes_on & alike
    must_go_on = leaves_open if closing else torch.zeros_like(leaves_open)
    return Steps(~goes_on, inside | (~must_go_on[:, None] & ~goes_on), ~must_go_on)


def _mark(label: str) -> tuple[str, str] | None:
    """B, I, E, S or O, and the kind of chunk; nothing for labels of other forms."""
    prefix, _, kind = label.partition("-")
    return (prefix.replace("M", "I"), kind) if prefix in ("B", "I", "M", "E", "S", "O") else None


def _padding(lengths: Tensor, places: int) -> Tensor:
    return torch.arange(places, device=lengths.device) >= lengths[:, None]
