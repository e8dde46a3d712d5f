"""How well a vocabulary covers a text, and a note if it does not."""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from firth.progress import note
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import UNK, Tokenizer

_SAMPLE = 1 << 17  # characters
_MANY_UNKNOWN = 1 / 3  # of all words
_MANY_ATTACHED = 0.05
_PUNCTUATION = string.punctuation + "，。！？；：、“”‘’（）《》…—«»„"


class Coverage(NamedTuple):
    """The words of a text and those that a vocabulary lacks."""

    words: int
    unknown: int
    """Words with an unknown token."""
    attached: int
    """Unknown words that are known without the punctuation attached to them; of space-split tokenizers alone."""


def coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """How many words of the first texts, up to a limit of characters, the vocabulary lacks.

    >>> from firth.text.corpus import read_corpus
    >>> from firth.tokens.recipe import TokenizerRecipe
    >>> from firth.tokens.train import train_tokenizer
    >>> recipe = TokenizerRecipe(model="words", split="space", min_count=1)
    >>> tokenizer = train_tokenizer(recipe, read_corpus([["the cat sat , the dog ran ."]]))
    >>> coverage(tokenizer, ["the cat sat, the bird ran."])
    Coverage(words=6, unknown=3, attached=2)
    """
    sample, size = [], 0
    for text in texts:
        sample.append(" ".join(text.encode(errors="replace").decode().replace("\0", " ").split()))
        size += len(sample[-1])
        if size > _SAMPLE:
            break
    encoded = TextEncoder(tokenizer).encode(sample)
    numbers = np.cumsum(encoded.word_starts)
    unknown = int(np.unique(numbers[encoded.ids == UNK]).size)
    literal = sum(text.count(tokenizer.vocabulary[UNK]) for text in sample)  # as in the Penn Treebank
    attached = _count_attached(tokenizer, sample) if unknown else 0
    return Coverage(int(np.count_nonzero(encoded.word_starts)), max(0, unknown - literal), attached)


def _count_attached(tokenizer: Tokenizer, texts: Iterable[str]) -> int:
    recipe = tokenizer.recipe
    if recipe.model != "words" or recipe.split != "space":
        return 0
    known = frozenset(tokenizer.vocabulary)
    words = [word.lower() if recipe.lowercase else word for text in texts for word in text.split()]
    return sum(word not in known and word.strip(_PUNCTUATION) in known for word in words)


def note_poor_coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Print a note if texts do not fit a tokenizer: a third of the words unknown, or raw text where it is split."""
    words, unknown, attached = coverage(tokenizer, texts)
    if attached > _MANY_ATTACHED * words:
        note(
            f"{attached / words:.0%} of the words are unknown only because of the punctuation beside them: put "
            "spaces around it, as in the text that the tokenizer was trained on, or train one with split=punctuation"
        )
    elif words and unknown >= _MANY_UNKNOWN * words:
        note(
            f"{unknown / words:.0%} of the words are unknown to the tokenizer, so results mean little: use text like "
            "that which it was trained on, or a model trained on such text"
        )
