"""WordModel: the base of all word vector models: vocabulary, rows, and texts as ids."""

from __future__ import annotations

import string
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.arguments import ChecksArguments, require_string, require_strings
from firth.errors import AbilityError, ArtifactError
from firth.summaries import SummarisedModel
from firth.text.layout import Layout
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors.phrases import Phrases
from firth.vectors.text import bounds_of

ScoredWords = list[tuple[str, float]]  # words and their scores, best first
_MAX_TOTAL = 2.0**62  # occurrences of all words
_MAX_TWO_EDITS, _MAX_ONE_EDIT = 10, 50  # word lengths up to which misspellings with two or one edits are tried


class NoVectorError(AbilityError, KeyError):
    """A word has no vector; the message with spelling suggestions is built on demand."""

    def __init__(self, word: str, known: Mapping[str, int]) -> None:
        super().__init__(word)
        self.word = word
        self._known = known

    @property
    def message(self) -> str:
        near = " or ".join(repr(word) for word in suggest_spellings(self.word, self._known))
        advice = f"did you mean {near}?" if near else "choose a word that occurs often enough in the training text."
        return f"there is no vector for {self.word!r}: {advice}"


class WordModel(SummarisedModel, ChecksArguments):
    """A vocabulary with a row for each word; phrases follow the tokenizer's words.

    A model is used like a read-only dictionary of words, as in gensim: `len(model)` is the number of its words,
    iterating gives them in the order of rows, and if `word in model`, `model[word]` is its vector.
    """

    def __init__(
        self,
        recipe: Any,
        tokenizer: Tokenizer,
        layout: Layout,
        words: list[str],
        counts: npt.NDArray[np.int64] | None = None,
        phrases: Phrases | None = None,
    ) -> None:
        self.recipe, self.tokenizer, self.layout = recipe, tokenizer, layout
        self.words, self.counts, self.phrases = words, counts, phrases

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that an artifact stores."""
        found = {"counts": self.counts, "phrases": None if self.phrases is None else self.phrases.pairs}
        return {name: array for name, array in found.items() if array is not None}

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words) if row >= FIRST_WORD}

    @property
    def names(self) -> list[str]:
        """The word of each row, without sense numbers."""
        return self.words

    def summary(self) -> dict[str, Any]:
        """The number of words, the recipe, the tokenizer and the methods."""
        return {"words": len(self)} | super().summary()

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True  # a model is there, however many words it has

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find_row(word) is not None

    def __getitem__(self, words: str | Sequence[str]) -> npt.NDArray[np.float32]:
        """The vector of a word, or those of several as rows; an unknown word raises an error that is a `KeyError`."""
        if not hasattr(self, "vector"):
            raise AbilityError(
                f"a {type(self).__name__} has no dense vectors of words: use similar, or train skipgram or lsa."
            )
        if isinstance(words, list | tuple | np.ndarray):
            return np.array([self.vector(word) for word in require_strings(words, "words", "vectors")])
        return np.asarray(self.vector(require_string(words, "word", "vectors[word]")))

    def find_row(self, word: str) -> int | None:
        """The row of a word, looked up verbatim, normalized, then tokenized; None if it has none."""
        return self._look_up(word, self.rows)

    def _look_up(self, word: str, table: Mapping[str, int]) -> int | None:
        for form in (word, self.normalize(word)):
            if form in table:
                return table[form]
        ids, _ = self.encode([self.normalize(word)])
        return int(ids[0]) if ids.size == 1 and ids[0] >= FIRST_WORD else None

    def row(self, word: str) -> int:
        """The row of a word; raises `AbilityError` if it has none."""
        row = self.find_row(word)
        if row is None:
            raise NoVectorError(word, self.rows)
        return row

    def normalize(self, word: str) -> str:
        """The word after the tokenizer's normalisation."""
        sound = word.encode(errors="replace").decode()  # command lines may hold bytes that are not text
        normalizer = self.tokenizer.backend.normalizer  # tokenizers from elsewhere may have none
        return (sound if normalizer is None else str(normalizer.normalize_str(sound))).strip()

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The concatenated ids of texts with phrases joined, and the bounds of each text."""
        encoded = self._encoder.encode([" ".join(text.replace("\0", " ").splitlines()) for text in texts])
        ids, bounds = encoded.ids, bounds_of(encoded.lengths)
        return (ids.astype(np.uint32), bounds) if self.phrases is None else self.phrases.join_texts(ids, bounds)

    @cached_property
    def _encoder(self) -> TextEncoder:
        return TextEncoder(self.tokenizer)

    def best(self, row: int, scores: npt.NDArray[np.float64], count: int) -> ScoredWords:
        """The words with the highest scores except `row`; ties go to the more frequent word."""
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


def saved_vector(arrays: Mapping[str, Any], name: str, dtype: type, size: int | None = None) -> npt.NDArray[Any]:
    """The saved one-dimensional array of that name, with its dtype and size checked."""
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != 1 or (size is not None and array.size != size):
        raise wrong_array(name)
    return array  # type: ignore[no-any-return]


def saved_matrix(arrays: Mapping[str, Any], name: str, rows: int | None = None) -> npt.NDArray[np.float32]:
    """The saved float32 matrix of that name, with its number of rows checked."""
    matrix = arrays.get(name)
    if matrix is None or matrix.dtype != np.float32 or matrix.ndim != 2:
        raise wrong_array(name)
    if rows is not None and (matrix.shape[0] != rows or not matrix.size):
        raise wrong_array(name)
    return matrix  # type: ignore[no-any-return]


def saved_counts(arrays: Mapping[str, Any], name: str, size: int) -> npt.NDArray[np.int64]:
    """The saved counts of that name: not negative, and with a sum that does not overflow."""
    counts = saved_vector(arrays, name, np.int64, size)
    if counts.min(initial=0) < 0 or float(counts.sum(dtype=np.float64)) >= _MAX_TOTAL:
        raise wrong_array(name)
    return counts


def wrong_array(name: str) -> ArtifactError:
    """The error of an array that does not fit the others."""
    return ArtifactError(f"the array {name!r} is missing or damaged, or has a wrong shape: train the model again.")


def suggest_spellings(word: str, known: Mapping[str, int], count: int = 3) -> list[str]:
    """Known words at an edit distance of one or, if there are none, two; lower rows first.

    The cost does not grow with the vocabulary.

    >>> suggest_spellings("footbal", {"football": 7, "footfall": 5, "foot": 6})
    ['football']
    >>> suggest_spellings("fotbal", {"football": 7, "footfall": 5, "foot": 6})
    ['football']
    """
    if len(word) > _MAX_ONE_EDIT:
        return []
    variants = (word.lower(), word.capitalize(), word.upper())
    found = _known(variants, known) or _known(_edits(word), known) or _known(_edits(word.lower()), known)
    if not found and len(word) <= _MAX_TWO_EDITS:
        found = {two for one in set(_edits(word.lower())) for two in _known(_edits(one), known)}
    return sorted(found - {word}, key=lambda other: (known[other], other))[:count]


def _known(words: Iterable[str], known: Container[str]) -> set[str]:
    return {word for word in words if word in known}


def _edits(word: str) -> Iterator[str]:
    """The word after one deletion, transposition, insertion or substitution."""
    for position in range(len(word) + 1):
        before, after = word[:position], word[position:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for character in string.ascii_lowercase:
            yield before + character + after
            if after:
                yield before + character + after[1:]
