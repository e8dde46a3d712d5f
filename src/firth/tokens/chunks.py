"""ChunkTable: the distinct chunks of a text, numbered in the order they were met."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from firth.tokens import _kernels

_START = 1 << 14  # entries there is room for at first


class ChunkTable:
    """Numbers the distinct chunks of text; grows as needed.

    >>> table = ChunkTable()
    >>> table.look_up(b"to be or\\nnot to be\\n").tolist()
    [0, 1, 2, -1, 3, 4, 1, -1]
    >>> table.texts(2)
    [' or', 'not', ' to']
    """

    def __init__(self, kinds: npt.NDArray[np.uint8] | None = None) -> None:
        """`kinds` gives the kind of each byte, where punctuation is to be cut off; see the kernel."""
        self._kinds = np.zeros(256, dtype=np.uint8) if kinds is None else kinds
        self.clear()

    def clear(self) -> None:
        """Forgets all chunks."""
        self._entries = 0
        self._slots = np.zeros(2 * _START, dtype=np.int32)
        self._hashes = np.zeros(_START, dtype=np.uint64)
        self._bounds = np.zeros(_START + 1, dtype=np.int64)
        self._pool = np.zeros(1 << 18, dtype=np.uint8)

    def __len__(self) -> int:
        return self._entries

    @property
    def size(self) -> int:
        """Bytes that the distinct chunks take together."""
        return int(self._bounds[self._entries])

    def look_up(self, data: bytes, whole: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int32]:
        """The entry of each chunk of `data`, and -1 at each line end; every line must end with one."""
        array = np.frombuffer(data, dtype=np.uint8)
        lines = data.count(b"\n")
        # A chunk begins at the start, after a separator, or on either side of a mark; each line end is written too.
        most = int(np.count_nonzero(array <= _kernels.SPACE)) + 1
        most += 2 * int(np.count_nonzero(self._kinds[array] >= _kernels.MARK)) if self._kinds.any() else 0
        self._make_room(most, array.size)
        out = np.empty(most + lines, dtype=np.int32)
        flags = np.zeros(lines + 1, dtype=np.bool_) if whole is None else whole
        written, self._entries = _kernels.look_up(
            array, flags, self._kinds, self._slots, self._hashes, self._bounds, self._pool, self._entries, out
        )
        return out[:written]

    def texts(self, first: int = 0) -> list[str]:
        """The chunks from entry `first` on."""
        begin = self._bounds[first]
        text = self._pool[begin : self._bounds[self._entries]].tobytes()
        bounds = (self._bounds[first : self._entries + 1] - begin).tolist()
        return [text[a:b].decode() for a, b in pairwise(bounds)]

    def _make_room(self, entries: int, size: int) -> None:
        need = self._entries + entries
        if need > self._hashes.size:
            capacity = 1 << int(need - 1).bit_length()
            self._hashes = np.resize(self._hashes, capacity)
            self._bounds = np.resize(self._bounds, capacity + 1)
            self._slots = np.zeros(2 * capacity, dtype=np.int32)
            _kernels.refill(self._slots, self._hashes, self._entries)
        if self.size + size > self._pool.size:
            self._pool = np.resize(self._pool, 2 * (self.size + size))
