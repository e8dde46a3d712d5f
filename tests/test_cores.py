"""The cores that affinity and quotas allow, and parallel maps whose results come in order."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firth.cores import cores, free_cores, in_order, limit_threads

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
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "0 0\n"}, 8),
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


@pytest.mark.parametrize(
    ("others", "expected", "seconds"),
    [
        ((0, 0, 0, 0), 4, 0.1),
        ((0, 5, 0, 0), 4, 0.1),
        ((100, 0, 0, 0), 3, 0.5),
        ((100, 60, 0, 0), 2, 0.5),
        ((100, 100, 100, 100), 2, 0.5),
    ],
)
def test_threads_take_the_cores_that_others_leave_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[int, ...], expected: int, seconds: float
) -> None:
    """`others` are the percentages of four cores that other programs use; a fifth core is not allowed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)), raising=False)
    clock = 0.0

    def run(given: float) -> None:
        nonlocal clock
        clock += given
        ticks = [(round(clock * busy), round(clock * (100 - busy))) for busy in (*others, 100)]
        rows = [f"cpu{core} {busy} 0 0 {idle} 0 0 0 0 0 0" for core, (busy, idle) in enumerate(ticks)]
        (tmp_path / "proc/stat").write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *rows, "ctxt 12345", ""]))

    (tmp_path / "proc").mkdir()
    run(1000.0)
    assert free_cores(tmp_path, run) == expected
    assert clock == pytest.approx(1000 + seconds)


def test_programs_of_low_priority_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    (tmp_path / "proc").mkdir()

    def run(seconds: float) -> None:
        (tmp_path / "proc/stat").write_text(
            f"cpu0 0 {1000 * seconds} 0 0 0\ncpu1 0 {1000 * seconds} 0 0 0\n".replace(".0", "")
        )

    run(0)
    monkeypatch.setattr(os, "nice", lambda change: 0)
    assert free_cores(tmp_path, run) == 2
    run(0)
    monkeypatch.setattr(os, "nice", lambda change: 5)
    assert free_cores(tmp_path, run) == 1


def test_without_statistics_all_cores_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert free_cores(tmp_path) == 3


@pytest.mark.parametrize(
    ("chosen", "expected"), [({}, "2000"), ({"OMP_WAIT_POLICY": "passive"}, "0"), ({"GOMP_SPINCOUNT": "7"}, "7")]
)
def test_waiting_threads_soon_sleep_unless_told_otherwise(chosen: dict[str, str], expected: str) -> None:
    """The OpenMP library of PyTorch prints its settings when it is loaded."""
    torch = importlib.util.find_spec("torch")
    library = Path(str(torch and torch.origin)).parent / "lib" / "libgomp.so.1"
    if not library.exists():
        pytest.skip("this PyTorch has another OpenMP library")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    script = f"import firth, ctypes; ctypes.CDLL({str(library)!r})"
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment | chosen | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert f"GOMP_SPINCOUNT = '{expected}'" in shown


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
