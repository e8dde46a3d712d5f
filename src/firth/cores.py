"""How many cores there are to work with, and work that is spread over them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores(threads: int | None = None) -> int:
    """As many as were asked for, else all that this process may run on: a container or `taskset` may allow it few.

    >>> cores(3), cores() >= 1
    (3, True)
    """
    if threads:
        return threads
    allowed = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """The result of `work` on each item, in the order of the items; only a few are under way at any time.

    `work` runs in threads, so it should let go of the interpreter's lock. A single item is worked on right here.

    >>> list(in_order(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    items = iter(items)
    start = list(islice(items, 2))
    if len(start) < 2:
        yield from map(work, start)
        return
    threads = cores(threads)
    executor, pending = ThreadPoolExecutor(threads), deque[Future[R]]()
    try:
        for item in chain(start, items):
            pending.append(executor.submit(work, item))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)  # whoever stops early waits for what is under way alone
