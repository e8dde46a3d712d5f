"""Training on a busy or limited machine: Firth and a plain PyTorch loop.

    python bench/contention.py [--seconds 20] [--rounds 2] [--only tiny,mini]

Both train a BERT on the same batches (those of bench/nets.py) in a process of its own: alone, beside one and beside
three processes that never sleep, and under a quota of one core's time (a control group: needs root on Linux). Firth
chooses its threads as `firth train` does, PyTorch as it does by itself. Prints the tokens per second, their fraction of
those alone, and the fraction of the cores that the scheduler owes to as many threads as there are cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nets
from harness import make_parser

SIZES = {
    "tiny": nets.NetComparison(title="BERT, size tiny", layers=2, width=128, heads=2),
    "mini": nets.NetComparison(title="BERT, size mini", layers=4, width=256, heads=4),
}
BATCHES = 8
"""Distinct batches, which are repeated."""
GROUP = "firth-contention"
PERIOD = 100_000
"""Microseconds in which a quota is counted, Linux's default."""


class Condition(NamedTuple):
    """What a program trains beside."""

    title: str
    busy: int = 0
    """Processes that never sleep."""
    quota: float = 0.0
    """Cores' worth of time; 0: no limit."""

    def share(self, cores: int) -> float:
        """The fraction of the cores that a fair scheduler gives to a program with a thread for each."""
        limit = self.quota / cores if self.quota else 1.0
        return min(limit, cores / (cores + self.busy) if self.busy else 1.0)


CONDITIONS = (
    Condition("alone"),
    Condition("beside 1 busy process", busy=1),
    Condition("beside 3 busy processes", busy=3),
    Condition("with a quota of 1 core", quota=1.0),
)


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Processes that never sleep, for as long as the block runs."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


@contextlib.contextmanager
def control_group(quota: float) -> Iterator[Path | None]:
    """A control group with a quota, in which a process is put by its id in `cgroup.procs`; none without a quota."""
    if not quota:
        yield None
        return
    is_version_2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup", "" if is_version_2 else "cpu", GROUP)
    group.mkdir(exist_ok=True)
    try:
        if is_version_2:
            (group / "cpu.max").write_text(f"{round(quota * PERIOD)} {PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(round(quota * PERIOD)))
        yield group
    finally:
        group.rmdir()


def measure(library: str, size: str, condition: Condition, seconds: float, batches: Path) -> float:
    """Tokens per second of a library under a condition."""
    child = [sys.executable, "-W", "ignore", __file__, "--child", library, size, str(seconds), str(batches)]
    with busy_processes(condition.busy), control_group(condition.quota) as group:
        enter = [] if group is None else ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        run = subprocess.run([*enter, *child], check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(run.stdout.splitlines()[-1]))


def train(library: str, size: str, seconds: float, path: str) -> float:
    """The child process: tokens per second over the given time, after two steps."""
    if library == "firth":
        from firth.cores import free_cores  # before torch: Firth sets how idle threads wait

        threads = free_cores()
    import torch

    if library == "firth":
        torch.set_num_threads(threads)
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    steps = [
        {name.partition(".")[2]: value for name, value in arrays.items() if name.startswith(f"{step}.")}
        for step in range(BATCHES)
    ]
    trainer, tokens, started = nets.LIBRARIES[library](SIZES[size]), 0, 0.0
    number = -2
    while number < 1 or time.perf_counter() - started < seconds:
        started = time.perf_counter() if number == 0 else started
        trainer.step(steps[number % BATCHES], number % BATCHES)
        tokens += int(steps[number % BATCHES]["tokens"]) if number >= 0 else 0
        number += 1
    return tokens / (time.perf_counter() - started)


def compare(size: str, options: argparse.Namespace, folder: Path) -> None:
    """Measure both libraries in turn under each condition, and print the best of the rounds."""
    batches = folder / f"{size}.npz"
    np.savez(batches, **nets.make_batches(folder, SIZES[size], BATCHES))
    cores, alone = len(os.sched_getaffinity(0)), dict[str, float]()
    print(f"\n{SIZES[size].title}: tokens per second, and the fraction of those alone", flush=True)
    for condition in CONDITIONS:
        speeds: dict[str, list[float]] = {library: [] for library in ("firth", "transformers")}
        try:
            for _ in range(options.rounds):
                for library, found in speeds.items():
                    found.append(measure(library, size, condition, options.seconds, batches))
        except OSError as error:
            print(f"  {condition.title:<24} not possible here: {error}")
            continue
        best = {library: max(found) for library, found in speeds.items()}
        alone = alone or best
        cells = [f"{library} {one:9,.0f} ({one / alone[library]:.2f})" for library, one in best.items()]
        ratio = best["firth"] / best["transformers"]
        print(
            f"  {condition.title:<24} {'  '.join(cells)}  {ratio:.2f} times; fair share {condition.share(cores):.2f}",
            flush=True,
        )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each library, of which the fastest counts")
    parser.add_argument("--only", default=",".join(SIZES))
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        library, size, seconds, batches = options.child
        return print(train(library, size, float(seconds), batches))
    with tempfile.TemporaryDirectory(prefix="firth-bench-") as name:
        for size in options.only.split(","):
            compare(size, options, Path(name))


if __name__ == "__main__":
    main()
