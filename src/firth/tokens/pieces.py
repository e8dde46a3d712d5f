"""Learning the pieces of a unigram model from the counts of words (Kudo, 2018).

A word's probability is the sum over all ways to cut it into pieces of the product of the pieces' probabilities. Many
substrings of words are taken at first; then probabilities are estimated and the least useful pieces dropped in turn,
until few enough remain. The rules are those of SentencePiece; sums are made in one fixed order, over words in the order
of their characters, so the same counts give the same pieces everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma  # type: ignore[import-untyped]

from firth.errors import TokenizerError
from firth.progress import progress
from firth.tokens import _piece_kernels as kernels

_RARE = 0.5  # pieces that are expected less often are dropped
_DIGITS = 6  # decimals of a score, so that it survives a text format

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def learn_pieces(
    words: Mapping[str, int],
    size: int,
    *,
    longest: int = 16,
    seed_pieces: int | None = None,
    shrink: float = 0.75,
    rounds: int = 2,
) -> list[tuple[str, float]]:
    """At most `size` pieces and the natural logarithms of their probabilities, the most probable first.

    Every character is among them; where there are more than `size`, the most frequent ones. Pieces have at most
    `longest` characters. It starts from `seed_pieces` (ten times `size`, at least 100,000, unless told) and keeps the
    share `shrink` of them each time, after `rounds` estimations.

    >>> words = {"low": 5, "lower": 2, "lowest": 3, "newer": 6, "newest": 4}
    >>> [piece for piece, score in learn_pieces(words, 12)]
    ['low', 'new', 'est', 'er', 'e', 's', 't', 'l', 'n', 'o', 'r', 'w']
    """
    if size < 1 or longest < 1 or rounds < 1 or not 0 < shrink < 1:
        raise TokenizerError("pieces need size, longest and rounds of at least 1 and shrink between 0 and 1.")
    if seed_pieces is None:
        seed_pieces = min(max(10 * size, 100_000), 1_000_000)
    model = PieceModel(_Words.lay_out(words), size, longest, seed_pieces)
    goal = size * 11 // 10
    with progress("learning pieces", unit="rounds") as advance:
        while True:
            for _ in range(rounds):
                model.estimate()
                advance(1)
            if len(model) <= goal:
                return model.best(size)
            model.prune(max(goal, int(shrink * len(model))))


@dataclass(frozen=True)
class _Words:
    """All distinct words one after the other, in the order of their characters."""

    text: str
    alphabet: Integers  # code points in ascending order
    codes: npt.NDArray[np.int32]  # for each character its place in the alphabet
    bounds: Integers
    counts: Integers

    @classmethod
    def lay_out(cls, words: Mapping[str, int]) -> _Words:
        order = sorted(word for word, count in words.items() if word and count > 0)
        if not order:
            raise TokenizerError("there are no words to learn pieces from: give more text.")
        text = "".join(order)
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        occurs = np.zeros(0x110000, dtype=np.bool_)
        occurs[points] = True
        places = np.cumsum(occurs, dtype=np.int32) - 1
        bounds = np.cumsum([0, *map(len, order)], dtype=np.int64)
        counts = np.array([words[word] for word in order], dtype=np.int64)
        return cls(text, np.flatnonzero(occurs), places[points], bounds, counts)

    def count_characters(self) -> Integers:
        """How often each character of the alphabet occurs."""
        totals = np.zeros(self.alphabet.size, dtype=np.int64)
        np.add.at(totals, self.codes, np.repeat(self.counts, np.diff(self.bounds)))
        return totals


@dataclass(frozen=True)
class _Substrings:
    """The substrings of one length that occur at least twice, named by numbers in the order of their first places."""

    length: int
    names: npt.NDArray[np.int32]  # at each of `at`
    at: npt.NDArray[np.int32]
    totals: Integers
    places: npt.NDArray[np.int32]
    worthy: npt.NDArray[np.bool_]  # not always part of the same longer one


def _find_substrings(words: _Words, longest: int) -> list[_Substrings]:
    """The substrings of two to `longest` characters that occur at least twice, by length."""
    found: list[_Substrings] = []
    totals = words.count_characters()
    names = np.where(totals >= 2, np.arange(totals.size, dtype=np.int32), np.int32(-1))[words.codes]
    for length in range(2, longest + 1):
        level, longer = _extend(words, names, length)
        if not level.totals.size:
            break
        if found:
            shorter = found[-1]
            for part in (names[level.places], names[level.places + 1]):
                shorter.worthy[part[level.totals == shorter.totals[part]]] = False
        found.append(level)
        names = longer
    return found


def _extend(words: _Words, names: npt.NDArray[np.int32], length: int) -> tuple[_Substrings, npt.NDArray[np.int32]]:
    """The substrings of `length` and their names at all places (-1 for none), from those that are one shorter."""
    most = 1 + np.count_nonzero((names[:-1] >= 0) & (names[1:] >= 0))
    slots = np.zeros(1 << int(2 * most - 1).bit_length(), dtype=np.int32)
    keys, totals, places = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    longer, count = kernels.name_longer(
        words.codes, words.bounds, words.counts, names, length - 1, slots, keys, totals, places
    )
    kept = np.flatnonzero(totals[:count] >= 2)
    renamed = np.full(count + 1, -1, dtype=np.int32)  # the last one stays -1, where -1 as an index leads
    renamed[kept] = np.arange(kept.size, dtype=np.int32)
    longer = renamed[longer]
    at = np.flatnonzero(longer >= 0).astype(np.int32)
    worthy = np.ones(kept.size, dtype=np.bool_)
    return _Substrings(length, longer[at], at, totals[kept], places[kept], worthy), longer


class PieceModel:
    """Pieces with log-probabilities, and where they occur in the words they are learned from.

    Pieces keep their numbers: characters come first, by code point; a dropped piece scores minus infinity.
    """

    def __init__(self, words: _Words, size: int, longest: int, seed_pieces: int) -> None:
        self._words = words
        self._frequency = words.count_characters()
        self._characters = self._frequency.size
        # Where characters alone fill the vocabulary, nothing else need be tried.
        room = max(seed_pieces - self._characters, 0) if self._characters < size else 0
        levels = _find_substrings(words, longest) if room else []
        chosen = self._choose(levels, room)
        self._link(levels, chosen)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.scores > -np.inf))

    def texts(self) -> list[str]:
        """The pieces by number, dropped ones included."""
        pairs = zip(self._places.tolist(), self._lengths.tolist(), strict=True)
        return [self._words.text[place : place + length] for place, length in pairs]

    def _choose(self, levels: list[_Substrings], room: int) -> list[npt.NDArray[np.int32]]:
        """Takes the substrings that cover most text as pieces: for each level, the piece of each name or -1."""
        worthy = [np.flatnonzero(level.worthy) for level in levels]
        # A substring that always stands in the same longer one would only take the place of a useful one.
        cover = [level.totals[names] * level.length for level, names in zip(levels, worthy, strict=True)]
        gains = np.concatenate([np.zeros(0, dtype=np.int64), *cover])
        taken = np.zeros(gains.size, dtype=np.bool_)
        taken[np.argsort(-gains, kind="stable")[:room]] = True
        first_places = np.empty(self._characters, dtype=np.int64)
        first_places[self._words.codes[::-1]] = np.arange(self._words.codes.size - 1, -1, -1)
        lengths, places = [np.ones(self._characters, dtype=np.int32)], [first_places]
        chosen, begin, number = [], 0, self._characters
        for level, names in zip(levels, worthy, strict=True):
            names = names[taken[begin : begin + names.size]]
            begin += int(np.count_nonzero(level.worthy))
            numbers = np.full(level.totals.size, -1, dtype=np.int32)
            numbers[names] = np.arange(number, number + names.size, dtype=np.int32)
            number += names.size
            chosen.append(numbers)
            lengths.append(np.full(names.size, level.length, dtype=np.int32))
            places.append(level.places[names].astype(np.int64))
        self._lengths, self._places = np.concatenate(lengths), np.concatenate(places)
        weights = np.concatenate([self._frequency, gains[taken]]).astype(np.float64)
        self.scores: Floats = np.log(weights) - np.log(weights.sum())
        return chosen

    def _link(self, levels: list[_Substrings], chosen: list[npt.NDArray[np.int32]]) -> None:
        """Writes down which pieces begin at each place, short ones first."""
        hits = [(level.at, numbers[level.names]) for level, numbers in zip(levels, chosen, strict=True)]
        hits = [(at[pieces >= 0], pieces[pieces >= 0]) for at, pieces in hits]
        amounts = np.ones(self._words.codes.size, dtype=np.int64)
        for at, _ in hits:
            amounts[at] += 1
        self._offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(amounts)])
        self._edges = np.empty(self._offsets[-1], dtype=np.int32)
        free = self._offsets[:-1].copy()
        self._edges[free] = self._words.codes
        for at, pieces in hits:
            free[at] += 1
            self._edges[free[at]] = pieces

    def expect(self) -> Floats:
        """How often each piece is expected to occur in the words."""
        words = self._words
        result: Floats = kernels.expect(
            words.bounds, words.counts, self._offsets, self._edges, self._lengths, self.scores
        )
        return result

    def estimate(self) -> None:
        """One step of expectation and maximisation, with the sparse prior of SentencePiece."""
        expected = self.expect()
        characters = expected[: self._characters]
        np.maximum(characters, _RARE, out=characters)
        kept = expected >= _RARE
        scores = np.full(expected.size, -np.inf)
        scores[kept] = digamma(expected[kept]) - digamma(expected[kept].sum())
        self._set_scores(scores)

    def prune(self, size: int) -> None:
        """Keeps the characters and as many other pieces as make `size`: those whose loss would cost most."""
        words = self._words
        lattice = (self._offsets, self._edges, self._lengths, self.scores)
        losses = kernels.losses(self._places, *lattice, kernels.count_best(words.bounds, words.counts, *lattice))
        ranked = np.argsort(-losses, kind="stable")[: size - self._characters]
        kept = np.concatenate([np.arange(self._characters), ranked[losses[ranked] > -np.inf]])
        scores = np.full(self.scores.size, -np.inf)
        scores[kept] = self.scores[kept]
        self._set_scores(scores)

    def _set_scores(self, scores: Floats) -> None:
        self.scores = scores
        self._edges = self._edges[: kernels.keep_edges(self._offsets, self._edges, scores)]

    def best(self, size: int) -> list[tuple[str, float]]:
        """The characters and the most probable other pieces, `size` in all, with rounded scores."""
        rounded = [round(score, _DIGITS) for score in self.scores.tolist()]
        texts = self.texts()
        characters = np.argsort(-self._frequency, kind="stable")[:size].tolist()
        others = [number for number in range(self._characters, len(texts)) if rounded[number] > -np.inf]
        others.sort(key=lambda number: (-rounded[number], texts[number]))
        kept = [*characters, *others[: size - len(characters)]]
        return sorted(((texts[number], rounded[number]) for number in kept), key=lambda pair: (-pair[1], pair[0]))
