"""The rows that a text is made of: words, character n-grams and word n-grams, numbered as fastText numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.tokens.tokenizer import EOS, UNK
from firth.vectors import _classifier_kernels as kernels
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.subwords import subword_rows

END = "</s>"
"""The end of a text to fastText: a word that has no character n-grams."""
Slots = npt.NDArray[np.int32]
"""The row of each bucket, -1 for those that no n-gram of the training text falls into."""


class Spelling(NamedTuple):
    """What each word of a list gives to a text."""

    starts: npt.NDArray[np.int64]
    """Its rows are from `starts[w]` to `starts[w + 1]` in `parts`."""
    parts: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]
    """What the buckets of n-grams of words are made of."""

    def and_then(self, other: Spelling) -> Spelling:
        """These words and more."""
        starts = np.concatenate([self.starts, self.starts[-1] + other.starts[1:]])
        return Spelling(starts, np.concatenate([self.parts, other.parts]), np.concatenate([self.hashes, other.hashes]))


def word_hashes(words: Sequence[str]) -> npt.NDArray[np.uint64]:
    """FNV-1a of each word in 32 bits, extended with its sign.

    >>> word_hashes(["a", "the"]).astype(np.int64).tolist()
    [-468965076, -1274105316]
    """
    spelt = [word.encode(errors="surrogatepass") for word in words]
    bounds = np.cumsum([0, *map(len, spelt)])
    hashes = np.empty(len(words), dtype=np.uint64)
    kernels.hash_words(np.frombuffer(b"".join(spelt) or b"\0", dtype=np.uint8), bounds, hashes)
    return hashes


def spell(words: Sequence[str], own: npt.NDArray[np.bool_], min_n: int, max_n: int, slots: Slots) -> Spelling:
    """The rows of words: word w's own is row w, where it has one; its character n-grams follow."""
    starts, buckets = np.zeros(len(words) + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
    if max_n and slots.size:
        starts, buckets = subword_rows(words, min_n, max_n, slots.size)
    parts = np.insert(slots[buckets], starts[:-1][own], np.flatnonzero(own)).astype(np.int32)
    return Spelling(starts + np.concatenate([[0], np.cumsum(own)]), parts, word_hashes(words))


def spell_all(words: Sequence[str], own: npt.NDArray[np.bool_], recipe: ClassifierRecipe, slots: Slots) -> Spelling:
    """The rows of a whole vocabulary."""
    return spell(as_spelt(words), own, recipe.min_n, recipe.max_n, slots)


def as_spelt(words: Sequence[str]) -> list[str]:
    """A vocabulary with the end of a text, and the unknown word, as fastText writes the end: a word without letters.

    >>> as_spelt(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"])
    ['[PAD]', '</s>', '[CLS]', '</s>', '[MASK]', 'word']
    """
    spelt = list(words)
    spelt[UNK] = spelt[EOS] = END
    return spelt


def list_rows(
    ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64], spelling: Spelling, longest: int, slots: Slots
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The rows of texts, those of words before those of n-grams, and where each text's begin, and the end."""
    places = np.empty(bounds.size, dtype=np.int64)
    kernels.count_rows(ids, bounds, spelling.starts, longest, places)
    rows = np.empty(int(places[-1]), dtype=np.int32)
    used = kernels.list_rows(ids, bounds, *spelling, longest, slots, rows, places)
    return rows[:used], places


def slots_of(used: npt.NDArray[np.int32], buckets: int, first: int) -> Slots:
    """The row of each bucket: those that are used are numbered from `first` on.

    >>> slots_of(np.array([1, 3], dtype=np.int32), 5, 10).tolist()
    [-1, 10, -1, 11, -1]
    """
    slots = np.full(buckets, -1, dtype=np.int32)
    slots[used] = np.arange(first, first + used.size, dtype=np.int32)
    return slots
