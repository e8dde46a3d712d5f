"""Artifact folders: saved completely or not at all, and checked when they are opened."""

from __future__ import annotations

import fnmatch
import os
import re
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
    parse_json,
    parse_manifest,
)
from firth.artifact.tensors import map_tensors, open_plain, read_errors, read_header
from firth.errors import ArtifactError, near_miss, reading
from firth.files import digest_bytes, digest_file, new_folder, sync, sync_all, write_file, writing

if TYPE_CHECKING:
    import numpy as np

CHECKPOINT = "checkpoint"  # sub-folder with the state of unfinished training
CHECKPOINT_FILE = re.compile(r"manifest\.json|state-\d+\.safetensors|\.firth-[^/]+\.tmp")
"""Names of the files in it, with those of unfinished ones."""
_FORMAT_PATTERNS = {
    "*.arpa": "arpa",
    "*.arpa.gz": "arpa",
    "glove*.txt": "glove",
    "*.ftz": "fasttext",
    "*.vec": "word2vec",
    "*word2vec*": "word2vec",
}

FileWriter = Callable[[Path], str | None]  # writes a file; returns its SHA-256 if it is known


@dataclass(frozen=True)
class Artifact:
    """An artifact folder whose files match its manifest.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     manifest = Manifest(kind="counts", name="unigram", recipe={}, corpus={}, seed=1, metrics={})
    ...     saved = save_artifact(Path(parent, "uni"), manifest, {"words.txt": b"a the"})
    ...     open_artifact(Path(parent, "uni")).read("words.txt")
    b'a the'
    """

    folder: Path
    manifest: Manifest

    def path(self, name: str) -> Path:
        """The path of the file `name`."""
        if name not in self.manifest.files:
            hint = _suggest(name, list(self.manifest.files), "it holds no files")
            raise ArtifactError(f"{self.folder} has no file {name!r}: {hint}")
        return self.folder / name

    def read(self, name: str) -> bytes:
        """The bytes of the file `name`, checked against the manifest."""
        path = self.path(name)
        with read_errors(path):
            data = path.read_bytes()
        _require_digest(path, digest_bytes(data), self.manifest.files[name])
        return data

    def tensors(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a safetensors file by name, read-only and memory-mapped."""
        return map_tensors(self.path(name))


def save_artifact(folder: Path, manifest: Manifest, files: Mapping[str, bytes | FileWriter]) -> Manifest:
    """Write the artifact `folder`, completely or not at all; returns the manifest with its files.

    A file is given as its bytes, or as a function that writes it to a path.
    """
    for file in files:
        check_file_name(file, folder)
    # An invalid manifest is refused before gigabytes are written.
    parse_manifest(manifest.to_bytes(), folder / MANIFEST)
    with _writable_folder(folder) as draft:
        entries = _write_all(draft, files)
        tokenizer = entries["tokenizer.json"].sha256 if "tokenizer.json" in entries else None
        data = replace(manifest, tokenizer=tokenizer, files=entries).to_bytes()
        sync_all(draft)
        write_file(draft / MANIFEST, data)
        saved = parse_manifest(data, folder / MANIFEST)
        _check_files(draft, saved)
    return saved


@contextmanager
def _writable_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that is renamed at the end, or the folder itself if it holds a checkpoint.

    The checkpoint makes an incomplete folder useful, so it is removed after the manifest is written.
    """
    if not (folder / CHECKPOINT).is_dir():
        with new_folder(folder) as draft:
            yield draft
        return
    with writing(folder):
        for leftover in folder.glob(".*.tmp"):  # of a process that was killed while writing
            leftover.unlink()
        yield folder
        shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)  # the model is complete, whatever is left
        sync(folder)


def open_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """The artifact in `folder`, whose files have the right size and, by default, the right digest."""
    with reading(folder, COPY_AGAIN):
        return _open_artifact(folder, verify)


def _open_artifact(folder: Path, verify: bool) -> Artifact:
    _require_folder(folder)
    with read_errors(folder):
        names = os.listdir(folder)
    if MANIFEST not in names:
        _refuse_foreign(folder, names)
    path = folder / MANIFEST
    with read_errors(path):
        _require_plain(path, os.lstat(path))
        with open_plain(path) as file:
            data = file.read(MANIFEST_LIMIT + 1)
    manifest = parse_manifest(data, path)
    _check_files(folder, manifest)
    if verify:
        for name, entry in manifest.files.items():
            with read_errors(folder / name):
                _require_digest(folder / name, digest_file(folder / name), entry)
    return Artifact(folder, manifest)


