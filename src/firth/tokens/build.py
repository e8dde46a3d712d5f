"""Building a TokenStore, or finding one in the cache that was built before."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import firth.text
import firth.tokens
from firth.cache import cache_limit, trim_cache
from firth.cores import in_order
from firth.errors import CorpusError, StoreError
from firth.files import cache_folder, draft_folder, sync, sync_all, writing
from firth.progress import progress
from firth.text.corpus import BLOCK, Corpus
from firth.text.layout import TextBlock
from firth.text.segment import make_segmenter
from firth.tokens.cached import find_store, find_tokens, key_file, save_key, store_key, stores_folder
from firth.tokens.capitals import chunk_capitals
from firth.tokens.columns import CapitalColumn, Column, reads_capitals, with_needed, write_columns
from firth.tokens.encoder import NO_TOKENS, ChunkTokens, EncodedSentences, TextEncoder
from firth.tokens.lines import carry_document_starts
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import FILES, FORMAT, StoreInfo, TokenStore, id_dtype
from firth.tokens.tokenizer import UNK, Tokenizer
from firth.tokens.train import ChunkCounter, TextStats, chunk_corpus, resolve_recipe, train_from_chunks
from firth.tokens.workers import JobConfig, run_job, with_progress

_LIBRARIES = ("tokenizers", "rjieba", "jieba", "numpy", "numba")
_MAX_BUFFER_BYTES = 1 << 24
_MAX_ATTEMPTS = 5
_MAX_PENDING = 4  # arrays waiting to be written to a file

EncodedBlock = tuple[EncodedSentences, npt.NDArray[np.bool_]]  # and which of its sentences start documents


def open_store(
    corpus: Corpus, tokenizer: Tokenizer, threads: int | None = None, columns: Sequence[Column] = ()
) -> TokenStore:
    """The store of `corpus` under `tokenizer`: found in the cache, where stores are named by content, or built."""
    columns = with_needed(columns)
    key = store_key(corpus.key(), tokenizer, columns)
    store = find_store(key, tokenizer)
    if store is None:
        store = build_store(corpus, tokenizer, stores_folder(), threads, columns)
        _keep(key, store)
    return store


def open_tokens(
    recipe: TokenizerRecipe, corpus: Corpus, threads: int | None = None, columns: Sequence[Column] = ()
) -> tuple[Tokenizer, TokenStore]:
    """A tokenizer trained on `corpus` and the store of the corpus, as `train_tokenizer` and `open_store` return them.

    The text is read and split into chunks once for both, or both are found in the cache.

    >>> from firth.text.corpus import read_corpus
    >>> tokenizer, store = open_tokens(TokenizerRecipe(model="words"), read_corpus([["the cat sat", "the dog ran"]]))
    >>> [tokenizer.decode(store.sentence(index).tolist()) for index in range(2)]
    ['the cat sat', 'the dog ran']
    """
    recipe = resolve_recipe(recipe, corpus)
    corpus_key, columns = corpus.key(), with_needed(columns)
    # Results are reused only by the very code and libraries that made them.
    cached = key_file(corpus_key, str(recipe), _code_digest(), *(column.key for column in columns))
    found = find_tokens(cached, recipe)
    if found is not None:
        return found
    with SpillBuffer() as chunk_numbers:
        stats, counter, document_starts = TextStats(), ChunkCounter(recipe), []
        for message in chunk_corpus(corpus, recipe, recipe.dictionary_path, threads):
            document_starts.append(stats.add(message))
            chunk_numbers.append(counter.add(message))
        segmenter = make_segmenter(recipe.segmenter, recipe.dictionary_path)
        tokenizer = train_from_chunks(recipe, counter.counts(segmenter))
        key = store_key(corpus_key, tokenizer, columns)
        store = find_store(key, tokenizer)
        if store is None:
            tokens = _encode_chunks(counter, tokenizer, threads)
            if reads_capitals(columns):
                tokens = tokens._replace(capitals=chunk_capitals(tokenizer, counter.texts, np.diff(tokens.bounds)))
            blocks = zip(chunk_numbers, map(len, document_starts), strict=True)
            encoded = in_order(lambda block: tokens.emit(*block), blocks, threads)
            store = _write(stores_folder(), tokenizer, stats, zip(encoded, document_starts, strict=True), columns)
            _keep(key, store)
    save_key(cached, store, tokenizer)
    return tokenizer, store


def build_store(
    corpus: Corpus, tokenizer: Tokenizer, parent: Path, threads: int | None = None, columns: Sequence[Column] = ()
) -> TokenStore:
    """Encode the corpus into a new store in `parent`, in a folder named by its digest."""
    stats = TextStats()
    return _write(parent, tokenizer, stats, _encode(corpus, tokenizer, stats, threads, columns), columns)


def _encode(
    corpus: Corpus, tokenizer: Tokenizer, stats: TextStats, threads: int | None, columns: Sequence[Column]
) -> Iterator[EncodedBlock]:
    config = JobConfig.of("encode", tokenizer, corpus.layout)._replace(capitals=reads_capitals(columns))
    dtypes = (id_dtype(len(tokenizer)), np.bool_, np.int64, *([np.uint8] if config.capitals else []))
    with progress("encoding", corpus.size()) as advance:
        for message in run_job(config, with_progress(corpus.blocks(), advance), threads):
            yield EncodedSentences(*_as_arrays(message.arrays[2:], *dtypes)), stats.add(message)


def _encode_chunks(counter: ChunkCounter, tokenizer: Tokenizer, threads: int | None) -> ChunkTokens:
    if tokenizer.recipe.model == "words":  # finished before workers have started
        parts = [TextEncoder(tokenizer).encode_chunks(counter.texts)]
    else:
        messages = run_job(JobConfig.of("chunks", tokenizer), map(TextBlock, counter.blocks(BLOCK)), threads)
        parts = [_as_arrays(message.arrays, np.int64, np.uint32, np.bool_) for message in messages]
    lengths, ids, word_starts = map(np.concatenate, zip(*parts, strict=True))
    return NO_TOKENS.append(lengths, ids.astype(id_dtype(len(tokenizer))), word_starts)


def _as_arrays(arrays: Sequence[Any], *dtypes: Any) -> tuple[Any, ...]:
    return tuple(np.frombuffer(array, dtype=dtype) for array, dtype in zip(arrays, dtypes, strict=True))


def _write(
    parent: Path,
    tokenizer: Tokenizer,
    stats: TextStats,
    blocks: Iterable[EncodedBlock],
    columns: Sequence[Column] = (),
) -> TokenStore:
    """Write a new store; `stats` is complete after the last block."""
    cache_limit()  # a wrong setting is reported before the work
    with writing(parent), draft_folder(parent) as draft:
        with StoreWriter(draft, tokenizer, reads_capitals(columns)) as writer:
            for encoded, starts_document in blocks:
                writer.add(encoded, starts_document)
            info = writer.finish(stats.digest, stats.bytes, stats.words)
        if info.sentences == 0:
            raise CorpusError("no sentence of the corpus holds a token: check the text with firth check.")
        info = write_columns(draft, info, tokenizer, columns)
        (draft / "store.json").write_text(info.to_json())
        sync_all(draft)
        return _publish(draft, parent / info.digest)


def _publish(draft: Path, target: Path) -> TokenStore:
    """Rename the finished draft, unless another process has written the same store meanwhile."""
    for _ in range(_MAX_ATTEMPTS):  # others may remove the store or write it at the same time
        try:
            os.rename(draft, target)
            sync(target.parent)
            break
        except OSError:
            try:
                store = TokenStore(target)
                store.verify()
                return store
            except StoreError:  # the existing store is damaged
                shutil.rmtree(target, ignore_errors=True)
    else:
        os.rename(draft, target)
    return TokenStore(target)


def _keep(key: Path, store: TokenStore) -> None:
    """Let a key point to a new store, for which old ones may have to go."""
    save_key(key, store)
    trim_cache(keep=store.folder)


@cache
def _code_digest() -> str:
    digest = hashlib.sha256()
    for package in (firth.text, firth.tokens):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(path.read_bytes())
    digest.update(" ".join(map(version, _LIBRARIES)).encode())
    return digest.hexdigest()


class SpillBuffer:
    """A sequence of int32 arrays, in memory up to a limit, then in a temporary file; written once, then iterated.

    >>> with SpillBuffer() as buffer:
    ...     buffer.append(np.array([3, 1, -1], dtype=np.int32))
    ...     [array.tolist() for array in buffer]
    [[3, 1, -1]]
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._file = tempfile.SpooledTemporaryFile(_MAX_BUFFER_BYTES, dir=str(cache_folder()))  # noqa: SIM115

    def __enter__(self) -> SpillBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def append(self, array: npt.NDArray[np.int32]) -> None:
        folder = cache_folder()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._file.write(array.data)
        self._sizes.append(array.size)

    def __iter__(self) -> Iterator[npt.NDArray[np.int32]]:
        self._file.seek(0)
        for size in self._sizes:
            array = np.empty(size, dtype=np.int32)
            self._file.readinto(array.data)
            yield array


