"""ChunkTable: the distinct chunks of a text, numbered in the order they were met."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from firth.tokens import _kernels

_START = 1 << 14  # entries there is room for at first
_LETTERS = 12  # bytes of a chunk that room is made for

Bytes = bytes | npt.NDArray[np.uint8]


def as_array(data: Bytes) -> npt.NDArray[np.uint8]:
    """The same bytes as an array that is not written to: kernels are compiled for such alone."""
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


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
        self._cuts = bool((self._kinds >= _kernels.MARK).any())
        self._out = np.empty(0, dtype=np.int32)
        self.clear()

    def clear(self) -> None:
        """Forgets all chunks."""
        self._entries = 0
        self._slots = np.zeros(2 * _START, dtype=np.uint64)
        self._hashes = np.zeros(_START, dtype=np.uint64)
        self._bounds = np.zeros(_START + 1, dtype=np.int64)
        self._pool = np.zeros(_LETTERS * _START, dtype=np.uint8)

    def __len__(self) -> int:
        return self._entries

    @property
    def size(self) -> int:
        """Bytes that the distinct chunks take together."""
        return int(self._bounds[self._entries])

    def look_up(self, data: Bytes, whole: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int32]:
        """The entry of each chunk of `data`, and -1 at each line end; every line must end with one.

        `whole` tells the lines that are a chunk each, whatever they hold.
        """
        array = as_array(data)
        if whole is None:
            whole = np.zeros(np.count_nonzero(array == _kernels.LINE_END) + 1, dtype=np.bool_)
        if self._out.size < array.size:
            self._out = np.empty(array.size, dtype=np.int32)  # a chunk or line end takes a byte at least
        begin = line = written = 0
        while True:
            self._entries, begin, line, written = _kernels.look_up(
                array,
                whole,
                self._kinds,
                self._cuts,
                self._slots,
                self._hashes,
                self._bounds,
                self._pool,
                self._entries,
                begin,
                line,
                written,
                self._out,
            )
            if begin == array.size:
                return self._out[:written].copy()
            self._grow(array.size - begin)

    def number(self, chunks: Bytes) -> npt.NDArray[np.int32]:
        """The entries of chunks that are given one a line."""
        lines = int(np.count_nonzero(as_array(chunks) == _kernels.LINE_END))
        return self.look_up(chunks, np.ones(lines + 1, dtype=np.bool_))[::2]

    def lines(self, first: int = 0) -> npt.NDArray[np.uint8]:
        """The chunks from entry `first` on, one a line."""
        return self._pool[self._bounds[first] : self._bounds[self._entries]]

    def texts(self, first: int = 0) -> list[str]:
        """The chunks from entry `first` on."""
        return self.lines(first).tobytes().decode().split("\n")[:-1]

    def _grow(self, most: int) -> None:
        """Makes room for more chunks, or for a chunk of `most` bytes."""
        if self._entries < self._hashes.size:
            self._pool = np.resize(self._pool, 2 * self._pool.size + most)
            return
        capacity = 2 * self._entries
        self._hashes = np.resize(self._hashes, capacity)
        self._bounds = np.resize(self._bounds, capacity + 1)
        self._slots = np.zeros(2 * capacity, dtype=np.uint64)
        _kernels.refill(self._slots, self._hashes, self._entries)
