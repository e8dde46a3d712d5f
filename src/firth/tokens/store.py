"""TokenStore: the ids of a corpus on disk, memory-mapped, with word, sentence and document bounds.

A store is a folder named by the digest of its content:

    ids.bin         uint16 or uint32: all tokens, without special ones
    starts.bin      one byte per token: 1 where a word starts
    sentences.bin   uint64: the offset of each sentence, and the end
    documents.bin   uint64: the first sentence of each document, and the end
    store.json      written last: counts, digests and sizes
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import StoreError
from firth.files import digest_bytes, digest_file
from firth.summaries import Summarised

FORMAT = 2
FILES = ("ids.bin", "starts.bin", "sentences.bin", "documents.bin")


@dataclass(frozen=True, kw_only=True)
class StoreInfo:  # the content of `store.json`
    format: int
    dtype: str
    tokens: int
    words: int
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

    def file_size(self, name: str) -> int:
        ids = self.tokens * np.dtype(self.dtype).itemsize
        sizes = (ids, self.tokens, 8 * (self.sentences + 1), 8 * (self.documents + 1))
        return dict(zip(FILES, sizes, strict=True))[name]


class TokenStore(Summarised):
    """The tokens of a corpus. Opening it reads only a page of JSON, whatever its size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = _read_info(folder)
        self.ids = self._map("ids.bin", self.info.dtype)
        self.word_starts: npt.NDArray[np.bool_] = self._map("starts.bin", "bool")
        self.sentences: npt.NDArray[np.uint64] = self._map("sentences.bin", "uint64")
        self.documents: npt.NDArray[np.uint64] = self._map("documents.bin", "uint64")

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

    def verify(self) -> None:
        """Raises `StoreError` if any byte of any file has changed."""
        for name, digest in self.info.files.items():
            if digest_file(self.folder / name) != digest:
                raise StoreError(f"{self.folder / name} has changed since it was written: remove {self.folder}.")

    def _map(self, name: str, dtype: str) -> npt.NDArray[Any]:
        path = self.folder / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise StoreError(f"{path} is missing: remove {self.folder} and run again.") from None
        expected = self.info.file_size(name)
        if size != expected:
            raise StoreError(f"{path} has {size} bytes, not {expected}: remove {self.folder} and run again.")
        if size == 0:
            return np.zeros(0, dtype=dtype)
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def id_dtype(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type for the ids of a vocabulary of this size."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def _read_info(folder: Path) -> StoreInfo:
    path = folder / "store.json"
    try:
        data = path.read_bytes()
        fields = json.loads(data)
        fields.pop("digest", None)
        info = StoreInfo(**fields)
    except FileNotFoundError:
        raise StoreError(f"{folder} is not a token store (it has no store.json): remove it.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is damaged ({error}): remove {folder} and run again.") from None
    if info.format != FORMAT:
        raise StoreError(f"{path} has format {info.format}, this Firth reads {FORMAT}: remove {folder}.")
    if info.to_json().encode() != data:
        raise StoreError(f"{path} has changed since it was written: remove {folder} and run again.")
    return info
