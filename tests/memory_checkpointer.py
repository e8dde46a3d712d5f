"""A checkpointer that keeps its states in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from firth.training import Arrays, Checkpoint


class KilledError(Exception):
    """Simulates kill -9."""


class MemoryCheckpointer:
    """All states of a run, as files would hold them; it can die before or after the n-th."""

    def __init__(self, dies_before: int = 0, dies_after: int = 0, due: bool = True) -> None:
        self.saved: list[tuple[Arrays, str]] = []
        self.dies_before, self.dies_after, self.always = dies_before, dies_after, due

    def due(self) -> bool:
        return self.always

    def save(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        if len(self.saved) + 1 == self.dies_before:
            raise KilledError
        self.saved.append(({name: array.copy() for name, array in arrays.items()}, json.dumps(state)))
        if len(self.saved) == self.dies_after:
            raise KilledError

    @property
    def states(self) -> list[Checkpoint]:
        """What was saved; its arrays can be changed."""
        return [(arrays, json.loads(state)) for arrays, state in self.saved]

    def load(self) -> Checkpoint | None:
        if not self.saved:
            return None
        arrays = {name: array.copy() for name, array in self.saved[-1][0].items()}
        for array in arrays.values():
            array.flags.writeable = False
        return arrays, json.loads(self.saved[-1][1])
