"""WordModel: what all models of words have in common: words, their rows, and texts as ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError, ArtifactError
from firth.text.layout import Layout
from firth.tokens.encoder import Encoder
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.phrases import Phrases
from firth.vectors.spelling import near_spellings
from firth.vectors.text import FIRST_WORD

Found = list[tuple[str, float]]
"""Words and their scores, best first."""


class NoVectorError(AbilityError):
    """There is no vector for a word; the message, with near spellings, is made when somebody reads it."""

    def __init__(self, word: str, known: Mapping[str, int]) -> None:
        super().__init__(word)
        self.word = word
        self._known = known

    def __str__(self) -> str:
        near = " or ".join(repr(word) for word in near_spellings(self.word, self._known))
        advice = f"did you mean {near}?" if near else "ask for a word that occurs often enough in the text."
        return f"there is no vector for {self.word!r}: {advice}"


class WordModel:
    """Words with rows, the phrases among them after those of the tokenizer."""

    def __init__(
        self,
        recipe: Any,
        tokenizer: Tokenizer,
        layout: Layout,
        words: list[str],
        counts: npt.NDArray[np.int64] | None = None,
        phrases: Phrases | None = None,
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.layout = layout
        self.words = words
        self.counts = counts
        self.phrases = phrases

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        found = {"counts": self.counts, "phrases": None if self.phrases is None else self.phrases.pairs}
        return {name: array for name, array in found.items() if array is not None}

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words) if row >= FIRST_WORD}

    @property
    def names(self) -> list[str]:
        """The word of each row, whatever its sense."""
        return self.words

    def find(self, word: str) -> int | None:
        """The row of a word as it is given, or as the tokenizer writes it; None if there is none."""
        for one in (word, self.written(word)):
            if one in self.rows:
                return self.rows[one]
        ids, _ = self.encode([self.written(word)])
        return int(ids[0]) if ids.size == 1 and ids[0] >= FIRST_WORD else None

    def row(self, word: str) -> int:
        """The row of a word; one that is not there raises `AbilityError`."""
        row = self.find(word)
        if row is None:
            raise NoVectorError(word, self.rows)
        return row

    def written(self, word: str) -> str:
        """The word as the tokenizer writes it."""
        sound = word.encode(errors="replace").decode()  # command lines may hold bytes that are no text
        return str(self.tokenizer.backend.normalizer.normalize_str(sound)).strip()

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of texts, phrases joined, and where each text begins, and the end."""
        ids, _, lengths = self._encoder.encode([" ".join(text.replace("\0", " ").splitlines()) for text in texts])
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return (ids.astype(np.uint32), bounds) if self.phrases is None else self.phrases.join_texts(ids, bounds)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.tokenizer)

    def best(self, row: int, scores: npt.NDArray[np.float64], count: int) -> Found:
        """The words with the highest scores, but for one; the more frequent first where they are equal."""
        known = np.fromiter((other for other in self.rows.values() if other != row), dtype=np.int64)
        counts = np.zeros(len(self.words)) if self.counts is None else self.counts
        order = known[np.lexsort((known, -counts[known], -scores[known]))][: max(count, 0)]
        return [(self.words[other], float(scores[other])) for other in order.tolist()]


def refuse_context(context: str | None) -> None:
    """Raises `AbilityError` if there is a context."""
    if context is not None:
        raise AbilityError(
            "this model has one vector for a word, whatever the context: leave the context out, "
            "or train multi-prototype."
        )


def saved_vector(arrays: Mapping[str, Any], name: str, kind: type, size: int | None = None) -> npt.NDArray[Any]:
    """The saved array of that name, of one dimension, with so many numbers of that kind."""
    array = arrays.get(name)
    if array is None or array.dtype != kind or array.ndim != 1 or (size is not None and array.size != size):
        raise ArtifactError(f"the array {name!r} is missing or has a wrong shape: train the model again.")
    return array  # type: ignore[no-any-return]
