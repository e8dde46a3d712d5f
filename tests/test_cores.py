"""How many cores a process may use, and work in threads whose results come in order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from firth.cores import cores, in_order

PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import firth.cores as c; print(c.cores())"


def test_what_was_asked_for_is_taken() -> None:
    assert cores(7) == 7


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be forbidden on this system")
def test_forbidden_cores_do_not_count() -> None:
    told = subprocess.run([sys.executable, "-c", PINNED], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "1"
    assert cores() == len(os.sched_getaffinity(0))


def slow_first(number: int) -> int:
    time.sleep(0.02 * (number == 0))
    return number


def test_results_come_in_the_order_of_the_items() -> None:
    assert list(in_order(slow_first, range(50), 4)) == list(range(50))
    assert list(in_order(slow_first, [])) == []


def test_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = in_order(slow_first, items(), 2)
    assert [next(results), next(results)] == [0, 1]
    assert len(taken) <= 7
    results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 7


def test_what_fails_is_told() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda number: 1 // number, [1, 2, 0, 3], 2))
