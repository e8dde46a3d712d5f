"""Visibility: which positions of a row a state may know of, as predicates.

A position sees another if both belong to the same part of the row and the predicate holds for the times at which they
become known. The times are the places in the row unless a batch says otherwise: a permuted order or a prefix is nothing
but other times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
    _masks: dict[str, Tensor | None] = field(default_factory=dict)

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

    def _make(self, name: str) -> Tensor | None:
        if name == "bidirectional" and self.parts is None:
            return None
        times = torch.arange(self.shape[1])[None] if self.times is None else self.times
        seen = PREDICATES[name](times[:, :, None], times[:, None, :])
        if self.parts is not None:
            seen = seen & (self.parts[:, :, None] == self.parts[:, None, :])
        return seen
