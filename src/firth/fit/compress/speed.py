"""Speed and memory of models on this machine, measured in turns so that other programs disturb all alike."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from firth.progress import progress

_ROUNDS = 5
_SECONDS = 0.4  # of a measurement of throughput
_FIRST = 32  # items that a measurement begins with
_MOST = 200_000  # items of a measurement
_LATENCIES = 30  # single items timed in a round


class Speed(NamedTuple):
    """The time of one text, and texts in a second when many are given."""

    ms: float
    ms_interval: list[float]
    texts_per_second: float
    texts_per_second_interval: list[float]


Use = Callable[[Sequence[Any]], Any]


def measure_speeds(uses: Sequence[Use], items: Sequence[Any], texts: int) -> list[Speed]:
    """The speed of each use of the same items, of which there are `texts` texts in all.

    The median of the latencies of single items and of the throughputs of all rounds; intervals are the smallest and
    the largest round.
    """
    per_item = texts / len(items)
    batches = [_batch(use, items) for use in uses]
    latencies: list[list[float]] = [[] for _ in uses]
    rates: list[list[float]] = [[] for _ in uses]
    with progress("timing", _ROUNDS * len(uses), "rounds") as advance:
        for number in range(_ROUNDS):
            singles = list(islice(cycle(items), number * _LATENCIES, (number + 1) * _LATENCIES))
            for use, batch, own, rate in zip(uses, batches, latencies, rates, strict=True):
                own.append(float(np.median([_seconds(use, [item]) for item in singles])) * 1000 / per_item)
                rate.append(len(batch) * per_item / _seconds(use, batch))
                advance(1)
    return [
        Speed(float(np.median(own)), [min(own), max(own)], float(np.median(rate)), [min(rate), max(rate)])
        for own, rate in zip(latencies, rates, strict=True)
    ]


def _batch(use: Use, items: Sequence[Any]) -> list[Any]:
    """As many items, repeated, as a use takes long enough to be timed; the first calls also warm it up."""
    count = min(_FIRST, max(1, len(items)))
    use(items[:1])
    while True:
        batch = list(islice(cycle(items), count))
        seconds = _seconds(use, batch)
        if seconds >= _SECONDS or count >= _MOST:
            return batch
        count = min(_MOST, max(2 * count, int(count * 1.2 * _SECONDS / max(seconds, 1e-6)) if seconds > 0.02 else 0))


def _seconds(use: Use, items: Sequence[Any]) -> float:
    started = time.perf_counter()
    use(items)
    return time.perf_counter() - started


_CHILD = """
import json, re, resource, sys
from firth.artifact.models import load
given = json.loads(sys.stdin.read())
model = load(given["folder"], verify=False)
use = getattr(model, given["verb"])
use(given["texts"])
try:  # the resource usage of a process on Linux includes that of its parent before it was started
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
except (OSError, TypeError):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(peak / 1e6)
"""


def peak_memory(folder: Path, verb: str, texts: Sequence[Any]) -> float | None:
    """The largest memory in MB of a new process that loads a model and gives it texts; None if it is not known."""
    given = json.dumps({"folder": str(folder), "verb": verb, "texts": list(texts)})
    done = subprocess.run([sys.executable, "-c", _CHILD], input=given, capture_output=True, text=True, check=False)
    try:
        return float(done.stdout) if done.returncode == 0 else None
    except ValueError:
        return None


def folder_mb(folder: Path) -> float:
    """The size of the files of an artifact in MB, without its manifest and card, which the measurements are in."""
    left_out = ("manifest.json", "card.md")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name not in left_out) / 1e6
