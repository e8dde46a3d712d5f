"""Phrases (Mikolov et al., 2013): pairs of words that stand together more often than by chance become one word.

    score(a, b) = (c(a b) - delta) * N / (c(a) c(b))

where N is how many words the text has. Pairs above the threshold are joined, greedily from the left; a second round
over the joined text, with half the threshold, finds longer phrases.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, RecipeError
from firth.files import cache_folder, writing
from firth.progress import note, progress
from firth.tokens.tokenizer import Tokenizer
from firth.vectors._phrase_kernels import join_pairs
from firth.vectors.bigrams import count_bigrams
from firth.vectors.text import FIRST_WORD, TrainingText

JOINT = "_"
MOST_ROUNDS = 4
_CHUNK = 1 << 17  # sentences that are joined at once
_IN_MEMORY = 1 << 26  # longer texts are kept in a file

Pairs = npt.NDArray[np.int32]
"""A row for each phrase: the ids of its left and right part, and the round in which it is joined."""


@dataclass(frozen=True, eq=False)
class Phrases:
    """Phrases that can be found in any text.

    >>> phrases = Phrases(np.array([[5, 6, 0], [9, 7, 1]], dtype=np.int32), 9)  # id 9 is 5 6, id 10 is 9 7
    >>> phrases.join(np.array([8, 5, 6, 7, 5, 6, 6])).tolist()
    [8, 10, 9, 6]
    """

    pairs: Pairs
    """In the order of rounds, and within a round in that of the ids."""
    first: int
    """The id of the first phrase; lower ones are words."""

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """A number for each pair; they ascend within a round."""
        return self.pairs[:, 0].astype(np.int64) << 32 | self.pairs[:, 1]

    @cached_property
    def bounds(self) -> list[int]:
        """Where the pairs of each round begin, and the end."""
        rounds = int(self.pairs[:, 2].max(initial=-1)) + 1
        return [int(place) for place in np.searchsorted(self.pairs[:, 2], np.arange(rounds + 1))]

    @cached_property
    def opens(self) -> list[npt.NDArray[np.bool_]]:
        """For each round, which ids are the left part of a phrase."""
        found = []
        for low, high in zip(self.bounds, self.bounds[1:], strict=False):
            opens = np.zeros(self.first + len(self.pairs), dtype=np.bool_)
            opens[self.pairs[low:high, 0]] = True
            found.append(opens)
        return found

    def join(self, ids: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """The ids of a sentence, with its phrases joined."""
        flat = np.array(ids, dtype=np.uint32).reshape(-1)
        return self.join_texts(flat, np.array([0, flat.size]))[0]

    def join_texts(
        self, ids: npt.NDArray[Any], bounds: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of texts with phrases joined, and where each text begins, and the end."""
        joined, begins = np.array(ids, dtype=np.uint32), bounds.astype(np.uint64)
        for number in range(len(self.opens)):
            ends = np.zeros_like(begins)
            size = self.join_round(number, joined, begins, joined, ends[1:])
            joined, begins = joined[:size], ends
        return joined, begins.astype(np.int64)

    def join_round(
        self,
        number: int,
        ids: npt.NDArray[Any],
        sentences: npt.NDArray[np.uint64],
        out: npt.NDArray[np.uint32],
        ends: npt.NDArray[np.uint64],
    ) -> int:
        """Writes sentences and their ends with the phrases of one round joined; returns how many ids there are."""
        low, high = self.bounds[number], self.bounds[number + 1]
        size = join_pairs(ids, sentences, self.keys, low, high, self.opens[number], self.first, out, ends)
        return int(size)


class Phrased(NamedTuple):
    """A text with its phrases joined, and the phrases; None if there are none."""

    text: TrainingText
    phrases: Phrases | None


def find_phrases(text: TrainingText, rounds: int, *, delta: float = 5, threshold: float = 100.0) -> Phrased:
    """Finds phrases and joins them, `rounds` times over; their ids follow those of the words.

    >>> ids = np.array([5, 6, 7, 5, 6, 8, 7, 8] * 9, dtype=np.uint16)
    >>> text = TrainingText(ids, np.array([0, 72], dtype=np.uint64), np.array([0, 1], dtype=np.uint64),
    ...     ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "new", "york", "in", "is"])
    >>> found = find_phrases(text, 1, threshold=2)
    >>> [found.text.words[id] for id in found.text.ids[:6]]
    ['new_york', 'in', 'new_york', 'is', 'in', 'is']
    """
    if not (delta >= 0 and 0 < threshold < np.inf and 0 <= rounds <= MOST_ROUNDS):
        raise RecipeError(
            f"delta={delta} must be 0 or more, threshold={threshold} above 0, and rounds={rounds} 0 to 4."
        )
    phrases = Phrases(np.zeros((0, 3), dtype=np.int32), len(text.words))
    for number in range(rounds):
        pairs = good_pairs(text, delta, threshold / 2**number)
        names = [f"{text.words[left]}{JOINT}{text.words[right]}" for left, right in pairs.tolist()]
        fresh = _fresh(names, text.words)
        names, pairs = [name for name, new in zip(names, fresh, strict=True) if new], pairs[fresh]
        if not names:
            break
        rows = np.column_stack([pairs, np.full(len(pairs), number)]).astype(np.int32)
        phrases = Phrases(np.concatenate([phrases.pairs, rows]), phrases.first)
        text = _join_text(text, phrases, number, [*text.words, *names])
    if rounds:
        note(f"{len(phrases.pairs):,} phrases were found")
    return Phrased(text, phrases if len(phrases.pairs) else None)