class StoreWriter:
    """Writes the files of a store; sentences without tokens (of control characters, say) are dropped."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, capitals: bool = False) -> None:
        """`capitals`: with the column of capital letters, which only the text tells."""
        self.dtype = np.dtype(id_dtype(len(tokenizer)))
        self._tokenizer = tokenizer
        self._open = ExitStack()
        self._names = (*FILES, *([CapitalColumn().file] if capitals else []))
        self._files = [_DigestedFile(folder / name, self._open) for name in self._names]
        self._tokens = self._sentences = self._documents = self._unknown = 0
        self._at_document_end = False

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, encoded: EncodedSentences, starts_document: npt.NDArray[np.bool_]) -> None:
        ids, word_starts, sentences, documents, *columns = self._files
        for column in columns:
            column.write(encoded.capitals)
        ids.write(encoded.ids)
        word_starts.write(encoded.word_starts)
        kept = encoded.lengths > 0
        if starts_document.size:
            starts_document[0] |= self._at_document_end
            starts_document, self._at_document_end = carry_document_starts(starts_document, False, kept)
        ends = np.cumsum(encoded.lengths[kept])
        sentences.write((self._tokens + ends - encoded.lengths[kept]).astype(np.uint64))
        begins = np.flatnonzero(starts_document)
        documents.write((self._sentences + begins).astype(np.uint64))
        self._tokens += encoded.ids.size
        self._sentences += ends.size
        self._documents += begins.size
        self._unknown += int(np.count_nonzero(encoded.ids == UNK))

    def finish(self, corpus: str, size: int, words: int) -> StoreInfo:
        """Close the files; `corpus`, `size` and `words` are the digest of the text, its bytes and its words."""
        for file, end in zip(self._files[2:4], (self._tokens, self._sentences), strict=True):
            file.write(np.array([end], dtype=np.uint64))
        digests = {name: file.finish() for name, file in zip(self._names, self._files, strict=True)}
        self._open.close()
        return StoreInfo(
            format=FORMAT,
            dtype=self.dtype.name,
            tokens=self._tokens,
            words=words,
            sentences=self._sentences,
            documents=self._documents,
            bytes=size,
            unknown=self._unknown,
            corpus=corpus,
            tokenizer=self._tokenizer.digest,
            files=digests,
        )


class _DigestedFile:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = stack.enter_context(open(path, "wb"))  # noqa: SIM115 (closed with the others)
        self._digest = hashlib.sha256()
        self._thread = stack.enter_context(ThreadPoolExecutor(1))
        self._pending: deque[Future[None]] = deque()

    def write(self, array: npt.NDArray[Any]) -> None:
        """Queue an array for writing; it must not change afterwards."""
        self._pending.append(self._thread.submit(self._write, array.data))
        while len(self._pending) > _MAX_PENDING:
            self._pending.popleft().result()

    def finish(self) -> str:
        while self._pending:
            self._pending.popleft().result()
        return self._digest.hexdigest()

    def _write(self, data: memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
