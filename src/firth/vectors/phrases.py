"""Phrases (Mikolov et al. 2013): collocations become single words.

    score(a, b) = (c(a b) - delta) * N / (c(a) c(b))

where N is the number of words of the text. Pairs above the threshold are joined, greedily from the left; a second round
over the joined text, with half the threshold, finds longer phrases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.errors import ArtifactError, RecipeError
from firth.progress import note, progress
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors.cooccurrence import allocate_arrays
from firth.vectors.text import TrainingText, count_bigrams

JOINT = "_"
MAX_ROUNDS = 4
_CHUNK = 1 << 17  # sentences joined at once

Pairs = npt.NDArray[np.int32]
"""(phrases, 3): the ids of the left and right part, and the round in which they are joined."""


@dataclass(frozen=True, eq=False)
class Phrases:
    """Phrases that can be joined in any text.

    >>> phrases = Phrases(np.array([[5, 6, 0], [9, 7, 1]], dtype=np.int32), 9)  # id 9 is 5 6, id 10 is 9 7
    >>> phrases.join(np.array([8, 5, 6, 7, 5, 6, 6])).tolist()
    [8, 10, 9, 6]
    """

    pairs: Pairs  # sorted by round, then by ids
    first: int  # the id of the first phrase

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """An integer for each pair, ascending within a round."""
        return self.pairs[:, 0].astype(np.int64) << 32 | self.pairs[:, 1]

    @cached_property
    def bounds(self) -> list[int]:
        """The bounds of the pairs of each round."""
        rounds = int(self.pairs[:, 2].max(initial=-1)) + 1
        return [int(bound) for bound in np.searchsorted(self.pairs[:, 2], np.arange(rounds + 1))]

    @cached_property
    def starts_phrase(self) -> list[npt.NDArray[np.bool_]]:
        """For each round, whether an id is the left part of a phrase."""
        found = []
        for low, high in zip(self.bounds, self.bounds[1:], strict=False):
            starts_phrase = np.zeros(self.first + len(self.pairs), dtype=np.bool_)
            starts_phrase[self.pairs[low:high, 0]] = True
            found.append(starts_phrase)
        return found

    def join(self, ids: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """The ids of a sentence with its phrases joined."""
        flat = np.array(ids, dtype=np.uint32).reshape(-1)
        return self.join_texts(flat, np.array([0, flat.size]))[0]

    def join_texts(
        self, ids: npt.NDArray[Any], bounds: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of texts with phrases joined, and the bounds of each text."""
        joined, begins = np.array(ids, dtype=np.uint32), bounds.astype(np.uint64)
        for number in range(len(self.starts_phrase)):
            ends = np.zeros_like(begins)
            size = self.join_round(number, joined, begins, joined, ends[1:])
            joined, begins = joined[:size], ends
        return joined, begins.astype(np.int64)

    def join_round(
        self, number: int, ids: npt.NDArray[Any], sentences: npt.NDArray[np.uint64], out: npt.NDArray[np.uint32],
        ends: npt.NDArray[np.uint64],
    ) -> int:  # fmt: skip
        """Writes sentences and their ends with the phrases of one round joined; returns the number of ids."""
        low, high = self.bounds[number], self.bounds[number + 1]
        left = self.starts_phrase[number]
        return int(join_pairs(ids, sentences, self.keys, low, high, left, self.first, out, ends))


def find_phrases(
    text: TrainingText, rounds: int, *, delta: float = 5, threshold: float = 100.0
) -> tuple[TrainingText, Phrases | None]:
    """The text with phrases joined in `rounds` rounds, and the phrases; their ids follow those of the words.

    >>> ids = np.array([5, 6, 7, 5, 6, 8, 7, 8] * 9, dtype=np.uint16)
    >>> text = TrainingText(ids, np.array([0, 72], dtype=np.uint64), np.array([0, 1], dtype=np.uint64),
    ...     ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "new", "york", "in", "is"])
    >>> joined, phrases = find_phrases(text, 1, threshold=2)
    >>> [joined.words[id] for id in joined.ids[:6]]
    ['new_york', 'in', 'new_york', 'is', 'in', 'is']
    """
    if not (delta >= 0 and 0 < threshold < np.inf and 0 <= rounds <= MAX_ROUNDS):
        raise RecipeError(
            f"delta={delta} must be 0 or more, threshold={threshold} above 0, and rounds={rounds} 0 to 4."
        )
    phrases = Phrases(np.zeros((0, 3), dtype=np.int32), len(text.words))
    for number in range(rounds):
        pairs = find_collocations(text, delta, threshold / 2**number)
        # A phrase a_b_c may be a_b and c, or a and b_c: only the first of equal names is joined.
        known = set(text.words)
        named = {f"{text.words[left]}{JOINT}{text.words[right]}": (left, right) for left, right in pairs[::-1].tolist()}
        new = sorted((pair, name) for name, pair in named.items() if name not in known)
        if not new:
            break
        rows = np.array([(*pair, number) for pair, _ in new], dtype=np.int32)
        phrases = Phrases(np.concatenate([phrases.pairs, rows]), phrases.first)
        text = _join_text(text, phrases, number, [*text.words, *(name for _, name in new)])
    if rounds:
        note(f"{len(phrases.pairs):,} phrases found")
    return text, phrases if len(phrases.pairs) else None


