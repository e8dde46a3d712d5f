"""Building a TokenStore, or finding the one that was built before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import in_order
from firth.errors import CorpusError, StoreError
from firth.files import cache_folder, digest_bytes, draft_folder, sync, sync_all, write_file, writing
from firth.progress import progress
from firth.text.corpus import BLOCK, Corpus
from firth.text.layout import Block
from firth.text.segment import make_segmenter
from firth.tokens.counting import Numbering, TextFacts, cut_corpus
from firth.tokens.encoder import NO_TOKENS, ChunkTokens, Encoded, Encoder
from firth.tokens.jobs import Setup
from firth.tokens.recall import Recall
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.spool import Spool
from firth.tokens.store import FORMAT, TokenStore, id_type
from firth.tokens.store_writer import StoreWriter
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import dictionary_of, learn_tokenizer, settle_recipe
from firth.tokens.workers import run_job, told

Sentences = Iterable[tuple[Encoded, npt.NDArray[np.bool_]]]
"""The tokens of each block, and which of its sentences begin documents."""


def open_store(corpus: Corpus, tokenizer: Tokenizer, threads: int | None = None) -> TokenStore:
    """The store of `corpus` under `tokenizer`: found by content if it was built before, built otherwise.

    Stores lie in the cache folder (`$FIRTH_CACHE`), named by what they hold. A key made from the corpus files and the
    tokenizer leads to them, so the same text in another encoding shares one store.
    """
    key = _key(corpus.key(), tokenizer)
    found = _find(key)
    if found is not None:
        return found
    store = build_store(corpus, tokenizer, _stores(), threads)
    write_file(key, store.digest.encode())
    return store


def open_tokens(recipe: TokenizerRecipe, corpus: Corpus, threads: int | None = None) -> tuple[Tokenizer, TokenStore]:
    """A tokenizer trained on `corpus` and the store of that corpus: as `train_tokenizer` and `open_store` give them.

    The text is read and cut once for both. If that was done before, both are found in the cache.

    >>> from firth.text.corpus import read_corpus
    >>> tokenizer, store = open_tokens(TokenizerRecipe(model="words"), read_corpus([["the cat sat", "the dog ran"]]))
    >>> [tokenizer.decode(store.sentence(index).tolist()) for index in range(2)]
    ['the cat sat', 'the dog ran']
    """
    recipe = settle_recipe(recipe, corpus)
    corpus_key = corpus.key()
    recall = Recall(cache_folder(), corpus_key, recipe)
    found = recall.find()
    if found is not None:
        return found
    with Spool() as spool:
        text, numbering, opens = TextFacts(), Numbering(recipe), []
        for reply in cut_corpus(corpus, recipe, dictionary_of(recipe), threads):
            opens.append(text.add(reply))
            spool.append(numbering.add(reply))
        tokenizer = learn_tokenizer(recipe, numbering.counts(make_segmenter(recipe.segmenter, dictionary_of(recipe))))
        key = _key(corpus_key, tokenizer)
        store = _find(key)
        if store is None:
            tokens = _encode_chunks(numbering, tokenizer, threads)
            blocks = zip(spool, map(len, opens), strict=True)
            encoded = in_order(lambda block: tokens.emit(*block), blocks, threads)
            store = _write(_stores(), tokenizer, text, zip(encoded, opens, strict=True))
            write_file(key, store.digest.encode())
    recall.keep(tokenizer, store)
    return tokenizer, store


def build_store(corpus: Corpus, tokenizer: Tokenizer, parent: Path, threads: int | None = None) -> TokenStore:
    """Encodes the corpus into a new store in `parent`, in a folder named by its digest."""
    text = TextFacts()
    return _write(parent, tokenizer, text, _encode(corpus, tokenizer, text, threads))


def _encode(
    corpus: Corpus, tokenizer: Tokenizer, text: TextFacts, threads: int | None
) -> Iterator[tuple[Encoded, npt.NDArray[np.bool_]]]:
    setup = Setup.of("encode", tokenizer, corpus.layout)
    dtype = id_type(len(tokenizer))
    with progress("encoding", corpus.size()) as advance:
        for reply in run_job(setup, told(corpus.blocks(), advance), threads):
            yield Encoded(*_arrays(reply.arrays[2:], dtype, np.bool_, np.int64)), text.add(reply)


def _encode_chunks(numbering: Numbering, tokenizer: Tokenizer, threads: int | None) -> ChunkTokens:
    """The tokens of all distinct chunks of a corpus."""
    if tokenizer.recipe.model == "words":  # that is done before workers have started
        parts = [Encoder(tokenizer).encode_chunks(numbering.texts)]
    else:
        replies = run_job(Setup.of("chunks", tokenizer), map(Block, numbering.blocks(BLOCK)), threads)
        parts = [_arrays(reply.arrays, np.int64, np.uint32, np.bool_) for reply in replies]
    lengths, ids, starts = map(np.concatenate, zip(*parts, strict=True))
    return NO_TOKENS.and_then(lengths, ids.astype(id_type(len(tokenizer))), starts)


def _arrays(arrays: Sequence[Any], *dtypes: Any) -> tuple[Any, ...]:
    """Arrays of these types, though they may have come as bytes."""
    return tuple(np.frombuffer(array, dtype=dtype) for array, dtype in zip(arrays, dtypes, strict=True))


def _write(parent: Path, tokenizer: Tokenizer, text: TextFacts, sentences: Sentences) -> TokenStore:
    """Writes a new store; `text` is complete when the last sentences are."""
    with writing(parent), draft_folder(parent) as draft:
        with StoreWriter(draft, tokenizer) as writer:
            for encoded, opens in sentences:
                writer.add(encoded, opens)
            facts = writer.finish(text.digest, text.bytes)
        if facts.sentences == 0:
            raise CorpusError("no sentence of the corpus holds a token: check the text with firth check.")
        (draft / "store.json").write_text(facts.to_json())
        sync_all(draft)
        return _settle(draft, parent / facts.digest)


def _stores() -> Path:
    return cache_folder() / "stores"


def _key(corpus: str, tokenizer: Tokenizer) -> Path:
    """The file that leads to the store of a corpus, given by its key, under a tokenizer."""
    return cache_folder() / "keys" / digest_bytes(f"{corpus} {tokenizer.digest} {FORMAT}".encode())


def _find(key: Path) -> TokenStore | None:
    """The store that `key` leads to, if it is there and whole."""
    try:
        folder = _stores() / key.read_text()
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
