"""The cores that affinity and quotas allow, and parallel maps whose results come in order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firth.cores import cores, in_order, limit_threads

PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import firth.cores as c; print(c.cores())"


def test_a_given_number_of_threads_is_used() -> None:
    assert cores(7) == 7


def test_a_limit_of_threads_ends_with_its_block() -> None:
    import torch

    before = cores(), torch.get_num_threads()
    with pytest.raises(KeyError), limit_threads(5):
        assert (cores(), cores(2), torch.get_num_threads()) == (5, 2, 5)
        raise KeyError
    with limit_threads(None):
        assert (cores(), torch.get_num_threads()) == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be forbidden on this system")
def test_cores_outside_the_affinity_do_not_count(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-c", PINNED], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "1"
    assert cores(root=tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 8),
        (
            {  # the limit of a parent applies, too
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            3,
        ),
        (
            {  # version 1
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n0::/docker/x\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
    ],
)
def test_the_quota_of_a_container_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(root=tmp_path) == expected


def slow_first(number: int) -> int:
    time.sleep(0.02 * (number == 0))
    return number


def test_results_come_in_the_order_of_the_items() -> None:
    assert list(in_order(slow_first, range(50), 4)) == list(range(50))
    assert list(in_order(slow_first, [])) == []


def test_few_items_are_queued() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = in_order(slow_first, items(), 2)
    assert [next(results), next(results)] == [0, 1]
    assert len(taken) <= 7
    results.close()
    assert len(taken) <= 7


def test_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda number: 1 // number, [1, 2, 0, 3], 2))
