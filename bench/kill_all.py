"""Kills of every kind of trainer and writer, for `kill.py --all`: the same bytes, nothing half-written or left over."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import forks
from kill_kinds import Kind, all_kinds, input_commands, write_texts

_TIMED = {"manifest.json", "metrics.jsonl", "curve.svg"}  # files that hold times
OLD = b"an older output\n"
_AT_CHANGES = 0.5  # fraction of kills just before a change of a file; the others are at any time


class FaultError(Exception):
    """Something that must not happen."""


@dataclass
class Place:
    """A kind of command with its folders and the result of an uninterrupted run."""

    kind: Kind
    inputs: Path
    folder: Path
    """With the outputs and a cache of its own."""
    whole: forks.Ended
    digests: dict[str, str]

    @property
    def digest(self) -> str:
        """Of the weights, or of all files."""
        everything = hashlib.sha256(repr(sorted(self.digests.items())).encode()).hexdigest()
        return self.digests.get("model.safetensors", everything)

    def out(self, number: int) -> Path:
        return self.folder / f"out{number}{self.kind.suffix}"


def open_inputs(folder: Path) -> Path:
    """A folder with the texts and models that commands read."""
    inputs = folder / "inputs"
    inputs.mkdir()
    write_texts(inputs)
    os.environ["FIRTH_CACHE"] = str(inputs / "cache")
    for arguments in input_commands(inputs):
        forks.run(arguments, inputs)
    return inputs


@contextmanager
def open_place(kind: Kind, inputs: Path, parent: Path) -> Iterator[Place]:
    """A place in a new folder, which is removed at the end."""
    folder = parent / kind.name.replace(" ", "-")
    folder.mkdir()
    os.environ["FIRTH_CACHE"] = str(folder / "cache")
    try:
        _warm_up(kind.arguments(inputs, folder / f"warm{kind.suffix}"))
        shutil.rmtree(folder / "cache", ignore_errors=True)
        out = folder / f"whole{kind.suffix}"
        whole = forks.run(kind.arguments(inputs, out), folder)
        yield Place(kind, inputs, folder, whole, digests_of(out))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _warm_up(arguments: list[str]) -> None:
    """Run a command in this process, so that its forks find imported modules and loaded kernels."""
    from firth.cli.main import app

    said = StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            app(arguments)
    except SystemExit as end:
        if end.code:
            raise SystemExit(f"firth {' '.join(arguments)}: {said.getvalue()}") from None
    forks.require_one_thread()


def digests_of(out: Path) -> dict[str, str]:
    """The SHA-256 of a file, or of the files of a folder that hold no times."""
    if out.is_file():
        return {"": hashlib.sha256(out.read_bytes()).hexdigest()}
    files = sorted(path for path in out.rglob("*") if path.is_file())
    names = [path.relative_to(out).as_posix() for path in files]
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in zip(names, files, strict=True)
        if name not in _TIMED
    }


def kill_kind(place: Place, times: int, rng: random.Random) -> str:
    """Kill a command `times` times, over as many runs as needed; returns a summary, or raises `FaultError`."""
    kills, runs = 0, 0
    while kills < times or runs == 0:
        out = place.out(runs)
        has_old = bool(place.kind.suffix) and runs % 2 == 1
        if has_old:
            out.write_bytes(OLD)
        while kills < times and _start_and_kill(place, out, rng):
            kills += 1
            check_visible(place, out, has_old)
        _finish(place, out)
        runs += 1
    return f"{kills} kills in {runs} runs, {place.digest[:16]}"


def _start_and_kill(place: Place, out: Path, rng: random.Random) -> bool:
    """Start or continue a command and kill it; False if it finished first."""
    arguments = place.kind.repeated(place.inputs, out)
    if rng.random() < _AT_CHANGES:
        ended = forks.Fork(arguments, place.folder, change=rng.randint(1, max(place.whole.changes, 1))).wait()
    else:
        ended = forks.Fork(arguments, place.folder).wait(place.whole.seconds * rng.random())
    if _is_written(place, ended):
        return False
    if ended.code not in (0, -signal.SIGKILL):
        raise FaultError(f"exit code {ended.code} after a kill: {ended.error.strip()}")
    if "hangs" in ended.error:
        raise FaultError(ended.error.strip())
    return ended.code != 0


def _finish(place: Place, out: Path) -> None:
    """Run to the end, compare the result and remove it, with what is cached."""
    ended = forks.Fork(place.kind.repeated(place.inputs, out), place.folder).wait()
    if ended.code and not _is_written(place, ended):
        raise FaultError(f"exit code {ended.code} at the end: {ended.error.strip()}")
    require_whole(place, out)
    remove(out)
    shutil.rmtree(place.folder / "cache", ignore_errors=True)


def resume_twice(place: Place, times: int, rng: random.Random) -> str:
    """Kill a command and continue it in two processes at once, `times` times; returns a summary."""
    refused = 0
    for number in range(times):
        out = place.out(number)
        _start_and_kill(place, out, rng)
        arguments = place.kind.repeated(place.inputs, out)
        both = [forks.Fork(arguments, place.folder) for _ in range(2)]
        ends = [fork.wait() for fork in both]
        for ended in ends:
            if ended.code:
                require_sentence(ended)
        if all(ended.code and not _is_written(place, ended) for ended in ends):
            raise FaultError(f"both failed: {ends[0].error.strip()} / {ends[1].error.strip()}")
        refused += sum(ended.code == 1 for ended in ends)
        require_whole(place, out)
        remove(out)
        shutil.rmtree(place.folder / "cache", ignore_errors=True)
    return f"{times} pairs, {refused} refused, {place.digest[:16]}"


def require_sentence(ended: forks.Ended, *parts: str) -> None:
    """Raise `FaultError` unless a command has failed with exit code 1 and one sentence, which has one of the parts."""
    said = [line for line in ended.error.splitlines() if line.strip()]
    sentence = said[-1] if said else ""
    is_sentence = sentence.startswith("firth: ") and sentence.endswith((".", "?"))
    if ended.code != 1 or "Traceback" in ended.error or not is_sentence:
        raise FaultError(f"exit code {ended.code}: {ended.error.strip()}")
    if parts and not any(part in sentence for part in parts):
        raise FaultError(f"without the remedy: {sentence}")


def _is_written(place: Place, ended: forks.Ended) -> bool:
    """Whether a folder was refused because the killed command had written it; there is no --force for folders."""
    is_folder = not (place.kind.resumes or place.kind.suffix)
    return is_folder and ended.code == 1 and "already holds something" in ended.error


def require_whole(place: Place, out: Path) -> None:
    """Raise `FaultError` unless the output is that of an uninterrupted run and nothing else is left."""
    found = digests_of(out)
    if found != place.digests:
        names = sorted(name for name in {**found, **place.digests} if found.get(name) != place.digests.get(name))
        raise FaultError(f"DIFFERENT: {', '.join(names) or out.name}")
    left = [path.relative_to(place.folder).as_posix() for path in place.folder.rglob("*") if is_temporary(path)]
    if left:
        raise FaultError(f"left over: {', '.join(sorted(left))}")


def check_visible(place: Place, out: Path, has_old: bool) -> None:
    """Raise `FaultError` if an output is visible under its name before it is complete."""
    if place.kind.suffix:
        content = out.read_bytes() if out.exists() else None
        is_new = content is not None and digests_of(out) == place.digests
        if not is_new and content != (OLD if has_old else None):
            raise FaultError(f"half-written output of {len(content or b'')} bytes")
        return
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    if "manifest.json" in names:
        _require_artifact(out)
    elif names and "checkpoint" not in names and digests_of(out) != place.digests:
        raise FaultError(f"half-written folder: {', '.join(sorted(names))}")


def _require_artifact(out: Path) -> None:
    from firth.artifact.folder import verify_artifact
    from firth.errors import FirthError

    try:
        verify_artifact(out)
    except FirthError as error:
        raise FaultError(f"half-written artifact: {error}") from None


def is_temporary(path: Path) -> bool:
    ends = (".stages", ".runs")
    return path.name.startswith(".") or path.name.endswith(ends) or path.name == "checkpoint"


def remove(out: Path) -> None:
    """Remove a file or folder, if it is there."""
    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)


def choose_kinds(pattern: str | None) -> list[Kind]:
    """The kinds whose name contains one of the comma-separated parts of the pattern; all by default."""
    parts = pattern.split(",") if pattern else [""]
    return [kind for name, kind in all_kinds().items() if any(part in name for part in parts)]
