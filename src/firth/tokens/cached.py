"""Tokenizers and token stores in the cache: found by keys, checked before they are used, made again if damaged.

A key is a file named by the digest of everything that determines the tokens: the text, how it is read, the tokenizer or
its recipe. It holds the digests of the store and, if it was trained on this text, of the tokenizer, and a digest of all
this and its own name, so that no changed, exchanged or renamed file gives other tokens.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firth.cache import remove_path
from firth.errors import FirthError, StoreError
from firth.files import cache_folder, digest_bytes, write_file
from firth.progress import note
from firth.tokens.columns import Column
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import FORMAT, TokenStore, open_verified
from firth.tokens.tokenizer import Tokenizer

_KEY_FORMAT = "2"
_MAX_KEY_BYTES = 1 << 12
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")


class CachedDigests(NamedTuple):
    """What a key points to."""

    store: str
    tokenizer: str  # of tokenizer.json; empty where the tokenizer was given

    def seal(self, name: str) -> str:
        return digest_bytes(f"{name} {self.store} {self.tokenizer}".encode())


def stores_folder() -> Path:
    return cache_folder() / "stores"


def key_file(*facts: str) -> Path:
    return cache_folder() / "keys" / digest_bytes(" ".join((_KEY_FORMAT, *facts)).encode())


def store_key(corpus: str, tokenizer: Tokenizer, columns: Sequence[Column] = ()) -> Path:
    """The file that points to the store of a corpus, given by its key, under a tokenizer, with columns."""
    return key_file(corpus, tokenizer.digest, str(FORMAT), *(column.key for column in columns))


def find_store(key: Path, tokenizer: Tokenizer) -> TokenStore | None:
    """The intact store that a key points to, if there is one."""
    digests = _read_key(key)
    return None if digests is None else _open(digests.store, len(tokenizer), tokenizer.digest)


def find_tokens(key: Path, recipe: TokenizerRecipe) -> tuple[Tokenizer, TokenStore] | None:
    """The intact tokenizer and store that a key points to, if the dictionary has not changed."""
    digests = _read_key(key)
    data = _read_tokenizer(digests.tokenizer) if digests and digests.tokenizer else None
    if digests is None or data is None:
        return None
    try:
        tokenizer = Tokenizer(data, recipe, recipe.dictionary_path)
        store = _open(digests.store, len(tokenizer), tokenizer.digest)
    except (FirthError, OSError):  # of the dictionary, which training will report
        return None
    return None if store is None else (tokenizer, store)


def save_key(key: Path, store: TokenStore, tokenizer: Tokenizer | None = None) -> None:
    """Let a key point to a store, and to the tokenizer that was trained on the same text."""
    digests = CachedDigests(store.digest, "" if tokenizer is None else digest_bytes(tokenizer.data))
    if tokenizer is not None:
        write_file(_tokenizer_file(digests.tokenizer), tokenizer.data)
    entry = digests._asdict() | {"digest": digests.seal(key.name)}
    write_file(key, json.dumps(entry).encode())


def _open(digest: str, vocabulary: int, tokenizer: str) -> TokenStore | None:
    """The verified store; None if it was removed, or if another dictionary made it."""
    folder = stores_folder() / digest
    if not folder.is_dir():
        return None
    try:
        store = open_verified(folder, vocabulary)
    except StoreError as error:
        _discard(folder, str(error).partition(": ")[0])
        return None
    if store.info.tokenizer != tokenizer:
        return None
    with suppress(OSError):
        os.utime(folder)  # the least recently used stores are removed first
    return store


def _read_key(key: Path) -> CachedDigests | None:
    if not key.is_file():
        return None
    try:
        with open(key, "rb") as file:
            entry = json.loads(file.read(_MAX_KEY_BYTES))
        digests = CachedDigests(entry["store"], entry["tokenizer"])
        intact = entry["digest"] == digests.seal(key.name) and all(map(_DIGEST.fullmatch, digests))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        intact = False
    if not intact:
        _discard(key)
    return digests if intact else None


def _tokenizer_file(digest: str) -> Path:
    return cache_folder() / "tokenizers" / digest


def _read_tokenizer(digest: str) -> bytes | None:
    path = _tokenizer_file(digest)
    if not path.is_file():
        return None
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    if digest_bytes(data) == digest:
        return data
    _discard(path)
    return None


def _discard(path: Path, what: str = "") -> None:
    """Remove what is damaged, with a note."""
    note(f"the cache is damaged: {what or f'{path} has changed since it was written'}; it is made again")
    remove_path(path)
