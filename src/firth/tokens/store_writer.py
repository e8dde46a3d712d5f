"""StoreWriter: the files of a TokenStore, written block after block."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.tokens.encoder import Encoded
from firth.tokens.lines import keep_opens
from firth.tokens.store import FILES, FORMAT, StoreFacts, id_type
from firth.tokens.tokenizer import UNK, Tokenizer

_AHEAD = 4  # arrays that may wait to be written to a file


class StoreWriter:
    """Writes the four files of a store; sentences without a token (of control characters, say) are left out."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self.dtype = np.dtype(id_type(len(tokenizer)))
        self._tokenizer = tokenizer
        self._open = ExitStack()
        self._files = [_File(folder / name, self._open) for name in FILES]
        self._tokens = self._sentences = self._documents = self._words = self._unknown = 0
        self._parted = False

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, encoded: Encoded, opens: npt.NDArray[np.bool_]) -> None:
        """Writes the tokens of the next sentences, of which `opens` tells the first ones of documents."""
        ids, starts, sentences, documents = self._files
        ids.write(encoded.ids)
        starts.write(encoded.starts)
        kept = encoded.lengths > 0
        if opens.size:
            opens[0] |= self._parted
            opens, self._parted = keep_opens(opens, False, kept)
        ends = np.cumsum(encoded.lengths[kept])
        sentences.write((self._tokens + ends - encoded.lengths[kept]).astype(np.uint64))
        begins = np.flatnonzero(opens)
        documents.write((self._sentences + begins).astype(np.uint64))
        self._tokens += encoded.ids.size
        self._sentences += ends.size
        self._documents += begins.size
        self._words += int(np.count_nonzero(encoded.starts))
        self._unknown += int(np.count_nonzero(encoded.ids == UNK))

    def finish(self, corpus: str, size: int) -> StoreFacts:
        """Closes the files; `corpus` and `size` are the digest and the bytes of the text."""
        for file, end in zip(self._files[2:], (self._tokens, self._sentences), strict=True):
            file.write(np.array([end], dtype=np.uint64))
        digests = {name: file.finish() for name, file in zip(FILES, self._files, strict=True)}
        self._open.close()
        return StoreFacts(
            format=FORMAT,
            dtype=self.dtype.name,
            tokens=self._tokens,
            words=self._words,
            sentences=self._sentences,
            documents=self._documents,
            bytes=size,
            unknown=self._unknown,
            corpus=corpus,
            tokenizer=self._tokenizer.digest,
            files=digests,
        )


class _File:
    """A file being written by a thread of its own, with its digest."""

    def __init__(self, path: Path, things: ExitStack) -> None:
        self._file = things.enter_context(open(path, "wb"))  # noqa: SIM115 (closed with the others)
        self._digest = hashlib.sha256()
        self._thread = things.enter_context(ThreadPoolExecutor(1))
        self._pending: deque[Future[None]] = deque()

    def write(self, array: npt.NDArray[Any]) -> None:
        """Takes an array to write; it must not change any more."""
        self._pending.append(self._thread.submit(self._write, array.data))
        while len(self._pending) > _AHEAD:
            self._pending.popleft().result()

    def finish(self) -> str:
        """Waits until all is written; returns the digest."""
        while self._pending:
            self._pending.popleft().result()
        return self._digest.hexdigest()

    def _write(self, data: memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
