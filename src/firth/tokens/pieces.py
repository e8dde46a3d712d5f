"""Learning the pieces of a unigram model from the counts of words (Kudo, 2018).

A word's probability is the sum over all ways to cut it into pieces of the product of the pieces' probabilities. Many
substrings of words are taken at first; then probabilities are estimated and the least useful pieces dropped in turn,
until few enough remain. The rules are those of SentencePiece; sums are made in one fixed order, over words in the order
of their characters, so the same counts give the same pieces in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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

    >>> words = {"walk": 8, "walks": 1, "walked": 4, "look": 9, "looks": 2, "looked": 5, "talk": 6, "talked": 3}
    >>> learn_pieces(words, 13)[:3]
    [('look', -1.549605), ('walk', -1.76064), ('talk', -1.76356)]
    """
    if size < 1 or longest < 1 or rounds < 1 or not 0 < shrink < 1:
        raise TokenizerError("pieces need size, longest and rounds of at least 1 and shrink between 0 and 1.")
    if seed_pieces is None:
        seed_pieces = min(max(10 * size, 100_000), 1_000_000)
    model = PieceModel(words, size, longest, seed_pieces)
    goal = max(size * 11 // 10, model.characters)
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
    alphabet: int  # how many different characters there are
    codes: npt.NDArray[np.int32]  # a number for each character, in the order of code points
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
        numbers = np.cumsum(occurs, dtype=np.int32) - 1
        bounds = np.cumsum([0, *map(len, order)], dtype=np.int64)
        counts = np.array([words[word] for word in order], dtype=np.int64)
        return cls(text, int(numbers[-1]) + 1, numbers[points], bounds, counts)


@dataclass(frozen=True)
class _Substrings:
    """The distinct substrings of one length, numbered (named) in the order of their first places."""

    length: int
    totals: Integers
    places: npt.NDArray[np.int32]
    at: npt.NDArray[np.int32]  # where any of them occurs
    names: npt.NDArray[np.int32]  # which one it is, at each of `at`


def _find_substrings(words: _Words, longest: int) -> Iterator[_Substrings]:
    """The characters of the words, then the substrings of each length up to `longest` that occur at least twice."""
    totals = np.zeros(words.alphabet, dtype=np.int64)
    np.add.at(totals, words.codes, np.repeat(words.counts, np.diff(words.bounds)))
    everywhere = np.arange(words.codes.size, dtype=np.int32)
    places = np.empty(totals.size, dtype=np.int32)
    places[words.codes[::-1]] = everywhere[::-1]  # the first place is written last
    yield _Substrings(1, totals, places, everywhere, words.codes)
    names = np.where(totals >= 2, np.arange(totals.size, dtype=np.int32), np.int32(-1))[words.codes]
    for length in range(2, longest + 1):
        totals, places, names = _extend(words, names, length)
        at = np.flatnonzero(names >= 0).astype(np.int32)
        if not at.size:
            return
        yield _Substrings(length, totals, places, at, names[at])


def _extend(
    words: _Words, names: npt.NDArray[np.int32], length: int
) -> tuple[Integers, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Count and first place of each substring of `length` that occurs twice, and its name at each place (-1: none).

    `names` are those of the substrings that are one shorter: what occurs twice is made of two that do.
    """
    most = 1 + np.count_nonzero((names[:-1] >= 0) & (names[1:] >= 0))
    slots = np.zeros(1 << int(2 * most - 1).bit_length(), dtype=np.int32)
    keys, totals, places = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    longer, count = kernels.name_longer(
        words.codes, words.bounds, words.counts, names, length - 1, slots, keys, totals, places
    )
    kept = np.flatnonzero(totals[:count] >= 2)
    renamed = np.full(count + 1, -1, dtype=np.int32)  # the index -1 leads to the last, which stays -1
    renamed[kept] = np.arange(kept.size, dtype=np.int32)
    return totals[kept], places[kept], renamed[longer]


class PieceModel:
    """Pieces with log-probabilities, and where they occur in the words they are learned from.

    Pieces keep their numbers: characters come first, by code point; a dropped piece scores minus infinity.

    >>> model = PieceModel({"aba": 2}, size=9, longest=2, seed_pieces=9)
    >>> model.texts(), model.expect().round(3).tolist()
    (['a', 'b', 'ab', 'ba'], [2.133, 0.133, 0.933, 0.933])
    """

    def __init__(self, words: Mapping[str, int], size: int, longest: int, seed_pieces: int) -> None:
        """Starts from all characters and the longer substrings that cover the most text, `seed_pieces` together.

        Where characters alone fill a vocabulary of `size`, there are no others.
        """
        self._words = _Words.lay_out(words)
        self.characters = self._words.alphabet
        others = max(seed_pieces - self.characters, 0) if self.characters < size else 0
        levels = list(_find_substrings(self._words, longest if others else 1))
        sizes = [level.totals.size for level in levels]
        totals = np.concatenate([level.totals for level in levels])
        lengths = np.repeat(np.array([level.length for level in levels], dtype=np.int32), sizes)
        cover = totals * lengths
        taken = np.arange(totals.size) < self.characters
        taken[self.characters + np.argsort(-cover[self.characters :], kind="stable")[:others]] = True
        self._frequency = totals[: self.characters]
        self._lengths = lengths[taken]
        self._places = np.concatenate([level.places for level in levels])[taken]
        self.scores: Floats = np.log(cover[taken]) - np.log(cover[taken].sum())
        numbers = np.where(taken, np.cumsum(taken) - 1, -1).astype(np.int32)
        self._link(levels, np.split(numbers, np.cumsum(sizes)[:-1]))

    def _link(self, levels: list[_Substrings], numbers: list[npt.NDArray[np.int32]]) -> None:
        """Writes down which pieces begin at each place, short ones first; `numbers` lead from names to pieces."""
        hits = [(level.at, pieces[level.names]) for level, pieces in zip(levels, numbers, strict=True)]
        hits = [(at[pieces >= 0], pieces[pieces >= 0]) for at, pieces in hits]
        amounts = np.zeros(self._words.codes.size, dtype=np.int64)
        for at, _ in hits:
            amounts[at] += 1
        self._offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(amounts)])
        self._edges = np.empty(int(self._offsets[-1]), dtype=np.int32)
        free = self._offsets[:-1].copy()
        for at, pieces in hits:
            self._edges[free[at]] = pieces
            free[at] += 1

    def __len__(self) -> int:
        return int(np.count_nonzero(self.scores > -np.inf))

    def texts(self) -> list[str]:
        """The pieces by number, dropped ones included."""
        pairs = zip(self._places.tolist(), self._lengths.tolist(), strict=True)
        return [self._words.text[place : place + length] for place, length in pairs]

    def expect(self) -> Floats:
        """How often each piece is expected to occur in the words."""
        words = self._words
        result: Floats = kernels.expect(
            words.bounds, words.counts, self._offsets, self._edges, self._lengths, self.scores
        )
        return result

    def estimate(self) -> None:
        """One step of expectation and maximisation, with the sparse prior of SentencePiece."""
        from scipy.special import digamma  # type: ignore[import-untyped]

        expected = self.expect()
        characters = expected[: self.characters]
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
        ranked = np.argsort(-losses, kind="stable")[: size - self.characters]
        kept = np.concatenate([np.arange(self.characters), ranked[losses[ranked] > -np.inf]])
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
        others = [number for number in range(self.characters, len(texts)) if rounded[number] > -np.inf]
        others.sort(key=lambda number: (-rounded[number], texts[number]))
        kept = [*characters, *others[: size - len(characters)]]
        return sorted(((texts[number], rounded[number]) for number in kept), key=lambda pair: (-pair[1], pair[0]))
