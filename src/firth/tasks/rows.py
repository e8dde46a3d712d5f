"""Rows: examples as a network reads them, several short ones beside each other in one row.

Packing decides nothing but speed: every example is a part of its row, sees itself alone and has positions of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from firth.nets.batch import Batch

Numbers = npt.NDArray[np.int64]
PLACES = "places"
"""The mark whose values are places of the row."""
GROUPS = "groups"
"""The mark that tells the number of the row that each of the places belongs to."""


@dataclass(frozen=True)
class Row:
    """One reading of an example."""

    ids: Numbers
    segments: Numbers | None = None
    times: Numbers | None = None
    """When each token becomes known, if that is not its order: a source all at once, its target token by token."""
    marks: Mapping[str, Numbers] = field(default_factory=dict)
    """What a task notes: `places` are counted from the beginning of the row."""
    positions: Numbers | None = None
    """Where each token stands, if that is not its order."""
    unseen: int = 0
    """Tokens at the end that no other sees."""


def pack(rows: Sequence[Row], starts: int) -> Batch:
    """All rows in one batch, first fit, longest first; places are those of the batch, row after row.

    Marks keep the order in which the rows were given. `starts` is the first id that is a token of text.

    >>> one, two = Row(np.array([2, 7, 3]), marks={"places": np.array([0])}), Row(np.array([2, 3]))
    >>> batch = pack([one, two, Row(np.array([2, 8, 9, 9, 3]), marks={"places": np.array([1])})], 5)
    >>> batch.ids.tolist(), batch.marks["places"].tolist(), batch.marks["groups"].tolist()
    ([[2, 8, 9, 9, 3], [2, 7, 3, 2, 3]], [5, 1], [0, 2])
    """
    lengths = np.array([row.ids.size for row in rows])
    homes, begins, numbers = _first_fit(lengths)
    shape = (int(homes.max()) + 1, int(lengths.max()))
    ids = np.zeros(shape, dtype=np.int64)
    parts = np.full(shape, -1, dtype=np.int64)
    positions, segments, times = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    unseen = np.zeros(shape, dtype=np.bool_)
    for row, home, begin, number in zip(rows, homes.tolist(), begins.tolist(), numbers.tolist(), strict=True):
        where = slice(begin, begin + row.ids.size)
        ids[home, where], parts[home, where] = row.ids, number
        positions[home, where] = np.arange(row.ids.size) if row.positions is None else row.positions
        unseen[home, begin + row.ids.size - row.unseen : begin + row.ids.size] = True
        if row.segments is not None:
            segments[home, where] = row.segments
        if row.times is not None:
            times[home, where] = row.times
    alone = shape[0] == len(rows) and int(lengths.min()) == shape[1]
    return Batch(
        ids=torch.from_numpy(ids),
        starts=torch.from_numpy(ids >= starts),
        parts=None if alone else torch.from_numpy(parts),
        positions=None if alone and all(row.positions is None for row in rows) else torch.from_numpy(positions),
        segments=None if all(row.segments is None for row in rows) else torch.from_numpy(segments),
        times=None if all(row.times is None for row in rows) else torch.from_numpy(times),
        unseen=torch.from_numpy(unseen) if unseen.any() else None,
        marks=_marks(rows, homes * shape[1] + begins),
        tokens=int((ids >= starts).sum()),
    )


def _first_fit(lengths: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """For each length the row it goes to, where it begins there, and its number among those of that row."""
    room = int(lengths.max())
    homes, begins, numbers = (np.zeros(lengths.size, dtype=np.int64) for _ in range(3))
    filled: list[int] = []
    held: list[int] = []
    for place in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[place])
        home = next((row for row, full in enumerate(filled) if full + length <= room), len(filled))
        if home == len(filled):
            filled.append(0)
            held.append(0)
        homes[place], begins[place], numbers[place] = home, filled[home], held[home]
        filled[home] += length
        held[home] += 1
    return homes, begins, numbers


def _marks(rows: Sequence[Row], firsts: Numbers) -> dict[str, torch.Tensor]:
    """The marks of all rows one after the other."""
    found: dict[str, list[Numbers]] = {}
    for number, row in enumerate(rows):
        for name, values in row.marks.items():
            found.setdefault(name, []).append(values + firsts[number] if name == PLACES else values)
        if PLACES in row.marks:
            found.setdefault(GROUPS, []).append(np.full(row.marks[PLACES].size, number))
    return {name: torch.from_numpy(np.concatenate(values)) for name, values in found.items()}
