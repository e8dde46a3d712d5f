"""Atomic writing, digests, and the cache folder."""

from __future__ import annotations

import atexit
import errno
import glob
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from firth.errors import OutputError
from firth.progress import note

_PREFIX = ".firth-"  # of temporary files and folders
_DRAFT_SUFFIX = ".tmp"  # of those that are being written
_ARTIFACT_START = b'{\n  "budget": {'  # of the manifest.json of an artifact, whose keys are sorted


def digest_bytes(data: bytes | memoryview) -> str:
    """The SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """The SHA-256 of a file's bytes in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_folder() -> Path:
    """The folder of token stores: `$FIRTH_CACHE`, or `firth` in the user's cache folder.

    If it cannot be written, it is a temporary folder that is removed at exit, with a note.
    """
    return _writable_folder(_chosen_cache())


def _chosen_cache() -> Path:
    chosen = os.environ.get("FIRTH_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "firth"
    except RuntimeError:  # the user has no home folder
        return Path(os.devnull, "cache")


@cache
def _writable_folder(chosen: Path) -> Path:
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=chosen):
            return chosen
    except OSError as error:
        reason = error.strerror or str(error)
    stack = ExitStack()
    with writing(parent := Path(tempfile.gettempdir())):
        folder = stack.enter_context(draft_folder(parent))
    atexit.register(stack.close)
    note(
        f"the cache folder {chosen} cannot be written ({reason.lower()}): a temporary one is used for this run; "
        "set FIRTH_CACHE to a folder you may write to"
    )
    return folder


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Convert errors of the operating system while writing to an `OutputError` that names the remedy."""
    try:
        yield
    except OSError as error:
        is_cache = target.is_relative_to(_chosen_cache())
        other = "set FIRTH_CACHE to another folder" if is_cache else "choose another folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = "free some space, for example by firth cache --clear," if is_cache else "free some space"
            remedy = f"the disk is full: {free} or {other}"
        elif error.errno == errno.EFBIG:
            remedy = f"a file may not be that large: raise the limit (ulimit -f) or {other}"
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            remedy = f"a part of that path is a file: {other}"
        else:
            where = other if is_cache else "choose a folder you may write to"
            remedy = f"{(error.strerror or str(error)).lower()}: {where}"
        raise OutputError(f"cannot write {target}: {remedy}.") from error


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary sibling of `target` that replaces it when the block succeeds, or is removed.

    `target` must be missing or an empty folder.
    """
    with writing(target):
        require_free(target)
        with draft_folder(target.parent) as draft:
            yield draft
            sync_all(draft)
            require_free(target)
            os.rename(draft, target)  # replaces an empty folder, fails on any other
            sync(target.parent)


@contextmanager
def draft_folder(parent: Path) -> Iterator[Path]:
    """A new hidden folder in `parent`, to be filled and renamed, or else removed."""
    draft = _new_draft(parent)
    try:  # an interrupt may occur as soon as the folder exists
        draft.mkdir()
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _new_draft(parent: Path) -> Path:
    """Make the folder `parent`, and return the path of a new draft in it, which does not exist yet.

    The drafts of killed processes of this machine, files and folders, are removed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(f"{glob.escape(_PREFIX)}*{_DRAFT_SUFFIX}"):
        if not is_abandoned(old):
            continue
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
        else:
            with suppress(OSError):  # of another user, or removed by another process
                old.unlink()
    return parent / f"{temporary_prefix()}{secrets.token_hex(8)}{_DRAFT_SUFFIX}"


def sync_all(folder: Path) -> None:
    """Flush a folder and everything below it to disk."""
    for file in sorted(folder.rglob("*")):
        sync(file)
    sync(folder)


def _machine() -> str:
    """The name of this machine without dots; folders may be shared between machines."""
    return os.uname().nodename.replace(".", "-")


def temporary_prefix() -> str:
    """How the names of temporary files of this process begin."""
    return f"{_PREFIX}{_machine()}-{os.getpid()}."


def is_abandoned(path: Path) -> bool:
    """Whether a temporary file or folder was left by a process of this machine that is gone."""
    prefix = f"{_PREFIX}{_machine()}-"
    writer = path.name.removeprefix(prefix).partition(".")[0]
    return path.name.startswith(prefix) and writer.isdecimal() and not _is_alive(int(writer))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def require_free(target: Path) -> None:
    """Raise `OutputError` unless `target` is missing or an empty folder, and not inside an artifact."""
    require_outside_artifacts(target)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise OutputError(f"{target} is a file: choose another folder with -o.")
    if target.is_dir() and any(target.iterdir()):
        raise OutputError(f"{target} already holds something: choose another folder with -o, or empty it.")


def require_outside_artifacts(path: Path) -> None:
    """Raise `OutputError` if `path` would be a part of an artifact, which allows for no files but its own."""
    for folder in Path(os.path.realpath(path)).parents:
        try:
            with open(folder / "manifest.json", "rb") as file:
                is_artifact = file.read(len(_ARTIFACT_START)) == _ARTIFACT_START
        except OSError:  # there is none, or it cannot be read
            continue
        if is_artifact:
            raise OutputError(
                f"{path} would be in the folder of the model {folder}, which could not be read then: write elsewhere."
            )


def require_new_file(path: Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Raise `OutputError` if `path` exists, unless it may be replaced by `force`; it is never one of the `inputs`.

    An input may be a file or a folder, all files of which are inputs; others, such as `-`, are ignored. Nor may it be
    in the folder of an artifact.
    """
    with writing(path):
        if not os.path.lexists(path):
            require_outside_artifacts(path)
            return
        for given in map(Path, inputs):
            is_inside = given.is_dir() and path.resolve().is_relative_to(given.resolve())
            if is_inside or (given.exists() and path.exists() and path.samefile(given)):
                raise OutputError(f"{path} is read by this command: write to another file.")
        require_outside_artifacts(path)
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "no regular file"
            raise OutputError(f"{path} is {kind}: write to another file.")
        if not force:
            raise OutputError(f"{path} exists already: write to another file, or replace it with --force.")


def write_file(target: Path, data: bytes) -> None:
    """Write `data` to `target` atomically; an existing file is replaced."""
    with new_file(target) as file:
        file.write(data)


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write that replaces `target` when the block succeeds, or is removed."""
    require_outside_artifacts(target)
    with writing(target):
        draft = _new_draft(target.parent)
        try:  # an interrupt may occur as soon as the file exists
            with open(draft, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
