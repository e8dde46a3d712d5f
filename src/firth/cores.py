"""The number of CPU cores that this process may use and that others leave free, and parallel maps over threads."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_LIMIT: ContextVar[int | None] = ContextVar("threads", default=None)
_SAMPLES = (0.1, 0.4)  # seconds of watching other programs; the second only if the first finds some
_NICE, _IDLE, _IOWAIT = 1, 3, 4  # columns of /proc/stat


def cores(threads: int | None = None, root: Path = Path("/")) -> int:
    """`threads` if given, else the cores allowed by the CPU affinity and the CPU quota of a container.

    >>> cores(3), cores() >= 1
    (3, True)
    """
    if threads := threads or _LIMIT.get():
        return threads
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(allowed, _quota(root))


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """`cores()` is `threads`, if given, in the block, and so is the number of threads of PyTorch, if that is loaded."""
    torch = sys.modules.get("torch") if threads else None
    before = torch.get_num_threads() if torch else 0
    token = _LIMIT.set(threads)
    try:
        if torch:
            torch.set_num_threads(threads)
        yield
    finally:
        _LIMIT.reset(token)
        if torch:
            torch.set_num_threads(before)


def free_cores(root: Path = Path("/"), sleep: Callable[[float], None] = time.sleep) -> int:
    """How many threads that wait for each other in every step should run: one for each core that is free.

    Such threads are as fast as the slowest of them, so one that shares its core with another program slows down all.
    Half of the cores are used in any case: on a machine that is always busy, that is a fair share.
    """
    allowed = cores(root=root)
    before = _free_and_all(root)
    if allowed == 1 or not before:
        return allowed
    free = allowed
    for seconds in _SAMPLES:
        sleep(seconds)
        free = min(allowed, _free_between(before, _free_and_all(root)))
        if free == allowed:
            break
    return max(free, (allowed + 1) // 2)


def _free_and_all(root: Path) -> dict[str, tuple[int, int]]:
    """For each core that this process may use, the clock ticks in which it was free, and all."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = {f"cpu{number}" for number in affinity(0)} if affinity else set()
    # Programs with a lower priority give way to this one, if it has the usual one.
    free = (_NICE, _IDLE, _IOWAIT) if affinity and os.nice(0) <= 0 else (_IDLE, _IOWAIT)
    found = {}
    for name, *columns in map(str.split, read_lines(root / "proc/stat")):
        if name in allowed:
            ticks = [int(column) for column in columns[:8]]  # the rest is contained in these
            found[name] = sum(ticks[column] for column in free), sum(ticks)
    return found


def _free_between(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> int:
    """The cores' worth of free time between two readings, rounded."""
    spans = [(after[core][0] - free, after[core][1] - ticks) for core, (free, ticks) in before.items() if core in after]
    return int(0.5 + sum(free / ticks if ticks else 1.0 for free, ticks in spans))


@cache
def _quota(root: Path) -> int:
    """The cores' worth of CPU time that control groups allow, rounded up."""
    quotas = [sys.maxsize]
    for folder, version in control_groups("cpu", root):
        names = ["cpu.max"] if version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        words = [word for name in names for line in read_lines(folder / name) for word in line.split()]
        if len(words) == 2 and all(word.isdecimal() and word != "0" for word in words):  # "max" and -1 mean no limit
            quotas.append(max(1, math.ceil(int(words[0]) / int(words[1]))))
    return min(quotas)


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[tuple[Path, int]]:
    """The folder and version (1 or 2) of each control group of this process.

    A limit applies to all descendants, so the parents of a group are included.
    """
    for line in read_lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if line.startswith("0::"):
            base, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            base, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        group = base / path.strip("/")
        yield from ((folder, version) for folder in (group, *group.parents) if folder.is_relative_to(base))


def read_lines(path: Path) -> list[str]:
    """The lines of a small file, or none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def in_order(
    function: Callable[[T], R], items: Iterable[T], threads: int | None = None, queue: int | None = None
) -> Generator[R]:
    """The result of `function` for each item, in order, computed in threads with a queue of two items per thread.

    `function` should release the interpreter lock. A single item is processed in the calling thread.

    >>> list(in_order(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    threads = cores(threads)
    queue = 2 * threads if queue is None else queue
    executor, pending = ThreadPoolExecutor(threads), deque[Future[R]]()
    try:
        for item in chain(first, items):
            pending.append(executor.submit(function, item))
            if len(pending) > queue:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)  # a consumer that stops early waits for running items only
