"""Building a TokenStore, or finding the one that was built before."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from firth.errors import CorpusError, StoreError
from firth.files import cache_folder, digest_bytes, draft_folder, sync, sync_all, write_file, writing
from firth.progress import progress
from firth.text.corpus import Corpus
from firth.tokens.jobs import Reply, Setup, id_type
from firth.tokens.store import FILES, FORMAT, StoreFacts, TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.workers import run_job, told


def open_store(corpus: Corpus, tokenizer: Tokenizer, threads: int | None = None) -> TokenStore:
    """The store of `corpus` under `tokenizer`: found by content if it was built before, built otherwise.

    Stores lie in the cache folder (`$FIRTH_CACHE`), named by what they hold. A key made from the corpus files and the
    tokenizer leads to them, so the same text in another encoding shares one store.
    """
    cache = cache_folder()
    key = cache / "keys" / digest_bytes(f"{corpus.key()} {tokenizer.digest} {FORMAT}".encode())
    found = _find(key, cache)
    if found is not None:
        return found
    store = build_store(corpus, tokenizer, cache / "stores", threads)
    write_file(key, store.facts.digest.encode())
    return store


def build_store(corpus: Corpus, tokenizer: Tokenizer, parent: Path, threads: int | None = None) -> TokenStore:
    """Encodes the corpus into a new store in `parent`, in a folder named by its digest."""
    dictionary = str(tokenizer.dictionary) if tokenizer.dictionary else None
    setup = Setup("encode", tokenizer.recipe, corpus.layout, tokenizer.data, dictionary)
    with writing(parent), draft_folder(parent) as draft:
        with progress("encoding", corpus.size()) as advance:
            replies = run_job(setup, told(corpus.blocks(), advance), threads)
            facts = _write(draft, replies, tokenizer)
        if facts.sentences == 0:
            raise CorpusError("no sentence of the corpus holds a token: check the text with firth check.")
        (draft / "store.json").write_text(facts.to_json())
        sync_all(draft)
        return _settle(draft, parent / facts.digest)


def _find(key: Path, cache: Path) -> TokenStore | None:
    """The store that `key` leads to, if it is there and whole."""
    try:
        folder = cache / "stores" / key.read_text()
        return TokenStore(folder) if folder.is_dir() else None
    except (FileNotFoundError, StoreError, ValueError):
        return None


def _settle(draft: Path, target: Path) -> TokenStore:
    """Gives the finished draft its name, unless another process was first: then that store is the same."""
    try:
        os.rename(draft, target)
        sync(target.parent)
    except OSError:
        try:
            store = TokenStore(target)
            store.verify()
            return store
        except StoreError:  # what stood there was damaged
            shutil.rmtree(target, ignore_errors=True)
            os.rename(draft, target)
    return TokenStore(target)


def _write(folder: Path, replies: Iterable[Reply], tokenizer: Tokenizer) -> StoreFacts:
    """Writes the four files from the replies to all blocks, in order."""
    corpus = hashlib.sha256()
    totals = {"bytes": 0, "unknown": 0, "words": 0}
    with ExitStack() as files:
        writers = [_Writer(files.enter_context(open(folder / name, "wb"))) for name in FILES]
        for reply in replies:
            corpus.update(reply.facts["digest"].encode())
            for name in totals:
                totals[name] += reply.facts[name]
            _write_block(writers, reply.arrays)
        ids, _, sentences, documents = writers
        for writer in (sentences, documents):
            writer.write(np.array([writer.total], dtype=np.uint64))  # the end of the last one
    dtype = np.dtype(id_type(len(tokenizer)))
    return StoreFacts(
        format=FORMAT,
        dtype=dtype.name,
        tokens=ids.size // dtype.itemsize,
        sentences=sentences.size // 8 - 1,
        documents=documents.size // 8 - 1,
        corpus=corpus.hexdigest(),
        tokenizer=tokenizer.digest,
        files={name: writer.digest.hexdigest() for name, writer in zip(FILES, writers, strict=True)},
        **totals,
    )


def _write_block(writers: Sequence[_Writer], arrays: Sequence[bytes]) -> None:
    ids, starts, sentences, documents = writers
    ids.file_bytes(arrays[0])
    starts.file_bytes(arrays[1])
    lengths = np.frombuffer(arrays[2], dtype=np.uint32)
    sentences.write_begins(lengths)
    counts = np.frombuffer(arrays[3], dtype=np.uint32)
    continues = np.frombuffer(arrays[4], dtype=np.bool_)
    begins = ~continues
    if documents.size == 0:
        begins[0] = True
    documents.write_begins(counts, keep=begins & (counts > 0))


class _Writer:
    """A file being written, with its digest; for bounds also the running total."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.total = 0

    def file_bytes(self, data: bytes) -> None:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def write(self, array: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
        self.file_bytes(array.tobytes())

    def write_begins(
        self,
        lengths: np.ndarray[tuple[int], np.dtype[np.uint32]],
        keep: np.ndarray[tuple[int], np.dtype[np.bool_]] | slice = slice(None),
    ) -> None:
        """Writes where each of the next things begins, if it is to be kept, and adds up their lengths."""
        ends = self.total + np.cumsum(lengths, dtype=np.uint64)
        begins = np.concatenate([np.array([self.total], dtype=np.uint64), ends[:-1]]) if ends.size else ends
        self.write(begins[keep])
        self.total = int(ends[-1]) if ends.size else self.total
