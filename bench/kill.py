"""Training that is killed again and again ends with the same weights as if nothing had happened.

    python bench/kill.py [--times 20] [--recipe bert]
    python bench/kill.py --times 4 --checkpoint 10 -- finetune bert classify --train a.tsv --dev b.tsv --task-text

A small network is trained once without interruption, and again in a process that is killed (kill -9) at a
random moment, also while it starts and while it saves, and resumed, as many times as asked for. The digests of the
weights must be equal. After `--` any command of Firth that takes `-o` and `--resume` can be given instead.
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
from pathlib import Path

_STARTING = 0.2  # share of kills that come while the program starts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--recipe", default="bert")
    parser.add_argument("--budget", default="150ktok")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--checkpoint", type=float, default=0.05, help="seconds between checkpoints")
    parser.add_argument("command", nargs="*", help="after --: what to run instead, without -o")
    asked = parser.parse_args()
    small = ["train", asked.recipe, "builtin:oracle", "--size", "tiny", "--budget", asked.budget, "--threads", "1"]
    command = [sys.executable, "-m", "firth", *(asked.command or small)]
    rng = random.Random(asked.seed)
    os.environ["FIRTH_CHECKPOINT"] = str(asked.checkpoint)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.monotonic()
        subprocess.run([*command, "-o", str(folder / "whole")], check=True, capture_output=True)
        expected, seconds = digest(folder / "whole"), time.monotonic() - started
        print(f"uninterrupted: {seconds:.1f} s, weights {expected[:16]}", flush=True)
        return interrupt(command, folder, asked.times, seconds, expected, rng)


def interrupt(command: list[str], folder: Path, times: int, seconds: float, expected: str, rng: random.Random) -> int:
    """Kills so many times, in as many runs as that takes; the exit code."""
    killed, runs = 0, 0
    while killed < times or runs == 0:
        out = folder / f"killed{runs}"
        while killed < times and begin(command, out, rng, seconds / times):
            killed += 1
        subprocess.run([*command, "-o", str(out), "--resume"], check=True, capture_output=True)
        runs += 1
        found = digest(out)
        print(f"killed {killed} times: weights {found[:16]}", flush=True)
        if found != expected:
            print(f"DIFFERENT: {found} instead of {expected}")
            return 1
    print(f"OK: {killed} kills in {runs} runs, the same weights")
    return 0


def begin(command: list[str], out: Path, rng: random.Random, longest: float) -> bool:
    """Starts or resumes training and kills it; false if it was done before."""
    before = saved(out)[0]
    with subprocess.Popen(
        [*command, "-o", str(out), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        if rng.random() < _STARTING:
            time.sleep(3 * rng.random())
        else:
            while process.poll() is None and saved(out)[0] <= before:
                time.sleep(0.01)
            time.sleep(longest * rng.random())
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
    if killed:
        print(f"  killed; last checkpoint: {saved(out)[1]}", flush=True)
    return killed


def saved(out: Path) -> tuple[int, str]:
    """When the last checkpoint of a result or of its stages was written, and where."""
    found = [(0, "none")]
    for folder in (out, *out.with_name(f"{out.name}.stages").glob("*")):
        try:
            found.append(((folder / "checkpoint" / "manifest.json").stat().st_mtime_ns, folder.name))
        except FileNotFoundError:  # it may be replaced or gone at any moment
            continue
    return max(found)


def digest(folder: Path) -> str:
    """The SHA-256 of a model's weights, as `firth info` tells it."""
    command = [sys.executable, "-m", "firth", "info", str(folder), "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return str(json.loads(told)["files"]["model.safetensors"]["sha256"])


if __name__ == "__main__":
    sys.exit(main())