def find_collocations(text: TrainingText, delta: float, threshold: float) -> npt.NDArray[np.int64]:
    """The pairs of ids whose score is above the threshold, in ascending order."""
    left, right, pair_counts = count_bigrams(text)
    counts = text.counts.astype(np.float64)
    scores = (pair_counts - delta) * text.total / (counts[left] * counts[right])
    is_collocation = scores > threshold
    return np.column_stack([left[is_collocation], right[is_collocation]])


def _join_text(text: TrainingText, phrases: Phrases, number: int, words: list[str]) -> TrainingText:
    (ids,) = allocate_arrays(len(text.ids), np.uint32)
    sentences = np.zeros(len(text.sentences), dtype=np.uint64)
    size = 0
    with progress("joining phrases", total=len(text.sentences) - 1, unit="sentences") as advance:
        for begin in range(0, len(text.sentences) - 1, _CHUNK):
            bounds = np.array(text.sentences[begin : begin + _CHUNK + 1])
            ends = sentences[begin + 1 : begin + bounds.size]
            added = phrases.join_round(number, np.asarray(text.ids), bounds, ids[size:], ends)
            ends += np.uint64(size)
            size += added
            advance(ends.size)
    return TrainingText(ids[:size], sentences, text.documents, words)


def phrase_words(phrases: Phrases | None, words: list[str]) -> list[str]:
    """The words followed by the phrases, if there are any.

    >>> phrase_words(Phrases(np.array([[0, 1, 0], [2, 0, 1]], dtype=np.int32), 2), ["new", "york"])
    ['new', 'york', 'new_york', 'new_york_new']
    """
    names = list(words)
    for left, right, _ in [] if phrases is None else phrases.pairs.tolist():
        names.append(f"{names[left]}{JOINT}{names[right]}")
    return names


def saved_phrases(arrays: Mapping[str, Any], tokenizer: Tokenizer) -> tuple[Phrases | None, list[str]]:
    """The phrases of a saved model, if it has any, and its words, phrases last."""
    pairs = arrays.get("phrases")
    phrases = None if pairs is None else restore_phrases(pairs, len(tokenizer))
    return phrases, phrase_words(phrases, tokenizer.vocabulary)


def restore_phrases(pairs: npt.NDArray[Any], words: int) -> Phrases:
    """The phrases of a saved model that has that many words without them."""
    if pairs.dtype != np.int32 or pairs.ndim != 2 or pairs.shape[1] != 3 or len(pairs) > np.iinfo(np.int32).max - words:
        raise ArtifactError("the array 'phrases' has a wrong shape: train the model again.")
    parts, rounds = pairs[:, :2], pairs[:, 2]
    order, ids = np.lexsort((parts[:, 1], parts[:, 0], rounds)), np.arange(words, words + len(pairs))
    sound = np.all(parts >= FIRST_WORD) and np.all(parts < ids[:, None]) and np.all(order == np.arange(len(pairs)))
    if not (sound and np.all(rounds >= 0) and np.all(rounds < MAX_ROUNDS)):
        raise ArtifactError("the array 'phrases' is damaged: train the model again.")
    return Phrases(np.ascontiguousarray(pairs), words)


@njit(cache=True, nogil=True)
def _find(key: Any, keys: Any, low: Any, high: Any) -> Any:
    """The index of `key` in the sorted `keys[low:high]`, or -1."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < end and keys[low] == key else -1


@njit(cache=True, nogil=True)
def join_pairs(
    ids: Any, bounds: Any, keys: Any, low: Any, high: Any, starts_phrase: Any, first: Any, out: Any, ends: Any
) -> Any:
    """Writes sentences with the pairs `keys[low:high]` joined, greedily from the left; returns the number of ids.

    Pair i is `left << 32 | right` and becomes the id `first + i`. `starts_phrase` says which ids are the left of a
    pair. `ends` receives the end of each sentence. `out` may be `ids`: writing never overtakes reading.
    """
    size = np.int64(0)
    for sentence in range(bounds.size - 1):
        position, end = np.int64(bounds[sentence]), np.int64(bounds[sentence + 1])
        while position < end:
            left = np.int64(ids[position])
            position += 1
            if starts_phrase[left] and position < end:
                pair = _find((left << 32) | np.int64(ids[position]), keys, low, high)
                if pair >= 0:
                    left = first + pair
                    position += 1
            out[size] = left
            size += 1
        ends[sentence] = size
    return size
