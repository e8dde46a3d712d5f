"""Artifact folders: saved whole or not at all, opened whole or refused with a sentence that says why."""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from firth.artifact.manifest import (
    COPY_AGAIN,
    MANIFEST,
    MANIFEST_LIMIT,
    FileEntry,
    Manifest,
    check_file_name,
    installed_versions,
    parse_json,
    parse_manifest,
)
from firth.artifact.tensors import map_tensors, read_header, reading
from firth.errors import ArtifactError, near_miss
from firth.files import digest_bytes, digest_file, new_folder, sync, sync_all, write_file, writing

if TYPE_CHECKING:
    import numpy as np

CHECKPOINT = "checkpoint"
"""The folder within an artifact's that holds the state of unfinished training."""
_FOREIGN = {
    "*.arpa": "arpa",
    "*.arpa.gz": "arpa",
    "glove*.txt": "glove",
    "*.ftz": "fasttext",
    "*.vec": "word2vec",
    "*word2vec*": "word2vec",
}


Writer = Callable[[Path], str | None]
"""Writes a file; returns the SHA-256 of what it wrote if it knows it."""


@dataclass(frozen=True)
class Artifact:
    """A folder whose files are those of its manifest, each of the right size.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     made = save_artifact(
    ...         Path(parent, "uni"), kind="counts", name="unigram", recipe={}, files={"words.txt": b"a the"},
    ...         budget={"asked": None, "spent": {}}, corpus={}, seed=1, metrics={})
    ...     open_artifact(Path(parent, "uni")).read("words.txt")
    b'a the'
    """

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """Where the file `name` lies."""
        if name not in self.manifest.files:
            hint = _nearest(name, list(self.manifest.files), "it holds no files")
            raise ArtifactError(f"{self.folder} has no file {name!r}: {hint}")
        return self.folder / name

    def read(self, name: str) -> bytes:
        """The bytes of the file `name`, checked against the manifest."""
        path = self.path(name)
        with reading(path):
            data = path.read_bytes()
        _require_digest(path, digest_bytes(data), self.manifest.files[name])
        return data

    def tensors(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a safetensors file by name, read-only: they stay on disk until they are touched."""
        return map_tensors(self.path(name))


def save_artifact(
    folder: Path,
    *,
    kind: str,
    name: str,
    recipe: Mapping[str, Any],
    files: Mapping[str, bytes | Writer],
    budget: Mapping[str, Any],
    corpus: Mapping[str, Any],
    seed: int,
    metrics: Mapping[str, Any],
) -> Manifest:
    """The manifest of the new artifact `folder`, which appears whole or not at all.

    A file is given as its bytes, or as a function that writes it to the path it gets.
    """
    for file in files:
        check_file_name(file, folder)
    manifest = Manifest(
        kind=kind,
        name=name,
        recipe=dict(recipe),
        budget=dict(budget),
        corpus=dict(corpus),
        tokenizer=None,
        seed=seed,
        metrics=dict(metrics),
        versions=installed_versions(),
        files={},
    )
    # What cannot be recorded is refused before gigabytes are written.
    parse_manifest(manifest.to_bytes(), folder / MANIFEST)
    with _place(folder) as draft:
        entries = {file: _write(draft, file, content) for file, content in files.items()}
        tokenizer = entries["tokenizer.json"].sha256 if "tokenizer.json" in entries else None
        data = replace(manifest, tokenizer=tokenizer, files=entries).to_bytes()
        sync_all(draft)
        write_file(draft / MANIFEST, data)
        saved = parse_manifest(data, folder / MANIFEST)
        _check_files(draft, saved)
    return saved


@contextmanager
def _place(folder: Path) -> Iterator[Path]:
    """Where to write the files of an artifact: a draft, or the folder itself if it holds a checkpoint.

    The checkpoint is what makes a half-written folder good for something: it goes when the manifest is there.
    """
    if not (folder / CHECKPOINT).is_dir():
        with new_folder(folder) as draft:
            yield draft
        return
    with writing(folder):
        for left in folder.glob(".*.tmp"):  # of a program that was killed while it wrote
            left.unlink()
        yield folder
        shutil.rmtree(folder / CHECKPOINT)
        sync(folder)


def open_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """The artifact in `folder`: every file is there with the right size and, by default, the right digest."""
    _require_folder(folder)
    with reading(folder):
        names = os.listdir(folder)
    if MANIFEST not in names:
        _refuse_foreign(folder, names)
    path = folder / MANIFEST
    with reading(path):
        _require_plain(path, os.lstat(path))
        with open(path, "rb") as file:
            data = file.read(MANIFEST_LIMIT + 1)
    manifest = parse_manifest(data, path)
    _check_files(folder, manifest)
    if verify:
        for name, entry in manifest.files.items():
            with reading(folder / name):
                _require_digest(folder / name, digest_file(folder / name), entry)
    return Artifact(folder, manifest)


def verify_artifact(folder: Path) -> dict[str, Any]:
    """A report on the artifact in `folder` after every check there is, or an `ArtifactError`.

    Digests tell damage; the content of JSON and safetensors files is checked as well, because whoever makes
    up a folder can make up its digests.
    """
    artifact = open_artifact(folder)
    manifest = artifact.manifest
    for name in manifest.files:
        if name.endswith(".safetensors"):
            read_header(folder / name)
        elif name.endswith(".json"):
            parse_json(artifact.read(name), folder / name)
    values = manifest.to_dict()
    chosen = {key: values[key] for key in ("kind", "name", "format", "files")}
    return {"ok": True, **chosen, "bytes": _total(manifest)}


def artifact_info(folder: str | Path) -> dict[str, Any]:
    """All that the manifest of the artifact in `folder` says, with the folder and the size of its files."""
    manifest = open_artifact(Path(folder), verify=False).manifest
    return {"folder": str(folder), **manifest.to_dict(), "bytes": _total(manifest)}


def _total(manifest: Manifest) -> int:
    return sum(entry.size for entry in manifest.files.values())


def _write(draft: Path, name: str, content: bytes | Writer) -> FileEntry:
    path = draft / name
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
        digest = digest_bytes(content)
    else:
        digest = content(path) or digest_file(path)
    return FileEntry(digest, path.stat().st_size)


def _require_folder(folder: Path) -> None:
    with reading(folder):
        if folder.is_dir():
            return
        exists = folder.exists()
        around = os.listdir(folder.parent) if folder.parent.is_dir() else []
    if exists:
        _refuse_foreign_file(folder)
        raise ArtifactError(f"{folder} is a file: give the folder that firth train -o wrote.")
    artifacts = [name for name in around if os.path.isfile(folder.parent / name / MANIFEST)]
    hint = _nearest(folder.name, artifacts, "check the path, or make it with firth train -o")
    raise ArtifactError(f"{folder} does not exist: {hint}")


def _nearest(name: str, known: list[str], otherwise: str) -> str:
    clause = near_miss(name, known) if known else otherwise
    return clause if clause.endswith("?") else clause + "."


def _refuse_foreign(folder: Path, names: list[str]) -> NoReturn:
    """Says what a folder without a manifest is instead of an artifact, and what to do with it."""
    if not names:
        raise ArtifactError(f"{folder} is empty: give the folder that firth train -o wrote.")
    if CHECKPOINT in names:
        raise ArtifactError(
            f"{folder} holds unfinished training (checkpoint, but no {MANIFEST}): "
            "go on with the same firth train command and --resume."
        )
    weights = fnmatch.filter(names, "*.safetensors") + fnmatch.filter(names, "pytorch_model*.bin")
    if "config.json" in names and weights:
        raise ArtifactError(
            f"{folder} is a Hugging Face model, not a Firth artifact: "
            f"bring it in with firth import huggingface {folder} -o DIR."
        )
    for name in sorted(names):
        _refuse_foreign_file(folder / name)
    raise ArtifactError(
        f"{folder} is not a whole Firth artifact (it has no {MANIFEST}): "
        "give the folder that firth train -o wrote, or copy it again from where it came."
    )


def _refuse_foreign_file(path: Path) -> None:
    for pattern, style in _FOREIGN.items():
        if fnmatch.fnmatch(path.name, pattern):
            raise ArtifactError(
                f"{path} is a model in {style} format, not a Firth artifact: "
                f"bring it in with firth import {style} {path} -o DIR."
            )


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Raises unless the folder holds just the plain files that the manifest lists, each of the right size."""
    with reading(folder):
        found = _scan(folder)
    for name, info in found.items():
        if name in manifest.files or not stat.S_ISDIR(info.st_mode):
            _require_plain(folder / name, info)
    known = {MANIFEST, *manifest.files, *map(os.path.dirname, manifest.files)}
    missing, extra = sorted(manifest.files.keys() - found.keys()), sorted(found.keys() - known)
    if missing and extra:
        raise ArtifactError(
            f"{folder / missing[0]} is missing, while the manifest does not list {extra[0]!r}: "
            f"rename it back if it is the same file, or {COPY_AGAIN}."
        )
    if missing:
        raise ArtifactError(f"{folder / missing[0]} is missing though the manifest lists it: {COPY_AGAIN}.")
    if extra:
        raise ArtifactError(
            f"{folder} holds {extra[0]!r}, which its manifest does not list: move it out of the folder."
        )
    for name, entry in manifest.files.items():
        size = found[name].st_size
        if size != entry.size:
            fault = "cut off at byte" if size < entry.size else "followed by other bytes: its size is"
            raise ArtifactError(
                f"{folder / name} is {fault} {size}, where the manifest says {entry.size}: {COPY_AGAIN}."
            )


def _scan(folder: Path) -> dict[str, os.stat_result]:
    """What lies in `folder` by name: files and links, those of sub-folders, and empty sub-folders."""
    found = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name == CHECKPOINT and entry.is_dir(follow_symlinks=False):
            continue  # its program was killed between the manifest and the clearing up
        inner = sorted(os.listdir(entry)) if entry.is_dir(follow_symlinks=False) else []
        for name in [f"{entry.name}/{name}" for name in inner] or [entry.name]:
            found[name] = os.lstat(folder / name)
    return found


def _require_plain(path: Path, info: os.stat_result) -> None:
    if stat.S_ISREG(info.st_mode):
        return
    if stat.S_ISLNK(info.st_mode):
        what = "a symbolic link"
    elif stat.S_ISDIR(info.st_mode):
        what = "a folder"
    else:
        what = "a device, pipe or socket"
    raise ArtifactError(f"{path} is {what}, but an artifact holds plain files only: {COPY_AGAIN}.")


def _require_digest(path: Path, digest: str, entry: FileEntry) -> None:
    if digest != entry.sha256:
        raise ArtifactError(
            f"{path} was changed after it was saved (its SHA-256 is {digest}, where the manifest says "
            f"{entry.sha256}): {COPY_AGAIN}."
        )