def verify_artifact(folder: Path) -> dict[str, Any]:
    """A report on the artifact in `folder` after every check, or an `ArtifactError`.

    Digests detect damage; the content of JSON and safetensors files is checked as well, because a forged folder
    can have forged digests.
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
    return {"ok": True, **chosen, "bytes": _total_size(manifest)}


def artifact_info(folder: str | Path) -> dict[str, Any]:
    """The manifest of the artifact in `folder` as a dictionary, with the folder and the size of its files."""
    manifest = open_artifact(Path(folder), verify=False).manifest
    return {"folder": str(folder), **manifest.to_dict(), "bytes": _total_size(manifest)}


def _total_size(manifest: Manifest) -> int:
    return sum(entry.size for entry in manifest.files.values())


def _write_all(draft: Path, files: Mapping[str, bytes | FileWriter]) -> dict[str, FileEntry]:
    try:
        return {name: _write(draft, name, content) for name, content in files.items()}
    except OSError:
        for name in files:  # beside a checkpoint, they would keep a full disk full
            (draft / name).unlink(missing_ok=True)
        raise


def _write(draft: Path, name: str, content: bytes | FileWriter) -> FileEntry:
    path = draft / name
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
        digest = digest_bytes(content)
    else:
        digest = content(path) or digest_file(path)
    return FileEntry(digest, path.stat().st_size)


def _require_folder(folder: Path) -> None:
    with read_errors(folder):
        if folder.is_dir():
            return
        exists = folder.exists()
        around = os.listdir(folder.parent) if folder.parent.is_dir() else []
    if exists:
        _refuse_foreign_file(folder)
        raise ArtifactError(f"{folder} is a file: give the folder that firth train -o wrote.")
    artifacts = [name for name in around if os.path.isfile(folder.parent / name / MANIFEST)]
    hint = _suggest(folder.name, artifacts, "check the path, or make it with firth train -o")
    raise ArtifactError(f"{folder} does not exist: {hint}")


def _suggest(name: str, known: list[str], otherwise: str) -> str:
    return near_miss(name, known) if known else f"{otherwise}."


def _refuse_foreign(folder: Path, names: list[str]) -> NoReturn:
    """Raise the error for a folder without a manifest: what it is instead, and the remedy."""
    if not names:
        raise ArtifactError(f"{folder} is empty: give the folder that firth train -o wrote.")
    if CHECKPOINT in names:
        raise ArtifactError(f"{folder} holds unfinished training: run the same firth train command with --resume.")
    weights = fnmatch.filter(names, "*.safetensors") + fnmatch.filter(names, "pytorch_model*.bin")
    if "config.json" in names and weights:
        _refuse_format(folder, "huggingface")
    for name in sorted(names):
        _refuse_foreign_file(folder / name)
    raise ArtifactError(
        f"{folder} is not a complete Firth artifact (it has no {MANIFEST}): "
        "give the folder that firth train -o wrote, or copy it again."
    )


def _refuse_foreign_file(path: Path) -> None:
    for pattern, style in _FORMAT_PATTERNS.items():
        if fnmatch.fnmatch(path.name, pattern):
            _refuse_format(path, style)


def _refuse_format(path: Path, style: str) -> NoReturn:
    raise ArtifactError(f"{path} is a {style} model, no artifact: import it with firth import {style} {path} -o DIR.")


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Raise unless the folder holds exactly the plain files that the manifest lists, each of the right size."""
    with read_errors(folder):
        found = _scan(folder)
    for name, info in found.items():
        if name in manifest.files or not stat.S_ISDIR(info.st_mode):
            _require_plain(folder / name, info)
    known = {MANIFEST, *manifest.files, *map(os.path.dirname, manifest.files)}
    missing, extra = sorted(manifest.files.keys() - found.keys()), sorted(found.keys() - known)
    if missing and extra:
        reason = f"{folder / missing[0]} is missing, while the manifest does not list {extra[0]!r}"
        raise ArtifactError(f"{reason}: rename it back if it is the same file, or {COPY_AGAIN}.")
    if missing:
        raise ArtifactError(f"{folder / missing[0]} is missing though the manifest lists it: {COPY_AGAIN}.")
    if extra:
        raise ArtifactError(f"{folder} holds {extra[0]!r}, which its manifest does not list: move it away.")
    for name, entry in manifest.files.items():
        size = found[name].st_size
        if size != entry.size:
            fault = "cut off at byte" if size < entry.size else "followed by other bytes: its size is"
            raise ArtifactError(f"{folder / name} is {fault} {size} instead of {entry.size}: {COPY_AGAIN}.")


def _scan(folder: Path) -> dict[str, os.stat_result]:
    """Files and links in `folder` and its sub-folders, and empty sub-folders, by name."""
    found = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        inner = sorted(os.listdir(entry)) if entry.is_dir(follow_symlinks=False) else []
        if entry.name == CHECKPOINT and entry.is_dir(follow_symlinks=False):
            # Left by a process that was killed after the manifest was written; nothing else may be there.
            inner = [name for name in inner if not _is_checkpoint_file(folder / CHECKPOINT / name)]
            if not inner:
                continue
        for name in [f"{entry.name}/{name}" for name in inner] or [entry.name]:
            found[name] = os.lstat(folder / name)
    return found


def _is_checkpoint_file(path: Path) -> bool:
    return CHECKPOINT_FILE.fullmatch(path.name) is not None and stat.S_ISREG(os.lstat(path).st_mode)


def _require_plain(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        others = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder"}
        what = others.get(stat.S_IFMT(info.st_mode), "a device, pipe or socket")
        raise ArtifactError(f"{path} is {what}, but an artifact holds plain files only: {COPY_AGAIN}.")


def _require_digest(path: Path, digest: str, entry: FileEntry) -> None:
    if digest != entry.sha256:
        digests = f"its SHA-256 is {digest} instead of {entry.sha256}"
        raise ArtifactError(f"{path} was changed after it was saved ({digests}): {COPY_AGAIN}.")
