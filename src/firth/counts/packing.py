"""Keeping counts in one byte each: nearly all are small, and the few large ones are listed apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError

_LARGE = 255
_BLOCK = 1 << 20  # counts packed at a time


class PackedCounts:
    """Counts that stay packed until they are asked for: scoring never needs them."""

    dtype = np.dtype(np.uint32)

    def __init__(self, small: npt.NDArray[np.uint8], places: npt.NDArray[Any], large: npt.NDArray[Any]) -> None:
        self._small, self._places, self._large = small, places, large

    @classmethod
    def of(cls, counts: Any) -> PackedCounts:
        """The same counts, packed."""
        arrays = pack_counts(counts)
        return cls(arrays["counts"], arrays["large_places"], arrays["large_counts"])

    @property
    def size(self) -> int:
        return int(self._small.size)

    def __getitem__(self, item: Any) -> Any:
        return self.__array__()[item]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        kind = np.uint32 if self._large.size == 0 or int(self._large.max()) < 1 << 32 else np.int64
        counts = self._small.astype(kind)
        counts[self._places] = self._large
        return counts if dtype is None else counts.astype(dtype)


def pack_counts(counts: Any) -> dict[str, npt.NDArray[Any]]:
    """The arrays that keep counts in an artifact.

    >>> {name: array.tolist() for name, array in pack_counts(np.array([1, 0, 300, 2])).items()}
    {'counts': [1, 0, 255, 2], 'large_places': [2], 'large_counts': [300]}
    """
    if isinstance(counts, PackedCounts):
        return {"counts": counts._small, "large_places": counts._places, "large_counts": counts._large}
    places = np.flatnonzero(counts >= _LARGE)
    small = np.empty(counts.size, dtype=np.uint8)
    for begin in range(0, small.size, _BLOCK):
        small[begin : begin + _BLOCK] = np.minimum(counts[begin : begin + _BLOCK], _LARGE)
    return {
        "counts": small,
        "large_places": places.astype(np.uint32),
        "large_counts": counts[places].astype(np.int64),
    }


def unpack_counts(arrays: Mapping[str, Any], size: int) -> Any:
    """The counts that `pack_counts` packed, still packed; zeros where a model has none."""
    if "counts" not in arrays:
        return PackedCounts(np.zeros(size, np.uint8), np.zeros(0, np.uint32), np.zeros(0, np.int64))
    small, places, large = (arrays.get(name) for name in ("counts", "large_places", "large_counts"))
    if (
        places is None
        or large is None
        or small is None
        or small.shape != (size,)
        or small.dtype != np.uint8
        or places.shape != large.shape
        or (places.size and int(places.max()) >= size)
    ):
        raise ArtifactError("the counts do not fit the n-grams: train the model again.")
    return PackedCounts(small, places, large)
