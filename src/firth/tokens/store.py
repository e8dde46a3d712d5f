"""TokenStore: the ids of a corpus on disk, memory-mapped, with word, sentence and document bounds.

A store is a folder named by the digest of what it holds:

    ids.bin         uint16 or uint32, all tokens in a row, without special ones
    starts.bin      one byte a token: 1 where a word begins
    sentences.bin   uint64: where each sentence begins, and the end
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

FORMAT = 2
FILES = ("ids.bin", "starts.bin", "sentences.bin", "documents.bin")


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """What `store.json` says."""

    format: int
    dtype: str
    tokens: int
    words: int
    sentences: int
    documents: int
    bytes: int
    """UTF-8 bytes of the sentences."""
    unknown: int
    """Tokens that are the unknown one."""
    corpus: str
    """Digest of the sentences and their documents, whatever file format they came from."""
    tokenizer: str
    """Digest of the tokenizer."""
    files: dict[str, str]
    """File -> SHA-256."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything else here: the name of the store."""
        return digest_bytes(json.dumps(asdict(self), sort_keys=True).encode())

    def to_json(self) -> str:
        """The text of `store.json`."""
        return json.dumps(asdict(self) | {"digest": self.digest}, indent=2, sort_keys=True) + "\n"

    def size(self, name: str) -> int:
        """The bytes that a file must have."""
        width = np.dtype(self.dtype).itemsize
        return {
            "ids.bin": self.tokens * width,
            "starts.bin": self.tokens,
            "sentences.bin": 8 * (self.sentences + 1),
            "documents.bin": 8 * (self.documents + 1),
        }[name]


class TokenStore:
    """The tokens of a corpus. Opening it reads nothing but a page of JSON, whatever its size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = _read_facts(folder)
        self.ids = self._map("ids.bin", self.facts.dtype)
        self.starts: npt.NDArray[np.bool_] = self._map("starts.bin", "bool")
        self.sentences: npt.NDArray[np.uint64] = self._map("sentences.bin", "uint64")
        self.documents: npt.NDArray[np.uint64] = self._map("documents.bin", "uint64")

    def __len__(self) -> int:
        return self.facts.tokens

    @property
    def digest(self) -> str:
        """SHA-256 of all that the store holds."""
        return self.facts.digest

    def sentence(self, index: int) -> npt.NDArray[Any]:
        """The ids of one sentence."""
        return self.ids[int(self.sentences[index]) : int(self.sentences[index + 1])]

    def document(self, index: int) -> Iterator[npt.NDArray[Any]]:
        """The ids of each sentence of one document."""
        return map(self.sentence, range(int(self.documents[index]), int(self.documents[index + 1])))

    def rows(self, begins: npt.NDArray[np.int64], length: int) -> npt.NDArray[Any]:
        """`length` ids from each of the places in `begins`: a batch."""
        return np.asarray(self.ids[begins[:, None] + np.arange(length)])

    def verify(self) -> None:
        """Raises `StoreError` if any byte of any file has changed."""
        for name, digest in self.facts.files.items():
            if digest_file(self.folder / name) != digest:
                raise StoreError(f"{self.folder / name} has changed since it was written: remove {self.folder}.")

    def _map(self, name: str, dtype: str) -> npt.NDArray[Any]:
        path = self.folder / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise StoreError(f"{path} is missing: remove {self.folder} and run again.") from None
        if size != self.facts.size(name):
            expected = self.facts.size(name)
            raise StoreError(f"{path} has {size} bytes, not {expected}: remove {self.folder} and run again.")
        if size == 0:
            return np.zeros(0, dtype=dtype)
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def id_type(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest type of the ids of a vocabulary of this size."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def _read_facts(folder: Path) -> StoreFacts:
    path = folder / "store.json"
    try:
        data = path.read_bytes()
        fields = json.loads(data)
        fields.pop("digest", None)
        facts = StoreFacts(**fields)
    except FileNotFoundError:
        raise StoreError(f"{folder} is not a token store (it has no store.json): remove it.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is damaged ({error}): remove {folder} and run again.") from None
    if facts.format != FORMAT:
        raise StoreError(f"{path} has format {facts.format}, this Firth reads {FORMAT}: remove {folder}.")
    if facts.to_json().encode() != data:
        raise StoreError(f"{path} has changed since it was written: remove {folder} and run again.")
    return facts
