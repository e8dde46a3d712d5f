"""Crash safety: what is killed repeatedly and continued ends with the same bytes as without interruption.

    python bench/kill.py [--times 20] [--recipe bert]
    python bench/kill.py --times 4 --checkpoint 10 -- finetune bert classify --train a.tsv --dev b.tsv --task-text
    python bench/kill.py --all --times 100 [--kinds bert,export]
    python bench/kill.py --all --pairs 20
    python bench/kill.py --all --full-disks 6

Trains a small network once without interruption, and again in a process that is killed (kill -9) at random moments,
also during startup and while saving, and then resumed. The SHA-256 digests of the weights must be equal. After `--` any
Firth command that takes `-o` and `--resume` can be given instead.

`--all` does so with every kind of trainer and writer (`kill_kinds.py`), in forks of one process: half of the kills come
at any time, half just before a change of a file. No output may be visible under its name before it is complete, and no
temporary file may be left at the end. `--pairs` continues a killed command in two processes at once: one may be refused
with a sentence. `--full-disks` runs each command on disks that are too small (`full_disk.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import forks
from full_disk import fill_disk
from harness import make_parser
from kill_all import FaultError, Place, choose_kinds, kill_kind, open_inputs, open_place, resume_twice

_STARTUP_KILLS = 0.2  # fraction of kills during startup
Trial = Callable[[Place, int, random.Random], str]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--times", type=int, help="kills; default: 20")
    parser.add_argument("--recipe", default="bert")
    parser.add_argument("--budget", default="150ktok")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--checkpoint", type=float, help="seconds between checkpoints; default: 0.05, with --all 0")
    parser.add_argument("--all", action="store_true", help="every kind of trainer and writer")
    parser.add_argument("--kinds", help="with --all: parts of the names of kinds, separated by commas")
    parser.add_argument("--pairs", type=int, default=0, help="with --all: two resumes at once, so many times")
    parser.add_argument("--full-disks", type=int, default=0, help="with --all: number of sizes of the disk")
    parser.add_argument("command", nargs="*", help="after --: the command to run instead, without -o")
    options = parser.parse_args()
    default = 0.0 if options.all else 0.05
    os.environ["FIRTH_CHECKPOINT"] = str(default if options.checkpoint is None else options.checkpoint)
    with tempfile.TemporaryDirectory() as name:
        return try_all(Path(name), options) if options.all else try_one(Path(name), options)


def try_all(folder: Path, options: argparse.Namespace) -> int:
    """Run the trials of every kind, with a line for each; returns the exit code."""
    trials: list[tuple[Trial, int]] = [(resume_twice, options.pairs), (fill_disk, options.full_disks)]
    trials = [(trial, times) for trial, times in trials if times]
    if options.times is not None or not trials:
        trials.insert(0, (kill_kind, 20 if options.times is None else options.times))
    forks.prepare()
    inputs, faults = open_inputs(folder), 0
    for kind in choose_kinds(options.kinds):
        for trial, times in trials:
            with open_place(kind, inputs, folder) as place:
                try:
                    verdict = f"OK: {trial(place, times, random.Random(options.seed))}"
                except FaultError as fault:
                    verdict, faults = f"FAULT in {trial.__name__}: {fault}", faults + 1
            print(f"{kind.name:<26}{place.whole.seconds:5.2f} s  {verdict}", flush=True)
    print(f"{faults} faults")
    return 1 if faults else 0


def try_one(folder: Path, options: argparse.Namespace) -> int:
    """Kill one command in processes of its own; returns the exit code."""
    small = ["train", options.recipe, "builtin:oracle", "--size", "tiny", "--budget", options.budget, "--threads", "1"]
    command = [sys.executable, "-m", "firth", *(options.command or small)]
    times = 20 if options.times is None else options.times
    started = time.monotonic()
    run([*command, "-o", str(folder / "whole")])
    expected, seconds = weights_digest(folder / "whole"), time.monotonic() - started
    print(f"uninterrupted: {seconds:.1f} s, weights {expected[:16]}", flush=True)
    return interrupt(command, folder, times, seconds, expected, random.Random(options.seed))


def interrupt(command: list[str], folder: Path, times: int, seconds: float, expected: str, rng: random.Random) -> int:
    """Kill the command `times` times, over as many runs as needed; returns the exit code."""
    kills, runs = 0, 0
    while kills < times or runs == 0:
        out = folder / f"killed{runs}"
        while kills < times and start_and_kill(command, out, rng, seconds / times):
            kills += 1
        run([*command, "-o", str(out), "--resume"])
        runs += 1
        digest = weights_digest(out)
        print(f"killed {kills} times: weights {digest[:16]}", flush=True)
        if digest != expected:
            print(f"DIFFERENT: {digest} instead of {expected}")
            return 1
    print(f"OK: {kills} kills in {runs} runs, the same weights")
    return 0


def start_and_kill(command: list[str], out: Path, rng: random.Random, max_delay: float) -> bool:
    """Start or resume training and kill it; False if it finished first."""
    before = last_checkpoint(out)[0]
    with subprocess.Popen(
        [*command, "-o", str(out), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        if rng.random() < _STARTUP_KILLS:
            time.sleep(3 * rng.random())
        else:
            while process.poll() is None and last_checkpoint(out)[0] <= before:
                time.sleep(0.01)
            time.sleep(max_delay * rng.random())
        process.send_signal(signal.SIGKILL)
        was_killed = process.wait() == -signal.SIGKILL
    if was_killed:
        print(f"  killed; last checkpoint: {last_checkpoint(out)[1]}", flush=True)
    return was_killed


def run(command: list[str]) -> str:
    """The standard output of a command; raises `SystemExit` with its standard error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def last_checkpoint(out: Path) -> tuple[int, str]:
    """The time and the folder of the last checkpoint of a run or of its stages."""
    found = [(0, "none")]
    for folder in (out, *out.with_name(f"{out.name}.stages").glob("*")):
        try:
            found.append(((folder / "checkpoint" / "manifest.json").stat().st_mtime_ns, folder.name))
        except FileNotFoundError:  # it may be replaced or removed at any moment
            continue
    return max(found)


def weights_digest(folder: Path) -> str:
    """The SHA-256 of a model's weights by `firth info`."""
    command = [sys.executable, "-m", "firth", "info", str(folder), "--json"]
    return str(json.loads(run(command))["files"]["model.safetensors"]["sha256"])


if __name__ == "__main__":
    sys.exit(main())
