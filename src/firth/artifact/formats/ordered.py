"""Work on many blocks at once, with the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from firth.cores import cores

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
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
    threads = cores()
    with ThreadPoolExecutor(threads) as executor:
        pending: deque[Future[R]] = deque()
        try:
            for item in chain(start, items):
                pending.append(executor.submit(work, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
