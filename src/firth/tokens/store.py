"""TokenStore: the ids of a corpus on disk, memory-mapped, with word, sentence and document bounds.

A store is a folder named by the digest of its content:

    ids.bin         uint16 or uint32: all tokens, without special ones
    starts.bin      one byte per token: 1 where a word starts
    sentences.bin   uint64: the offset of each sentence, and the end
    documents.bin   uint64: the first sentence of each document, and the end
    NAME.uint8.bin  a column of that name and type: one value per token; only if a recipe requires it
    store.json      written last: counts, digests and sizes
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import in_order
from firth.errors import StoreError
from firth.files import digest_bytes, digest_file
from firth.memory import drop_page_cache
from firth.summaries import Summarised

FORMAT = 3
FILES = ("ids.bin", "starts.bin", "sentences.bin", "documents.bin")
_INFO = "store.json"
_MAX_INFO_BYTES = 1 << 16
_DTYPES = ("uint16", "uint32")
_COLUMN = re.compile(r"([a-z]{1,40})\.(uint8|uint16|uint32)\.bin")
_COUNTS = ("tokens", "words", "sentences", "documents", "bytes", "unknown")
_BLOCK = 1 << 24  # values compared at a time
_TIMESTAMP_PRECISION = 3_000_000_000  # nanoseconds in which a file may change without a new timestamp, at worst

FileState = tuple[int, int, int, int, int]
_verified: dict[Path, tuple[FileState, ...]] = {}  # the files of the stores that this process has verified


@dataclass(frozen=True, kw_only=True)
class StoreInfo:  # the content of `store.json`
    format: int
    dtype: str
    tokens: int
    words: int  # as `firth check` counts them, whatever the tokenizer
    sentences: int
    documents: int
    bytes: int  # of the sentences in UTF-8
    unknown: int  # tokens
    corpus: str  # digest of the sentences and document bounds, independent of the file format
    tokenizer: str  # digest
    files: dict[str, str]  # SHA-256 of each

    @property
    def digest(self) -> str:
        """SHA-256 of all fields: the name of the store."""
        return digest_bytes(json.dumps(asdict(self), sort_keys=True).encode())

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"digest": self.digest}, indent=2, sort_keys=True) + "\n"

    @property
    def columns(self) -> dict[str, tuple[str, str]]:
        """The name of each column -> its file and its type."""
        found = {name: _COLUMN.fullmatch(name) for name in sorted(self.files) if name not in FILES}
        return {match[1]: (file, match[2]) for file, match in found.items() if match is not None}

    def file_size(self, name: str) -> int:
        if name not in FILES:
            return self.tokens * np.dtype(dict(self.columns.values())[name]).itemsize
        ids = self.tokens * np.dtype(self.dtype).itemsize
        sizes = (ids, self.tokens, 8 * (self.sentences + 1), 8 * (self.documents + 1))
        return dict(zip(FILES, sizes, strict=True))[name]

    def check_types(self) -> None:
        """Raises `ValueError` for a field that no store has."""
        if self.dtype not in _DTYPES:
            raise ValueError(f"the ids are {self.dtype}")
        for name in _COUNTS:
            count = getattr(self, name)
            if type(count) is not int or not 0 <= count < 1 << 48:
                raise ValueError(f"{name} is {count!r:.40}")
        names = set(self.files) if isinstance(self.files, dict) else set()
        if not names >= set(FILES) or len(self.columns) < len(names - set(FILES)):
            raise ValueError("the names of its files are others")


class TokenStore(Summarised):
    """The tokens of a corpus. Opening it reads only a page of JSON, whatever its size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = _read_info(folder)
        self.ids = self._map("ids.bin", self.info.dtype)
        self.word_starts: npt.NDArray[np.bool_] = self._map("starts.bin", "bool")
        self.sentences: npt.NDArray[np.uint64] = self._map("sentences.bin", "uint64")
        self.documents: npt.NDArray[np.uint64] = self._map("documents.bin", "uint64")
        self.columns = {name: self._map(*file) for name, file in self.info.columns.items()}
        """Further facts of each token by name, such as spans of phrases."""

    def summary(self) -> dict[str, Any]:
        """The size of the text, and the folder."""
        counts = {name: getattr(self.info, name) for name in ("tokens", "words", "sentences", "documents", "unknown")}
        return counts | {"folder": self.folder}

    def __len__(self) -> int:
        return self.info.tokens

    @property
    def digest(self) -> str:
        return self.info.digest

    def sentence(self, index: int) -> npt.NDArray[Any]:
        return self.ids[int(self.sentences[index]) : int(self.sentences[index + 1])]

    def document(self, index: int) -> Iterator[npt.NDArray[Any]]:
        return map(self.sentence, range(int(self.documents[index]), int(self.documents[index + 1])))

    def windows(self, begins: npt.NDArray[np.int64], length: int) -> npt.NDArray[Any]:
        """The `length` ids from each offset in `begins`: (windows, length)."""
        return np.asarray(self.ids[begins[:, None] + np.arange(length)])

    def verify(self, vocabulary: int | None = None) -> None:
        """Raises `StoreError` if any byte of any file has changed, or an offset or an id is out of bounds."""
        try:
            digests = list(self._digests())
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be read ({error.strerror}): remove it and run again.") from None
        for name, digest in zip(self._files, digests, strict=True):
            if self.info.files[name] != digest:
                raise self._damaged(name, "has changed since it was written")
        self._check_bounds(self.sentences, len(self), "sentences.bin")
        self._check_bounds(self.documents, self.info.sentences, "documents.bin")
        if vocabulary is not None and _max(self.ids) >= vocabulary:
            raise self._damaged("ids.bin", f"holds ids above {vocabulary - 1}")
        if _max(self.word_starts.view(np.uint8)) > 1:
            raise self._damaged("starts.bin", "holds other bytes than 0 and 1")

    @property
    def _files(self) -> tuple[str, ...]:
        return (*FILES, *(file for file, _ in self.info.columns.values()))

    def _digests(self) -> Iterator[str]:
        paths = [self.folder / name for name in self._files]
        if self.ids.nbytes < _BLOCK:  # done before threads have started
            return map(digest_file, paths)
        return in_order(digest_file, paths)

    def _check_bounds(self, bounds: npt.NDArray[np.uint64], end: int, name: str) -> None:
        """Bounds start at 0, never decrease and end at `end`: kernels follow them without looking."""
        rises = all((block[1:] >= block[:-1]).all() for block in _blocks(bounds))
        if int(bounds[0]) != 0 or int(bounds[-1]) != end or not rises:
            raise self._damaged(name, "holds offsets out of order")

    def _map(self, name: str, dtype: str) -> npt.NDArray[Any]:
        path = self.folder / name
        size, expected = _file_size(path), self.info.file_size(name)
        if size != expected:
            raise self._damaged(name, f"has {size} bytes, not {expected}")
        if size == 0:
            return np.zeros(0, dtype=dtype)
        try:
            return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
        except (OSError, ValueError) as error:
            raise self._damaged(name, f"cannot be read ({error})") from None

    def _damaged(self, name: str, what: str) -> StoreError:
        return StoreError(f"{self.folder / name} {what}: remove {self.folder} and run again.")


