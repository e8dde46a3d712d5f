"""The cache folder: what it contains, its size limit, and how it is cleared.

    stores/DIGEST/          token stores; the folder's time is that of the last use
    keys/DIGEST             which store and tokenizer a text has
    tokenizers/DIGEST       tokenizers trained on the text of a store
    pydoc/DIGEST.jsonl      the text of builtin:pydoc
    spool/                  standard input and generators, while a process reads them

Only files with such names are removed, whatever else is in the folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firth.errors import OutputError
from firth.files import cache_folder, is_abandoned
from firth.progress import note

DEFAULT_LIMIT = "20GB"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PYDOC = re.compile(r"[0-9a-f]{32}\.jsonl")
_NAMES = {"stores": _DIGEST, "pydoc": _PYDOC}
_FOLDERS = ("stores", "keys", "tokenizers", "pydoc", "spool")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)B?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(min|[smhdw])")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class CacheEntry:
    """A token store or a built-in corpus in the cache."""

    kind: str
    path: Path
    bytes: int
    used: float  # seconds since 1970


def cache_limit() -> int:
    """The bytes that token stores may take: `$FIRTH_CACHE_LIMIT`, such as 500MB, or 20 GB."""
    given = os.environ.get("FIRTH_CACHE_LIMIT") or DEFAULT_LIMIT
    parts = _SIZE.fullmatch(given)
    if parts is None:
        raise OutputError(f"FIRTH_CACHE_LIMIT={given!r} must be a size, such as 500MB or 20GB.")
    return int(float(parts[1]) * 1000 ** " KMGT".index(parts[2].upper() or " "))


def parse_age(text: str) -> float:
    """The seconds of a duration such as 12h, 30d or 4w; `ValueError` for anything else.

    >>> parse_age("30d")
    2592000.0
    """
    parts = _DURATION.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r:.80} is not a time: give one such as 12h, 30d or 4w.")
    return float(parts[1]) * _SECONDS[parts[2]]


def cache_entries() -> list[CacheEntry]:
    """The token stores and built-in corpora in the cache, the least recently used first."""
    found = []
    for kind, pattern in _NAMES.items():
        for path in _inside(cache_folder() / kind):
            if pattern.fullmatch(path.name):
                with suppress(OSError):  # another process has removed it
                    found.append(CacheEntry(kind, path, _size(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: (entry.used, entry.path.name))


def cache_size() -> int:
    """The bytes of everything that Firth has in the cache folder."""
    return sum(_size(cache_folder() / name) for name in _FOLDERS)


def clear_cache(older: float = 0.0) -> list[CacheEntry]:
    """Remove what has not been used for `older` seconds, and what killed processes left; what was removed."""
    limit = time.time() - older
    removed = [entry for entry in cache_entries() if entry.used <= limit]
    _remove(entry.path for entry in removed)
    _remove_orphans()
    return removed


def trim_cache(keep: Path) -> None:
    """Remove the least recently used stores but `keep` until the rest fits into the limit."""
    entries = [entry for entry in cache_entries() if entry.kind == "stores"]
    excess, removed = sum(entry.bytes for entry in entries) - cache_limit(), []
    for entry in entries:
        if excess <= 0:
            break
        if entry.path.name != keep.name:
            removed.append(entry)
            excess -= entry.bytes
    if removed:
        _remove(entry.path for entry in removed)
        _remove_orphans()
        stores = "1 old token store" if len(removed) == 1 else f"{len(removed)} old token stores"
        note(f"removed {stores} from the cache, whose limit is {cache_limit():,} bytes (FIRTH_CACHE_LIMIT)")


def _remove_orphans() -> None:
    """Remove keys of stores that are gone, tokenizers without a key, and files that killed processes left."""
    stores = {path.name for path in _inside(cache_folder() / "stores")}
    tokenizers = set()
    for path in _inside(cache_folder() / "keys"):
        entry = _read_key(path)
        if entry.get("store") in stores:
            tokenizers.add(entry.get("tokenizer"))
        elif _DIGEST.fullmatch(path.name):
            _remove([path])
    _remove(
        path
        for path in _inside(cache_folder() / "tokenizers")
        if _DIGEST.fullmatch(path.name) and path.name not in tokenizers
    )
    _remove(path for name in _FOLDERS for path in _inside(cache_folder() / name) if is_abandoned(path))


def _read_key(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError, RecursionError):
        entry = json.loads(path.read_bytes())
        if isinstance(entry, dict):
            return entry
    return {}


def _inside(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(folder.iterdir())


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.is_file() else 0
    return sum(_size(inner) for inner in _inside(path))


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        remove_path(path)


def remove_path(path: Path) -> None:
    """Remove a file or folder, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
