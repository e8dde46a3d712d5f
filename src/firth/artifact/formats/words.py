"""Words of model files: how they are encoded in a file, and the tokenizer of a file's vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import models

from firth.errors import OutputError
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer, add_specials, make_backend

SPACE_SYMBOL = "▁"
_FORBIDDEN = "\0\t\n\v\f\r"


def encode_words(path: Path, words: Sequence[str], taken: Sequence[str] = ()) -> list[bytes]:
    """The words in UTF-8 as text formats can hold them: a space is written as ▁.

    Two words that would be written alike, or like a name that is `taken`, raise `OutputError`.
    """
    seen = set(taken)
    written = [word.replace(" ", SPACE_SYMBOL) for word in words]
    for name in written:
        if not name or any(character in name for character in _FORBIDDEN):
            raise OutputError(
                f"cannot write {path}: the format cannot hold the word {name!r}; remove such characters from the text "
                "and train again."
            )
        if name in seen:
            raise OutputError(
                f"cannot write {path}: two words would both be written {name!r}, since a space becomes {SPACE_SYMBOL} "
                "and special tokens have fixed names: remove one of them from the text and train again."
            )
        seen.add(name)
    return [name.encode() for name in written]


def words_tokenizer(vocabulary: list[str]) -> Tokenizer:
    """A tokenizer for space-separated text whose tokens are the given words, special tokens first.

    >>> tokenizer = words_tokenizer(["<pad>", "<unk>", "<s>", "</s>", "<mask>", "don't", "stop,"])
    >>> tokenizer.encode("don't stop, now").ids
    [5, 6, 1]
    """
    recipe = TokenizerRecipe(model="words", split="space", normalise="none", segmenter="space")
    ids = {word: number for number, word in enumerate(vocabulary)}
    backend = make_backend(models.WordLevel(ids, unk_token=recipe.specials[UNK]), recipe)
    add_specials(backend, recipe)
    data = json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=1) + "\n"
    return Tokenizer(data.encode(), recipe)
