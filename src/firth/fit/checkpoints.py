"""Checkpoints of unfinished training, in the folder of the model.

    DIR/checkpoint/manifest.json          written last: the identity of the run, its state, and the file with its digest
    DIR/checkpoint/state-N.safetensors    parameters and optimiser state

A new state is written beside the old one; then the manifest is replaced and the old state removed. So a process that is
killed at any moment leaves a complete checkpoint. While a process trains into DIR it holds a lock on that folder, which
ends with the process, so that no two resume the same checkpoint.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from firth.artifact.folder import CHECKPOINT, CHECKPOINT_FILE
from firth.artifact.manifest import MANIFEST, parse_json
from firth.artifact.tensors import map_tensors, open_plain, read_errors, write_tensors
from firth.errors import ArtifactError, OutputError, RecipeError, reading
from firth.files import digest_bytes, digest_file, require_free, sync, write_file, writing
from firth.progress import note

_MANIFEST = "manifest.json"
_INTERVAL = 30.0  # seconds between checkpoints
_TIME_FRACTION = 0.05  # that writing them may take
_held: dict[Path, int] = {}  # handles of the folders that this process trains into


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a checkpoint."""
    return (folder / CHECKPOINT / _MANIFEST).is_file()


def is_resumable(folder: Path) -> bool:
    """Whether training into a folder was begun, in the folder or in its stages or runs, and can be continued."""
    begun = (folder.parent / f"{folder.name}.{kind}" for kind in ("stages", "runs", "compress"))
    return is_unfinished(folder) or any(path.is_dir() for path in begun)


def is_finished(folder: Path, resume: bool) -> bool:
    """Whether the run to resume has saved its model already."""
    return resume and (folder / MANIFEST).exists()


def clear_finished(folder: Path) -> None:
    """Remove the checkpoint of a run that was killed after it had saved its model, and note that it is finished."""
    note(f"{folder} is finished already.")
    with suppress(BlockingIOError):  # the other process will remove it
        handle = _lock(folder)
        shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        os.close(handle)


@contextmanager
def training_place(folder: Path, resume: bool) -> Iterator[None]:
    """A block that trains a model into the folder; raises `OutputError` if that is impossible.

    From the first checkpoint on, no other process can train into it until the end of the block.
    """
    require_place(folder, resume)
    try:
        hold(folder)
        if not is_unfinished(folder):
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)  # without a complete first state
        yield
    finally:
        release(folder)


def hold(folder: Path) -> None:
    """Lock the folder for this process, if it exists; raises `OutputError` if another process trains into it."""
    if folder.absolute() in _held or not folder.is_dir():
        return
    try:
        _held[folder.absolute()] = _lock(folder)
    except BlockingIOError:
        raise OutputError(
            f"another process is training into {folder}: wait until it has finished, or choose another -o."
        ) from None
    if (folder / MANIFEST).exists():
        release(folder)
        raise OutputError(f"another process has written {folder} meanwhile: use that model, or choose another -o.")


def release(folder: Path) -> None:
    """Let other processes train into the folder again."""
    handle = _held.pop(folder.absolute(), None)
    if handle is not None:
        os.close(handle)


def _lock(folder: Path) -> int:
    """A handle that locks the folder until it is closed; raises `BlockingIOError` if another one does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # the file system has no locks
        pass
    return handle


def require_place(folder: Path, resume: bool) -> None:
    """Raise `OutputError` unless a model can be trained into the folder."""
    if is_unfinished(folder):
        if not resume:
            raise OutputError(f"{folder} holds unfinished training: continue with --resume, or choose another -o.")
    elif not (folder / CHECKPOINT).is_dir() or len(os.listdir(folder)) > 1:
        require_free(folder)


@dataclass
class CheckpointFolder:
    """Writes and loads the checkpoints of a run; implements `Checkpointer`."""

    folder: Path
    """The folder of the model."""
    identity: Mapping[str, Any]
    """The recipe, text, seed and budget, which a resumed run must have in common."""
    resume: bool
    last: float = field(default_factory=time.monotonic)
    pause: float = field(default_factory=lambda: _interval())
    number: int = 0

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self.last >= self.pause

    def save(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Write a checkpoint atomically."""
        started = time.monotonic()
        folder = self.folder / CHECKPOINT
        with writing(folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            hold(self.folder)
            folder.mkdir(exist_ok=True)
            self.number += 1
            path = folder / f"state-{self.number}.safetensors"
            try:
                digest = write_tensors(path, arrays)
                sync(path)
                fields = {"identity": self.identity, "state": state, "file": path.name, "sha256": digest}
                fields = json.loads(json.dumps(fields))  # keys that are numbers become strings, which sort differently
                write_file(folder / _MANIFEST, _canonical({**fields, "digest": digest_bytes(_canonical(fields))}))
            except (OSError, OutputError):
                path.unlink(missing_ok=True)  # half a state would keep a full disk full
                raise
            sync(folder)
            for old in folder.glob("state-*.safetensors"):
                if old != path:
                    old.unlink()
        self.last = time.monotonic()
        self.pause = max(_interval(), (self.last - started) / _TIME_FRACTION if _interval() else 0.0)

    def load(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
        """The arrays and state of the last checkpoint, if the run is to be resumed and has one."""
        if not (self.resume and is_unfinished(self.folder)):
            return None
        folder = self.folder / CHECKPOINT
        with reading(folder, f"remove {folder} and train again"):
            hold(self.folder)
            return self._load(folder)

    def _load(self, folder: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        path = folder / _MANIFEST
        with read_errors(path), open_plain(path) as file:
            fields = parse_json(file.read(), path)
        if not _is_manifest(fields):
            raise ArtifactError(f"{path} is damaged: remove {folder} and train again.")
        if fields["identity"] != json.loads(json.dumps(self.identity)):
            raise RecipeError(
                f"{self.folder} holds unfinished training of something else: give the same recipe, text, seed and "
                "budget as before, or choose another -o."
            )
        state = folder / fields["file"]
        if not state.is_file() or digest_file(state) != fields["sha256"]:
            raise ArtifactError(f"{state} has changed since it was written: remove {folder} and train again.")
        self.number = int("".join(filter(str.isdecimal, state.stem)) or 0)
        note(f"resuming {self.folder}")
        return map_tensors(state), fields["state"]


def _is_manifest(fields: Any) -> bool:
    """Whether this is what `save` wrote, by its digest."""
    if not isinstance(fields, dict) or fields.keys() != {"identity", "state", "file", "sha256", "digest"}:
        return False
    digest = fields.pop("digest")
    is_state = isinstance(fields["state"], dict) and CHECKPOINT_FILE.fullmatch(str(fields["file"])) is not None
    return is_state and digest == digest_bytes(_canonical(fields))


def _canonical(fields: Mapping[str, Any]) -> bytes:
    return (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode()


def _interval() -> float:
    """Seconds between checkpoints: `$FIRTH_CHECKPOINT`, or 30."""
    given = os.environ.get("FIRTH_CHECKPOINT", "")
    try:
        return float(given) if given else _INTERVAL
    except ValueError:
        raise RecipeError(f"FIRTH_CHECKPOINT={given!r} must be a number of seconds, such as 30.") from None
