"""Available memory under control groups, and memory returned, retained or unloaded."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from firth.memory import drop_page_cache, memory_available, retain_freed_memory, trim_heap


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n"}


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 8000 * 1024),
        ({"proc/self/cgroup": "0::/\n"}, 8000 * 1024),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "5000000\n",
                "sys/fs/cgroup/a/memory.current": "3000000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 500000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            2_500_000,
        ),
        (
            {  # a container that sees only its own group
                "proc/self/cgroup": "5:cpu,memory:/docker/x\n0::/docker/x\nodd\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000000\n",
                "sys/fs/cgroup/memory/memory.stat": "inactive_file 5\ntotal_inactive_file 7\n",
            },
            3_000_007,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "0\n", "sys/fs/cgroup/memory.current": "9\n"}, 0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9223372036854771712\n"}, 8000 * 1024),
    ],
)
def test_the_memory_that_is_available(tmp_path: Path, files: dict[str, str], available: int) -> None:
    assert memory_available(write_files(tmp_path, MEMINFO | files)) == available


def test_the_memory_of_this_machine(tmp_path: Path) -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory_available() <= total
    assert 0 < memory_available(tmp_path) <= total


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_the_c_library_takes_the_setting() -> None:
    code = "from firth.memory import retain_freed_memory; print(retain_freed_memory())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "True"


def test_libraries_without_the_setting_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert retain_freed_memory() is False


_SMAPS = Path("/proc/self/smaps")


def resident(path: Path) -> int:
    """Kilobytes of a mapped file that are in memory."""
    found, total = False, 0
    for line in _SMAPS.read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            found = line.endswith(str(path))
        elif found and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(not _SMAPS.exists(), reason="only Linux tells what is in memory")
def test_pages_leave_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbers = np.arange(1_000_000, dtype=np.uint32)
    path.write_bytes(numbers.tobytes())
    mapped = np.asarray(np.memmap(path, dtype=np.uint32, mode="r"))
    part = mapped[10:]
    assert np.array_equal(mapped, numbers)
    assert resident(path) > 3000
    drop_page_cache(part)
    assert resident(path) < 1000
    assert np.array_equal(mapped, numbers)


def test_what_was_written_to_a_private_copy_stays(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(4096))
    mapped = np.memmap(path, dtype=np.uint8, mode="c")
    mapped[:] = 7
    drop_page_cache(mapped)
    assert mapped.sum() == 7 * 4096


def test_arrays_of_the_process_itself_are_left_alone() -> None:
    array = np.arange(5)
    drop_page_cache(array)
    trim_heap()
    assert array.tolist() == [0, 1, 2, 3, 4]
