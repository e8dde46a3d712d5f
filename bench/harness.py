"""Helpers that the benchmarks share: command lines, timing, peak memory and child processes."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def make_parser(description: str | None, *, threads: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if threads:
        parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """The result of a function and the seconds that it took."""
    started = time.perf_counter()
    return function(), time.perf_counter() - started


def run_child(script: str, *arguments: object) -> dict[str, Any]:
    """Run `script --child ARGUMENTS` in a process of its own; returns the JSON object that it prints last."""
    command = [sys.executable, "-W", "ignore", script, "--child", *map(str, arguments)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def peak_kilobytes() -> int:
    """The peak memory of this process in units of 1,024 bytes.

    `getrusage` is only the fallback: its value starts at the memory of the parent process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak)
