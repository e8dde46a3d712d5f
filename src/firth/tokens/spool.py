"""Spool: arrays that are written and then read in order, in memory while they are few, then in a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from firth.files import cache_folder, writing

_MOST_BYTES = 1 << 24  # held in memory


class Spool:
    """A list of arrays of chunk numbers.

    >>> with Spool() as spool:
    ...     spool.append(np.array([3, 1, -1], dtype=np.int32))
    ...     [array.tolist() for array in spool]
    [[3, 1, -1]]
    """

    def __init__(self) -> None:
        self._held: list[npt.NDArray[np.int32]] = []
        self._sizes: list[int] = []
        self._bytes = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, array: npt.NDArray[np.int32]) -> None:
        """Adds an array."""
        self._bytes += array.nbytes
        if self._bytes <= _MOST_BYTES:
            self._held.append(array)
            return
        folder = cache_folder()
        with writing(folder):
            if self._file is None:
                folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with the spool)
            self._file.write(array.data)
        self._sizes.append(array.size)

    def __iter__(self) -> Iterator[npt.NDArray[np.int32]]:
        yield from self._held
        if self._file is not None:
            self._file.seek(0)
            for size in self._sizes:
                yield np.fromfile(self._file, dtype=np.int32, count=size)
