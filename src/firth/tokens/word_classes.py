"""WordClasses: classes of words that are used alike, from coarse to fine.

Words are found by a hash of their lower-cased spelling, so that the table of a hundred thousand words is a megabyte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError
from firth.text.segment import HAN
from firth.tokens.store import TokenStore

UNKNOWN = -1
"""The class of a word that the text does not have."""
LEVELS = 3
_FINER = 5
"""Classes of a level for each of the one before."""
_SAMPLE = 10_000  # tokens that tell whether a text is Chinese


def class_counts(finest: int) -> tuple[int, ...]:
    """The number of classes of each level.

    >>> class_counts(1000), class_counts(8)
    ((40, 200, 1000), (2, 2, 8))
    """
    return tuple(max(2, finest // _FINER**level) for level in reversed(range(LEVELS)))


def text_hash(text: str, *, signed: bool = False) -> int:
    """A platform-independent hash of 64 bits."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=signed)


def word_key(word: str) -> int:
    """The signed hash of the lower-cased word."""
    return text_hash(word.lower(), signed=True)


def is_chinese(store: TokenStore, vocabulary: Sequence[str]) -> bool:
    """Whether most tokens at the beginning of a text have Chinese characters."""
    sample = np.asarray(store.ids[:_SAMPLE])
    return sum(HAN.search(vocabulary[one]) is not None for one in sample.tolist()) > sample.size / 2


@dataclass(frozen=True, eq=False)
class WordClasses:
    """The classes of the frequent words of a text."""

    keys: npt.NDArray[np.int64]
    """The hashes of the words, sorted."""
    classes: npt.NDArray[np.int16]
    """(words, levels)."""

    def find(self, words: Sequence[str]) -> npt.NDArray[np.int16]:
        """(words, levels): the classes of each word, `UNKNOWN` for others.

        >>> table = WordClasses(np.array([word_key("sea")]), np.array([[1, 4, 7]], dtype=np.int16))
        >>> table.find(["Sea", "see"]).tolist()
        [[1, 4, 7], [-1, -1, -1]]
        """
        found = np.full((len(words), self.classes.shape[1]), UNKNOWN, dtype=np.int16)
        keys = np.array([word_key(word) for word in words], dtype=np.int64)
        if self.keys.size:
            rows = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
            known = self.keys[rows] == keys
            found[known] = self.classes[rows[known]]
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that an artifact saves."""
        return {"words": self.keys, "classes": self.classes}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self | None:
        """The classes that `arrays` returned, which are checked; None if there are none."""
        if not arrays:
            return None
        types = {"words": np.int64, "classes": np.int16}
        if set(arrays) == set(types) and all(arrays[name].dtype == kind for name, kind in types.items()):
            keys, classes = (arrays[name] for name in types)
            has_shapes = keys.ndim == 1 and classes.shape == (keys.size, LEVELS)
            if has_shapes and bool(np.all(keys[1:] > keys[:-1])) and bool(np.all(classes >= 0)):
                return cls(keys, classes)
        raise ArtifactError("the classes of words are damaged: copy the folder again, or train the model again.")
