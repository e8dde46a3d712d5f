"""Tokenizers and stores that were made of the same corpus by the same recipe before, found again in the cache.

What was learnt is only used again by the very code that learnt it: the key that leads to it is made from the corpus,
the recipe, the source of the packages that read and learn, and the versions of the libraries they use.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path

import firth.text
import firth.tokens
from firth.errors import FirthError
from firth.files import digest_bytes, write_file
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

_LIBRARIES = ("tokenizers", "rjieba", "jieba", "numpy", "numba")


class Recall:
    """Where the cache keeps what a recipe made of a corpus."""

    def __init__(self, folder: Path, corpus: str, recipe: TokenizerRecipe) -> None:
        """`folder` is the cache, `corpus` the key of the corpus."""
        self._folder = folder
        self._recipe = recipe
        self._dictionary = Path(recipe.dictionary) if recipe.dictionary else None
        self._key = folder / "keys" / digest_bytes(f"{corpus} {recipe} {_code()}".encode())

    def find(self) -> tuple[Tokenizer, TokenStore] | None:
        """The tokenizer and the store, if both are there and whole, and the dictionary is as it was."""
        try:
            facts = json.loads(self._key.read_bytes())
            store = TokenStore(self._folder / "stores" / facts["store"])
            data = (self._folder / "tokenizers" / facts["tokenizer"]).read_bytes()
            tokenizer = Tokenizer(data, self._recipe, self._dictionary)
        except (OSError, ValueError, LookupError, TypeError, FirthError):
            return None
        return (tokenizer, store) if tokenizer.digest == facts["tokenizer"] == store.facts.tokenizer else None

    def keep(self, tokenizer: Tokenizer, store: TokenStore) -> None:
        """Takes down what was made; the store is in the cache already."""
        facts = {"store": store.digest, "tokenizer": tokenizer.digest}
        write_file(self._folder / "tokenizers" / tokenizer.digest, tokenizer.data)
        write_file(self._key, json.dumps(facts).encode())


@cache
def _code() -> str:
    """A digest of all code that decides what is learnt from a text."""
    digest = hashlib.sha256()
    for package in (firth.text, firth.tokens):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(path.read_bytes())
    digest.update(" ".join(map(version, _LIBRARIES)).encode())
    return digest.hexdigest()
