"""Fuzz readers for a number of inputs or a time, and report inputs, crashes, hangs and peak memory of each.

    python tests/fuzz/run.py --inputs 100000
    python tests/fuzz/run.py --seconds 3600 --reader store --reader text

Each reader runs in a child process, which is started again after a signal or a hang. Inputs that fail are copied to
`--save`, with the traceback beside them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing as mp
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.fuzzing import FuzzReader, Inputs, find_readers, is_refused

_BATCH = 200  # inputs between looks at the clock
_MAX_SAVED = 20  # failing inputs of a reader


@dataclass
class FuzzReport:
    """What became of a reader's inputs."""

    reader: str
    inputs: int = 0
    refused: int = 0
    crashes: int = 0  # exceptions that are no `FirthError`, and signals
    hangs: int = 0
    peak_mb: float = 0.0  # above the memory before the first input
    seconds: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)  # how often each was seen


@dataclass(frozen=True)
class Limits:
    inputs: int
    seconds: float
    hang: float
    memory_mb: int


class SharedState:
    """Counters that outlive a child that is killed."""

    def __init__(self) -> None:
        context = mp.get_context("fork")
        self.index: Synchronized[int] = context.Value(ctypes.c_longlong, 0)
        self.refused: Synchronized[int] = context.Value(ctypes.c_longlong, 0)
        self.peak_kb: Synchronized[int] = context.Value(ctypes.c_longlong, 0)


def fuzz(reader: FuzzReader, limits: Limits, seed: int, save: Path) -> FuzzReport:
    """Run inputs until the limits are reached."""
    report, state, began = FuzzReport(reader.name), SharedState(), time.monotonic()
    first = 0
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as name:
        round_number = 0
        while first < limits.inputs and time.monotonic() - began < limits.seconds:
            round_number += 1
            folder = Path(name, str(round_number))
            state.index.value = first
            left = began + limits.seconds - time.monotonic()
            child = mp.get_context("fork").Process(
                target=_work, args=(reader, folder, seed, first, limits, left, state, save)
            )
            child.start()
            hung = _watch(child, state, limits.hang)
            if hung or child.exitcode:
                what = f"hang of {limits.hang:g} s" if hung else _cause(child.exitcode)
                report.hangs += hung
                _save_input(folder / "input", save, reader.name, state.index.value, what, what)
                state.index.value += 1
            first = state.index.value
            shutil.rmtree(folder, ignore_errors=True)
    report.inputs, report.refused = first, state.refused.value
    report.peak_mb = round(state.peak_kb.value / 1024, 1)
    report.seconds = round(time.monotonic() - began, 1)
    report.findings = _count_findings(save, reader.name)
    report.crashes = sum(report.findings.values()) - report.hangs
    return report


def _work(
    reader: FuzzReader, folder: Path, seed: int, first: int, limits: Limits, seconds: float, state: SharedState,
    save: Path,
) -> None:  # fmt: skip
    """The child: make and read inputs from `first` on."""
    os.environ["FIRTH_CACHE"] = str(folder / "cache")
    inputs = Inputs(reader, folder, seed)
    for sample in inputs.samples():
        assert not is_refused(reader, sample), f"{reader.name} refuses its own sample {sample.name}"
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _limit_memory(limits.memory_mb)
    end = time.monotonic() + seconds
    index = first
    while index < limits.inputs and (index % _BATCH or time.monotonic() < end):
        state.index.value = index
        path = inputs.make(index)
        try:
            state.refused.value += is_refused(reader, path)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {Path(where.filename).name}:{where.name}"
            _save_input(folder / "input", save, reader.name, index, what, traceback.format_exc())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
        state.peak_kb.value = max(state.peak_kb.value, peak)
        index += 1
    state.index.value = index


def _limit_memory(megabytes: int) -> None:
    """Let an allocation that exceeds the limit raise `MemoryError`."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))


def _watch(child: Any, state: SharedState, hang: float) -> bool:
    """Wait for the child; kill it and return True if one input takes longer than `hang` seconds."""
    seen, since = -1, time.monotonic()
    while child.is_alive():
        child.join(0.2)
        if state.index.value != seen:
            seen, since = state.index.value, time.monotonic()
        elif time.monotonic() - since > hang:
            child.kill()
            child.join()
            return True
    return False


def _cause(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _save_input(folder: Path, save: Path, name: str, index: int, what: str, details: str) -> None:
    """Record a finding; of the first ones the input is kept, too."""
    save.mkdir(parents=True, exist_ok=True)
    with open(save / f"{name}.jsonl", "a", encoding="utf-8") as log:
        log.write(json.dumps({"index": index, "what": what, "details": details}) + "\n")
    if len(list(save.glob(f"{name}-*"))) < _MAX_SAVED:
        shutil.copytree(folder, save / f"{name}-{index}", dirs_exist_ok=True)


def _count_findings(save: Path, name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    path = save / f"{name}.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        what = json.loads(line)["what"]
        counts[what] = counts.get(what, 0) + 1
    return counts


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> None:
    readers = find_readers()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", action="append", choices=sorted(readers), help="default: all of them")
    parser.add_argument("--inputs", type=int, default=1 << 40, help="of each reader; default: no limit")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader (default: 60)")
    parser.add_argument("--hang", type=float, default=20.0, help="seconds after which an input counts as a hang")
    parser.add_argument("--memory", type=int, default=2048, help="megabytes that an input may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="folder of failing inputs (default: a temporary one)")
    given = parser.parse_args()
    save = given.save or Path(tempfile.mkdtemp(prefix="firth-fuzz-"))
    limits = Limits(given.inputs, given.seconds, given.hang, given.memory)
    print(f"{'reader':<24}{'inputs':>10}{'refused':>10}{'crashes':>9}{'hangs':>7}{'peak MB':>9}{'seconds':>9}")
    reports = []
    for name in given.reader or readers:
        report = fuzz(readers[name], limits, given.seed, save)
        reports.append(report)
        counts = f"{report.inputs:>10,}{report.refused:>10,}{report.crashes:>9,}{report.hangs:>7,}"
        print(f"{name:<24}{counts}{report.peak_mb:>9,.1f}{report.seconds:>9,.1f}", flush=True)
        for what, count in report.findings.items():
            print(f"    {count:,} x {what}")
    (save / "report.json").parent.mkdir(parents=True, exist_ok=True)
    (save / "report.json").write_text(json.dumps([asdict(report) for report in reports], indent=2) + "\n")
    failed = sum(report.crashes + report.hangs for report in reports)
    print(f"{sum(report.inputs for report in reports):,} inputs, {failed:,} findings; {save}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