def open_verified(folder: Path, vocabulary: int) -> TokenStore:
    """The store in a folder after `TokenStore.verify`; in a process it is done again only when a file has changed.

    `vocabulary` is the number of ids.
    """
    state = _file_states(folder)
    store = TokenStore(folder)
    if store.digest != folder.name:
        raise StoreError(f"{folder} is the store {store.digest}: remove {folder} and run again.")
    if state != _verified.get(folder):
        store.verify(vocabulary)
        if time.time_ns() - max(max(one[3:]) for one in state) > _TIMESTAMP_PRECISION:
            _verified[folder] = state
    return store


def id_dtype(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type for the ids of a vocabulary of this size."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def _file_states(folder: Path) -> tuple[FileState, ...]:
    """What differs after any of the files was written to or replaced."""
    try:
        columns = sorted(path.name for path in folder.glob("*.bin") if path.name not in FILES)
        found = [os.stat(folder / name) for name in (*FILES, *columns, _INFO)]
    except OSError as error:
        raise StoreError(f"{folder} is not a complete token store ({error.strerror}): remove it.") from None
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)


def _file_size(path: Path) -> int:
    """The size of a regular file; a pipe would be waited for without end."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise StoreError(f"{path} is missing: remove {path.parent} and run again.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}): remove {path.parent} and run again.") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a regular file: remove {path.parent} and run again.")
    return found.st_size


def _read_info(folder: Path) -> StoreInfo:
    path = folder / _INFO
    if _file_size(path) > _MAX_INFO_BYTES:
        raise StoreError(f"{path} is too long for a store.json: remove {folder} and run again.")
    try:
        data = path.read_bytes()
        fields = json.loads(data)
        fields.pop("digest", None)
        info = StoreInfo(**fields)
        if info.format != FORMAT:
            raise StoreError(f"{path} has format {info.format!r:.20}, this Firth reads {FORMAT}: remove {folder}.")
        info.check_types()
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error!s:.200}): remove {folder} and run again.") from None
    if info.to_json().encode() != data:
        raise StoreError(f"{path} has changed since it was written: remove {folder} and run again.")
    return info


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """An array in blocks that overlap by a value; the pages of each are unloaded after it."""
    for begin in range(0, max(array.size, 1), _BLOCK):
        yield array[begin : begin + _BLOCK + 1]
        drop_page_cache(array)


def _max(array: npt.NDArray[Any]) -> int:
    return max((int(block.max()) for block in _blocks(array) if block.size), default=0)