def good_pairs(text: TrainingText, delta: float, threshold: float) -> npt.NDArray[np.int64]:
    """The pairs of ids whose score is above the threshold, in ascending order."""
    left, right, together = count_bigrams(text)
    counts = text.counts.astype(np.float64)
    scores = (together - delta) * text.total / (counts[left] * counts[right])
    good = scores > threshold
    return np.column_stack([left[good], right[good]])


def _fresh(names: list[str], words: list[str]) -> npt.NDArray[np.bool_]:
    """Which names are not taken: a_b_c may be a_b and c, or a and b_c, and only the first of them is joined."""
    seen = set(words)
    fresh = []
    for name in names:
        fresh.append(name not in seen)
        seen.add(name)
    return np.array(fresh, dtype=np.bool_)


def _join_text(text: TrainingText, phrases: Phrases, number: int, words: list[str]) -> TrainingText:
    """The text with the phrases of one round joined."""
    ids = _room(len(text.ids))
    sentences = np.zeros(len(text.sentences), dtype=np.uint64)
    size = 0
    with progress("joining phrases", total=len(text.sentences) - 1, unit="sentences") as advance:
        for begin in range(0, len(text.sentences) - 1, _CHUNK):
            bounds = np.array(text.sentences[begin : begin + _CHUNK + 1])
            ends = sentences[begin + 1 : begin + bounds.size]
            grown = phrases.join_round(number, np.asarray(text.ids), bounds, ids[size:], ends)
            ends += np.uint64(size)
            size += grown
            advance(ends.size)
    return TrainingText(ids[:size], sentences, text.documents, words)


def _room(size: int) -> npt.NDArray[np.uint32]:
    """Place for so many ids: in memory, or in a file without a name that vanishes with the array."""
    if size <= _IN_MEMORY:
        return np.zeros(size, dtype=np.uint32)
    folder = cache_folder()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(4 * size)
            return np.asarray(np.memmap(file, dtype=np.uint32, mode="r+", shape=(size,)))


def phrase_words(phrases: Phrases, words: list[str]) -> list[str]:
    """The words, and after them those that pairs of them make.

    >>> phrase_words(Phrases(np.array([[0, 1, 0], [2, 0, 1]], dtype=np.int32), 2), ["new", "york"])
    ['new', 'york', 'new_york', 'new_york_new']
    """
    names = list(words)
    for left, right, _ in phrases.pairs.tolist():
        names.append(f"{names[left]}{JOINT}{names[right]}")
    return names


def saved_phrases(arrays: Mapping[str, Any], tokenizer: Tokenizer) -> tuple[Phrases | None, list[str]]:
    """The phrases of a saved model, if it has any, and its words, of which they are the last."""
    pairs = arrays.get("phrases")
    if pairs is None:
        return None, tokenizer.vocabulary
    phrases = restore_phrases(pairs, len(tokenizer))
    return phrases, phrase_words(phrases, tokenizer.vocabulary)


def restore_phrases(pairs: npt.NDArray[Any], words: int) -> Phrases:
    """The phrases of a saved model that has so many words without them."""
    if pairs.dtype != np.int32 or pairs.ndim != 2 or pairs.shape[1] != 3 or len(pairs) > np.iinfo(np.int32).max - words:
        raise ArtifactError("the array 'phrases' has a wrong shape: train the model again.")
    parts, rounds = pairs[:, :2], pairs[:, 2]
    order, ids = np.lexsort((parts[:, 1], parts[:, 0], rounds)), np.arange(words, words + len(pairs))
    sound = np.all(parts >= FIRST_WORD) and np.all(parts < ids[:, None]) and np.all(order == np.arange(len(pairs)))
    if not (sound and np.all(rounds >= 0) and np.all(rounds < MOST_ROUNDS)):
        raise ArtifactError("the array 'phrases' is damaged: train the model again.")
    return Phrases(np.ascontiguousarray(pairs), words)
