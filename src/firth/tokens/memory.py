"""Giving memory back that is not needed for the moment."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt


def let_go(array: npt.NDArray[Any]) -> None:
    """Takes the pages of a memory-mapped array that was read out of the process; what is read again comes back.

    It comes from the system's cache of files, so that costs little. Arrays that can be written to stay as they are.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and not array.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def return_freed() -> None:
    """Has the C library give the system what lies free between things that are still used."""
    with suppress(OSError, AttributeError):  # where the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)
