"""Batch: rows of tokens with all that is known about them. Loss: a sum and its count."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """A sum of losses in nats and the number of predictions; added freely, divided once."""

    total: Tensor
    count: int


@dataclass
class Batch:
    """Rows of tokens. Objectives change the ids and note what was there."""

    ids: Tensor
    """(rows, places), 64 bits."""
    starts: Tensor
    """Whether each token begins a word; special tokens do."""
    parts: Tensor | None = None
    """Which part of its row each place belongs to, -1 for padding; None if every row is one whole part."""
    positions: Tensor | None = None
    """The place of each token in its part; None: in its row."""
    segments: Tensor | None = None
    """Which segment of its part each place belongs to: 0 or 1."""
    times: Tensor | None = None
    """When each place becomes known, if that is not its order: see `View`."""
    unseen: Tensor | None = None
    """True for places that no other place sees: they ask what stands there."""
    marks: dict[str, Tensor] = field(default_factory=dict)
    """What objectives have noted, such as `mlm.places` (numbers of places, row after row) and `mlm.targets`."""
    tokens: int = 0
    """Tokens of text in it: what a budget counts."""
    keys: Tensor | None = None
    """A number for each row, by what it holds: noise drawn by it is the same wherever the row stands."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and places in each."""
        rows, places = self.ids.shape
        return rows, places
