"""Room: where large arrays are made, in memory or on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.files import writing


class Room:
    """Makes arrays in memory, or in nameless files of a folder: those vanish with the arrays, even if killed.

    >>> Room().empty(3, np.float32).shape
    (3,)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def empty(self, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array of whatever was there, or of zeros on disk."""
        if self.folder is None or size == 0:
            return np.empty(size, dtype=dtype)
        with writing(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
            file.truncate(size * np.dtype(dtype).itemsize)
            return np.asarray(np.memmap(file, dtype=dtype, mode="r+"))

    def zeros(self, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array of zeros."""
        return np.zeros(size, dtype=dtype) if self.folder is None else self.empty(size, dtype)
