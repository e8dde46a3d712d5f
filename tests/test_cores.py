"""How many cores a process may use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from firth.cores import cores

PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import firth.cores as c; print(c.cores())"


def test_what_was_asked_for_is_taken() -> None:
    assert cores(7) == 7


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be forbidden on this system")
def test_forbidden_cores_do_not_count() -> None:
    told = subprocess.run([sys.executable, "-c", PINNED], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "1"
    assert cores() == len(os.sched_getaffinity(0))
