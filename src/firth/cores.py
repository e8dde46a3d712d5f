"""How many cores there are to work with."""

from __future__ import annotations

import os


def cores(threads: int | None = None) -> int:
    """As many as were asked for, else all that this process may run on: a container or `taskset` may allow it few.

    >>> cores(3), cores() >= 1
    (3, True)
    """
    if threads:
        return threads
    allowed = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(allowed(0)) if allowed else os.cpu_count() or 1
