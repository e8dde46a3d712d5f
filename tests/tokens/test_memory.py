"""Memory given back: pages of mapped arrays leave the process and come back unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from firth.tokens.memory import let_go, return_freed

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
    let_go(part)
    assert resident(path) < 1000
    assert np.array_equal(mapped, numbers)


def test_what_was_written_to_a_private_copy_stays(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(4096))
    mapped = np.memmap(path, dtype=np.uint8, mode="c")
    mapped[:] = 7
    let_go(mapped)
    assert mapped.sum() == 7 * 4096


def test_arrays_of_the_process_itself_are_left_alone() -> None:
    array = np.arange(5)
    let_go(array)
    return_freed()
    assert array.tolist() == [0, 1, 2, 3, 4]
