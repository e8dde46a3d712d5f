"""Memory: how much is available, and returning or retaining what was freed."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firth.cores import control_groups, read_lines

if TYPE_CHECKING:
    import numpy.typing as npt

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt in the GNU C library
_MAX_MMAP_THRESHOLD = 32 << 20


def memory_available(root: Path = Path("/")) -> int:
    """Bytes that this process can still allocate: the machine's free memory, or less under a control group's limit."""
    return max(0, min([_machine_free(root), *_group_free(root)]))


def _machine_free(root: Path) -> int:
    for line in read_lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_free(root: Path) -> Iterator[int]:
    """Bytes left in each control group; inactive file pages are reclaimed under pressure, so they count as free."""
    for folder, version in control_groups("memory", root):
        if version == 2:
            names = ("memory.max", "memory.current", "inactive_file")
        else:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        limit, used = (" ".join(read_lines(folder / name)) for name in names[:2])
        if limit.isdecimal():  # not "max"
            stat = dict(line.split()[:2] for line in read_lines(folder / "memory.stat"))
            yield int(limit) - int(used or 0) + int(stat.get(names[2], 0))


def drop_page_cache(array: npt.NDArray[Any]) -> None:
    """Unload the pages of a read-only memory-mapped array from the process; reading them again is cheap."""
    owner: Any = array
    while not isinstance(owner, mmap.mmap):
        owner = getattr(owner, "base", None)
        if owner is None:
            return
    if not array.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def trim_heap() -> None:
    """Have the C library return free memory between blocks in use to the system."""
    with suppress(OSError, AttributeError):  # where the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)


def return_freed_memory() -> None:
    """Have the C library return arrays of a megabyte or more to the system as soon as they are freed.

    By default it retains freed arrays up to 32 MB, which raises the peak of a program that allocates one large array
    after another by a tenth. The setting holds for the whole process, so libraries should not call this.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


def retain_freed_memory() -> bool:
    """Have the process retain freed memory for the next training step; whether the C library supports it.

    Otherwise arrays of some megabytes are returned to the system and allocated again many times in a step, and zeroing
    each page takes a tenth of the time of small networks. The peak stays the same.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
