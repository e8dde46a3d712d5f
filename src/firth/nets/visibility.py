"""Visibility: which positions of a row a state may know of, as predicates.

A position sees another if both belong to the same part of the row and the predicate holds for the times at which they
become known. The times are the places in the row unless a batch says otherwise: a permuted order or a prefix is nothing
but other times, and a network that sees both sides is one for which all is known at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from firth.nets.noise import Noise

Predicate = Callable[[Tensor, Tensor], Tensor]

PREDICATES: dict[str, Predicate] = {
    "causal": lambda query, key: key <= query,
    "anticausal": lambda query, key: key >= query,
    "before": lambda query, key: key < query,
    "bidirectional": lambda query, key: torch.ones_like(key <= query),
}
"""Whether something known at the time `key` can be seen at the time `query`."""


class Sight(NamedTuple):
    """What attention adds to its scores so that it looks only at what may be seen."""

    hidden: Tensor | None
    """(rows or 1, query, key): 0 where the query sees the key, -inf elsewhere; None if everything is seen."""
    sees: Tensor | None = None
    """(rows or 1, query, 1): 0 for a query that sees nothing, 1 for others; None if there is none such. To its scores 0
    is added, and what it finds is to be multiplied by this."""


class Asked:
    """Some places of rows, with those of each row side by side: as many as the row with the most of them has.

    >>> asked = Asked(torch.tensor([1, 2, 5]), (2, 4))
    >>> asked.most, asked.table.tolist(), asked.slots.tolist()
    (2, [[1, 2], [1, 0]], [0, 1, 2])
    """

    def __init__(self, places: Tensor, shape: tuple[int, int]) -> None:
        rows, length = shape
        row = places.div(length, rounding_mode="floor")
        counts = torch.bincount(row, minlength=rows)
        self.rows, self.most = rows, max(1, int(counts.max()))
        rank = torch.arange(len(places), device=places.device) - (counts.cumsum(0) - counts)[row]
        self.slots = row * self.most + rank
        """Where each place stands in the table, row after row."""
        filled = torch.zeros(rows * self.most, dtype=torch.int64, device=places.device)
        self.table = filled.index_copy(0, self.slots, places - row * length).view(rows, self.most)
        """(rows, most): places in their rows; what is left over is 0."""

    def spread(self, states: Tensor) -> Tensor:
        """(places, width) to (rows, most, width), zero where there is none."""
        empty = states.new_zeros(self.rows * self.most, states.shape[-1])
        return empty.index_copy(0, self.slots, states).view(self.rows, self.most, -1)

    def collect(self, states: Tensor) -> Tensor:
        """(rows, most, width) to (places, width)."""
        return states.flatten(0, 1).index_select(0, self.slots)

    def limit(self, sight: Sight) -> Sight:
        """What these places see."""
        return Sight(self._pick(sight.hidden), self._pick(sight.sees))

    def _pick(self, values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        rows = torch.arange(self.rows, device=values.device)[:, None]
        return values.expand(self.rows, -1, -1)[rows, self.table]


class Source(NamedTuple):
    """What another network has made of what it read, for each row."""

    states: Tensor
    """(rows, places, width)."""
    sight: Sight
    """Which of these places are there: the same for all that look."""


def source_of(states: Tensor, held: Tensor) -> Source:
    """States (rows, places, width), of which those that are `held` (rows, places) may be looked at."""
    return Source(states, _sight(None if bool(held.all()) else held[:, None], states.dtype))


@dataclass
class View:
    """How one pass of a network sees its rows."""

    visibility: str
    """A name of `PREDICATES`."""
    shape: tuple[int, int]
    """Rows, and places in each."""
    parts: Tensor | None = None
    """The part of its row that each place belongs to, -1 for padding; None if every row is one whole part."""
    times: Tensor | None = None
    """When each place becomes known, if that is not its order."""
    noise: Noise | None = None
    """While learning."""
    source: Source | None = None
    """What a decoder looks at, too."""
    unseen: Tensor | None = None
    """(rows, places): true for places that ask, and that no other place sees."""
    passing: int = 0
    """Places at the end of the row that are not kept in a memory."""
    _masks: dict[str, Tensor | None] = field(default_factory=dict)
    _sights: dict[torch.dtype, Sight] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether the places of a row alone decide: no parts, no other times."""
        return self.parts is None and self.times is None

    def mask(self, visibility: str | None = None) -> Tensor | None:
        """(rows or 1, query, key): true where the query sees the key; None if everything is seen."""
        name = visibility or self.visibility
        if name not in self._masks:
            self._masks[name] = self._make(name)
        return self._masks[name]

    def sight(self, dtype: torch.dtype = torch.float32) -> Sight:
        """The same for attention, made once."""
        if dtype not in self._sights:
            self._sights[dtype] = _sight(self.mask(), dtype)
        return self._sights[dtype]

    def _make(self, name: str) -> Tensor | None:
        if name == "bidirectional" and self.times is not None:
            name = "causal"  # what is known at once is seen from both sides, what comes later is not
        if name == "bidirectional" and self.parts is None and self.unseen is None:
            return None
        times = torch.arange(self.shape[1])[None] if self.times is None else self.times
        seen = PREDICATES[name](times[:, :, None], times[:, None, :])
        if self.parts is not None:
            seen = seen & (self.parts[:, :, None] == self.parts[:, None, :])
        if self.unseen is not None:
            seen = seen & (~self.unseen[:, None, :] | torch.eye(self.shape[1], dtype=torch.bool))
        return seen


def _sight(seen: Tensor | None, dtype: torch.dtype) -> Sight:
    if seen is None:
        return Sight(None)
    sees = seen.any(-1, keepdim=True)
    hidden = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(sees & ~seen, -torch.inf)
    return Sight(hidden, None if bool(sees.all()) else sees.to(dtype))
