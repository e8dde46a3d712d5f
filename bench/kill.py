"""Crash safety: training that is killed repeatedly and resumed ends with the same weights as without interruption.

    python bench/kill.py [--times 20] [--recipe bert]
    python bench/kill.py --times 4 --checkpoint 10 -- finetune bert classify --train a.tsv --dev b.tsv --task-text

Trains a small network once without interruption, and again in a process that is killed (kill -9) at random moments,
also during startup and while saving, and then resumed. The SHA-256 digests of the weights must be equal. After `--` any
Firth command that takes `-o` and `--resume` can be given instead.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import make_parser

_STARTUP_KILLS = 0.2  # fraction of kills during startup


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--times", type=int, default=20, help="kills")
    parser.add_argument("--recipe", default="bert")
    parser.add_argument("--budget", default="150ktok")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--checkpoint", type=float, default=0.05, help="seconds between checkpoints")
    parser.add_argument("command", nargs="*", help="after --: the command to run instead, without -o")
    options = parser.parse_args()
    small = ["train", options.recipe, "builtin:oracle", "--size", "tiny", "--budget", options.budget, "--threads", "1"]
    command = [sys.executable, "-m", "firth", *(options.command or small)]
    os.environ["FIRTH_CHECKPOINT"] = str(options.checkpoint)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.monotonic()
        run([*command, "-o", str(folder / "whole")])
        expected, seconds = weights_digest(folder / "whole"), time.monotonic() - started
        print(f"uninterrupted: {seconds:.1f} s, weights {expected[:16]}", flush=True)
        return interrupt(command, folder, options.times, seconds, expected, random.Random(options.seed))


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
