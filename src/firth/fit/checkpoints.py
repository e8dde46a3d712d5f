"""Checkpoints: the state of unfinished training, kept in the folder that the model will be in.

    DIR/checkpoint/manifest.json            written last: what is being trained, the state, and the file with its digest
    DIR/checkpoint/state-N.safetensors      the numbers

A new state is written beside the old one; only then the manifest is replaced and the old state removed. So a program
that is killed at any moment leaves a whole checkpoint behind.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from firth.artifact.folder import CHECKPOINT
from firth.artifact.manifest import parse_json
from firth.artifact.tensors import map_tensors, write_tensors
from firth.errors import ArtifactError, OutputError, RecipeError
from firth.files import digest_file, require_free, sync, write_file, writing
from firth.progress import note

_MANIFEST = "manifest.json"
_EVERY = 30.0  # seconds between checkpoints
_SHARE = 0.05  # of the time at most that writing them may take


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds training that can be gone on with."""
    return (folder / CHECKPOINT / _MANIFEST).is_file()


def require_place(folder: Path, resume: bool) -> None:
    """Raises `OutputError` unless a model can be trained into the folder."""
    if is_unfinished(folder):
        if not resume:
            raise OutputError(f"{folder} holds unfinished training: go on with --resume, or choose another -o.")
        return
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)  # one that never got its first state
    require_free(folder)


@dataclass
class Checkpoints:
    """Keeps the state of a training run; it is a `Keeper`."""

    folder: Path
    """The folder of the model."""
    identity: Mapping[str, Any]
    """What is trained: a run goes on only with the same."""
    resume: bool
    last: float = field(default_factory=time.monotonic)
    pause: float = field(default_factory=lambda: _seconds())
    number: int = 0

    def due(self) -> bool:
        """Whether it is time to keep the state."""
        return time.monotonic() - self.last >= self.pause

    def keep(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Writes the state, whole or not at all."""
        started = time.monotonic()
        folder = self.folder / CHECKPOINT
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.number += 1
            path = folder / f"state-{self.number}.safetensors"
            digest = write_tensors(path, arrays)
            sync(path)
            fields = {"identity": self.identity, "state": state, "file": path.name, "sha256": digest}
            write_file(folder / _MANIFEST, (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode())
            sync(folder)
            for old in folder.glob("state-*.safetensors"):
                if old != path:
                    old.unlink()
        self.last = time.monotonic()
        self.pause = max(_seconds(), (self.last - started) / _SHARE if _seconds() else 0.0)

    def kept(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
        """What was kept last, if there is something and it is to be gone on with."""
        if not (self.resume and is_unfinished(self.folder)):
            return None
        path = self.folder / CHECKPOINT / _MANIFEST
        fields = parse_json(path.read_bytes(), path)
        if fields.keys() != {"identity", "state", "file", "sha256"} or Path(str(fields["file"])).name != fields["file"]:
            raise ArtifactError(f"{path} is damaged: remove {path.parent} and train again.")
        if fields["identity"] != json.loads(json.dumps(self.identity)):
            raise RecipeError(
                f"{self.folder} holds unfinished training of something else: give the same recipe, text, seed and "
                "budget as before, or choose another -o."
            )
        state = self.folder / CHECKPOINT / fields["file"]
        if not state.is_file() or digest_file(state) != fields["sha256"]:
            raise ArtifactError(f"{state} has changed since it was written: remove {path.parent} and train again.")
        self.number = int("".join(filter(str.isdecimal, state.stem)) or 0)
        note(f"going on with {self.folder}")
        return map_tensors(state), fields["state"]


def _seconds() -> float:
    """Seconds between checkpoints: `$FIRTH_CHECKPOINT`, or half a minute."""
    given = os.environ.get("FIRTH_CHECKPOINT", "")
    try:
        return float(given) if given else _EVERY
    except ValueError:
        raise RecipeError(f"FIRTH_CHECKPOINT={given!r} must be a number of seconds, such as 30.") from None
