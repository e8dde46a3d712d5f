"""Training that is killed again and again ends with the same weights as if nothing had happened.

    python bench/kill.py [--times 20] [--recipe bert]

A small network is trained once without interruption, and again in a process that is killed (kill -9) at a
random moment, also while it starts and while it saves, and resumed, as many times as asked for. The digests of the
weights must be equal.
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
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "firth", "train", asked.recipe, "builtin:oracle", "--size", "tiny"]
        command += ["--budget", asked.budget, "--threads", "1"]
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
    manifest = out / "checkpoint" / "manifest.json"
    before = manifest.stat().st_mtime_ns if manifest.exists() else 0
    environment = os.environ | {"FIRTH_CHECKPOINT": "0.05"}
    with subprocess.Popen(
        [*command, "-o", str(out), "--resume"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        if rng.random() < _STARTING:
            time.sleep(3 * rng.random())
        else:
            while process.poll() is None and not is_newer(manifest, before):
                time.sleep(0.01)
            time.sleep(longest * rng.random())
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def is_newer(path: Path, before: int) -> bool:
    """Whether a file has been written since, though it may be replaced or gone at any moment."""
    try:
        return path.stat().st_mtime_ns > before
    except FileNotFoundError:
        return False


def digest(folder: Path) -> str:
    """The SHA-256 of a model's weights, as `firth info` tells it."""
    command = [sys.executable, "-m", "firth", "info", str(folder), "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return str(json.loads(told)["files"]["model.safetensors"]["sha256"])


if __name__ == "__main__":
    sys.exit(main())
