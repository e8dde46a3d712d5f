"""Counters of the server in Prometheus' text format."""

from __future__ import annotations

import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from firth.errors import FirthError
from firth.progress import note
from firth.service.refusals import Refusal

if TYPE_CHECKING:
    from firth.service.batching import Submission

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Cumulative counts of values up to bounds, for each combination of labels."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self.sums: dict[Labels, float] = defaultdict(float)

    def add(self, labels: Labels, value: float) -> None:
        """Count a value."""
        index = next((number for number, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[labels][index] += 1
        self.sums[labels] += value

    def lines(self, name: str) -> list[str]:
        """The lines of Prometheus' text format."""
        found = [f"# TYPE {name} histogram"]
        for labels, counts in self.counts.items():
            total = 0
            for bound, one in zip((*self.bounds, "+Inf"), counts, strict=True):
                total += one
                found.append(f"{name}_bucket{_labels((*labels, ('le', str(bound))))} {total}")
            found += [f"{name}_sum{_labels(labels)} {self.sums[labels]:.6f}", f"{name}_count{_labels(labels)} {total}"]
        return found


class Metrics:
    """What the server has done since it was started; safe for threads."""

    def __init__(self) -> None:
        self.started = time.time()
        self._lock = threading.Lock()
        self.counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self.requests = Histogram(_BUCKETS)
        self.batches = Histogram(_SIZES)
        self.gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self.counters[name][tuple(labels.items())] += value

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request to a path that the server knows."""
        with self._lock:
            self.counters["firth_requests_total"][("path", path), ("status", str(status))] += 1
            self.requests.add((("path", path),), seconds)

    def batch(self, submission: Submission, size: int, seconds: float) -> None:
        """Count a batch."""
        labels = (("model", submission.served.name), ("operation", submission.operation))
        with self._lock:
            self.counters["firth_items_total"][labels] += size
            self.counters["firth_compute_seconds_total"][labels] += seconds
            self.batches.add(labels, size)

    def failed(self, error: BaseException) -> None:
        """Note where an unexpected error was raised; its message may have a client's text, so it is left out."""
        if isinstance(error, FirthError | Refusal | MemoryError) or type(error).__name__ == "PanicException":
            return
        self.count("firth_failures_total")
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(
            f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in frames[::-1]
        )
        note(f"an operation failed with {type(error).__name__} in {where}")

    def text(self) -> str:
        """Everything in Prometheus' text format."""
        with self._lock:
            lines = []
            for name, values in self.counters.items():
                lines.append(f"# TYPE {name} counter")
                lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in values.items()]
            for name, read in self.gauges.items():
                lines += [f"# TYPE {name} gauge", f"{name} {read():g}"]
            lines += self.requests.lines("firth_request_seconds") + self.batches.lines("firth_batch_items")
        return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    r"""Labels as they are written.

    >>> _labels((("model", 'a"b'), ("le", "1")))
    '{model="a\\"b",le="1"}'
    """
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
