"""Training the pieces of a unigram model on word counts (Kudo, 2018).

The probability of a word is the sum over its segmentations of the product of the pieces' probabilities. Training starts
from many substrings and alternates between EM estimation and pruning until few enough pieces remain, by the rules of
SentencePiece. Sums run over the words in sorted order, so the order of the counts does not matter.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.errors import TokenizerError
from firth.progress import progress

_MIN_EXPECTED = 0.5  # pieces with a lower expected count are dropped
_DIGITS = 6  # decimals of a score, so that text formats preserve it

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def learn_pieces(
    words: Mapping[str, int],
    size: int,
    *,
    max_length: int = 16,
    seed_pieces: int | None = None,
    shrink: float = 0.75,
    rounds: int = 2,
) -> list[tuple[str, float]]:
    """At most `size` pieces with log-probabilities (nats), the most probable first.

    All characters, or the most frequent `size`, are included. Training starts from `seed_pieces` (default: ten times
    `size`, at least 100,000) and keeps the fraction `shrink` of them after every `rounds` EM steps.

    >>> words = {"walk": 8, "walks": 1, "walked": 4, "look": 9, "looks": 2, "looked": 5, "talk": 6, "talked": 3}
    >>> learn_pieces(words, 13)[:3]
    [('look', -1.549605), ('walk', -1.76064), ('talk', -1.76356)]
    """
    if size < 1 or max_length < 1 or rounds < 1 or not 0 < shrink < 1:
        raise TokenizerError("pieces need size, max_length and rounds of at least 1 and shrink between 0 and 1.")
    if seed_pieces is None:
        seed_pieces = min(max(10 * size, 100_000), 1_000_000)
    model = PieceModel(words, size, max_length, seed_pieces)
    goal = max(size * 11 // 10, model.characters)
    with progress("learning pieces", unit="rounds") as advance:
        while True:
            for _ in range(rounds):
                model.estimate()
                advance(1)
            if len(model) <= goal:
                return model.best(size)
            model.prune(max(goal, int(shrink * len(model))))


class _Words:
    """All distinct words concatenated, in sorted order."""

    def __init__(self, words: Mapping[str, int]) -> None:
        order = sorted(word for word, count in words.items() if word and count > 0)
        if not order:
            raise TokenizerError("there are no words to learn pieces from: give more text.")
        self.text = "".join(order)
        points = np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        occurs = np.zeros(0x110000, dtype=np.bool_)
        occurs[points] = True
        numbers = np.cumsum(occurs, dtype=np.int32) - 1
        self.alphabet = int(numbers[-1]) + 1  # number of distinct characters
        self.codes = numbers[points]  # a number for each character, ordered by code point
        self.bounds = np.cumsum([0, *map(len, order)], dtype=np.int64)
        self.counts = np.array([words[word] for word in order], dtype=np.int64)


@dataclass(frozen=True)
class _Substrings:
    """The distinct substrings of one length, numbered by first position."""

    length: int
    totals: Integers
    positions: npt.NDArray[np.int32]
    at: npt.NDArray[np.int32]  # positions where any of them occurs
    names: npt.NDArray[np.int32]  # its number, at each of `at`


def _find_substrings(words: _Words, max_length: int) -> Iterator[_Substrings]:
    """The characters, then the substrings of each length up to `max_length` that occur at least twice."""
    totals = np.zeros(words.alphabet, dtype=np.int64)
    np.add.at(totals, words.codes, np.repeat(words.counts, np.diff(words.bounds)))
    everywhere = np.arange(words.codes.size, dtype=np.int32)
    positions = np.empty(totals.size, dtype=np.int32)
    positions[words.codes[::-1]] = everywhere[::-1]  # the first occurrence is written last
    yield _Substrings(1, totals, positions, everywhere, words.codes)
    names = np.where(totals >= 2, np.arange(totals.size, dtype=np.int32), np.int32(-1))[words.codes]
    for length in range(2, max_length + 1):
        totals, positions, names = _extend(words, names, length)
        at = np.flatnonzero(names >= 0).astype(np.int32)
        if not at.size:
            return
        yield _Substrings(length, totals, positions, at, names[at])


def _extend(
    words: _Words, names: npt.NDArray[np.int32], length: int
) -> tuple[Integers, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Count and first position of each repeated substring of `length`, and its number at each position or -1."""
    # Both halves of a repeated substring are repeated: `names` are the numbers of the substrings one shorter.
    most = 1 + np.count_nonzero((names[:-1] >= 0) & (names[1:] >= 0))
    slots = np.zeros(1 << int(2 * most - 1).bit_length(), dtype=np.int32)
    keys, totals, positions = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    longer, count = name_longer(
        words.codes, words.bounds, words.counts, names, length - 1, slots, keys, totals, positions
    )
    kept = np.flatnonzero(totals[:count] >= 2)
    renamed = np.full(count + 1, -1, dtype=np.int32)  # index -1 is the last, which stays -1
    renamed[kept] = np.arange(kept.size, dtype=np.int32)
    return totals[kept], positions[kept], renamed[longer]


class PieceModel:
    """Pieces with log-probabilities, and their occurrences in the training words.

    Piece numbers are stable: characters first, by code point; a dropped piece has score minus infinity.

    >>> model = PieceModel({"aba": 2}, size=9, max_length=2, seed_pieces=9)
    >>> model.texts(), model.expect().round(3).tolist()
    (['a', 'b', 'ab', 'ba'], [2.133, 0.133, 0.933, 0.933])
    """

    def __init__(self, words: Mapping[str, int], size: int, max_length: int, seed_pieces: int) -> None:
        """Start from the characters and, unless these fill `size`, the substrings that cover most text."""
        self._words = _Words(words)
        self.characters = self._words.alphabet
        others = max(seed_pieces - self.characters, 0) if self.characters < size else 0
        levels = list(_find_substrings(self._words, max_length if others else 1))
        sizes = [level.totals.size for level in levels]
        totals = np.concatenate([level.totals for level in levels])
        lengths = np.repeat(np.array([level.length for level in levels], dtype=np.int32), sizes)
        cover = totals * lengths
        chosen = np.arange(totals.size) < self.characters
        chosen[self.characters + np.argsort(-cover[self.characters :], kind="stable")[:others]] = True
        self._frequency = totals[: self.characters]
        self._lengths = lengths[chosen]
        self._positions = np.concatenate([level.positions for level in levels])[chosen]
        self.scores: Floats = np.log(cover[chosen]) - np.log(cover[chosen].sum())
        numbers = np.where(chosen, np.cumsum(chosen) - 1, -1).astype(np.int32)
        self._link(levels, np.split(numbers, np.cumsum(sizes)[:-1]))

    def _link(self, levels: list[_Substrings], numbers: list[npt.NDArray[np.int32]]) -> None:
        """Build the edges: the pieces that start at each position, shortest first; `numbers` map names to pieces."""
        hits = [(level.at, pieces[level.names]) for level, pieces in zip(levels, numbers, strict=True)]
        hits = [(at[pieces >= 0], pieces[pieces >= 0]) for at, pieces in hits]
        degrees = np.zeros(self._words.codes.size, dtype=np.int64)
        for at, _ in hits:
            degrees[at] += 1
        self._offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(degrees)])
        self._edges = np.empty(int(self._offsets[-1]), dtype=np.int32)
        free = self._offsets[:-1].copy()
        for at, pieces in hits:
            self._edges[free[at]] = pieces
            free[at] += 1

    def __len__(self) -> int:
        return int(np.count_nonzero(self.scores > -np.inf))

    def texts(self) -> list[str]:
        pairs = zip(self._positions.tolist(), self._lengths.tolist(), strict=True)
        return [self._words.text[position : position + length] for position, length in pairs]

    def expect(self) -> Floats:
        words = self._words
        result: Floats = expect(words.bounds, words.counts, self._offsets, self._edges, self._lengths, self.scores)
        return result

    def estimate(self) -> None:
        """One EM step with the sparse prior of SentencePiece."""
        from scipy.special import digamma  # type: ignore[import-untyped]

        expected = self.expect()
        characters = expected[: self.characters]
        np.maximum(characters, _MIN_EXPECTED, out=characters)
        kept = expected >= _MIN_EXPECTED
        scores = np.full(expected.size, -np.inf)
        scores[kept] = digamma(expected[kept]) - digamma(expected[kept].sum())
        self._set_scores(scores)

    def prune(self, size: int) -> None:
        """Keep the characters and the other pieces with the largest loss, `size` in all."""
        words = self._words
        lattice = (self._offsets, self._edges, self._lengths, self.scores)
        loss = losses(self._positions, *lattice, count_best(words.bounds, words.counts, *lattice))
        ranked = np.argsort(-loss, kind="stable")[: size - self.characters]
        kept = np.concatenate([np.arange(self.characters), ranked[loss[ranked] > -np.inf]])
        scores = np.full(self.scores.size, -np.inf)
        scores[kept] = self.scores[kept]
        self._set_scores(scores)

    def _set_scores(self, scores: Floats) -> None:
        self.scores = scores
        self._edges = self._edges[: keep_edges(self._offsets, self._edges, scores)]

    def best(self, size: int) -> list[tuple[str, float]]:
        """The characters and the most probable other pieces, `size` in all, with rounded scores."""
        rounded = [round(score, _DIGITS) for score in self.scores.tolist()]
        texts = self.texts()
        characters = np.argsort(-self._frequency, kind="stable")[:size].tolist()
        others = [number for number in range(self.characters, len(texts)) if rounded[number] > -np.inf]
        others.sort(key=lambda number: (-rounded[number], texts[number]))
        kept = [*characters, *others[: size - len(characters)]]
        return sorted(((texts[number], rounded[number]) for number in kept), key=lambda pair: (-pair[1], pair[0]))


# All words are concatenated in `codes`; word w is `codes[bounds[w] : bounds[w + 1]]` and occurs `counts[w]` times. The
# pieces that start at position p are `edges[offsets[p] : offsets[p + 1]]`; none extends past the end of the word, and
# every character is a piece. A node is the number of characters of the word to the left of a possible boundary.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def name_longer(
    codes: Any, bounds: Any, counts: Any, names: Any, length: int, slots: Any, keys: Any, totals: Any, positions: Any
) -> Any:
    """Number the substrings that are one character longer: the number at each position or -1, and how many there are.

    `names` are the numbers of the substrings of `length`, -1 where one is not worth extending. A longer substring is
    identified by the number of its first part and its last character. Fills `keys`, `totals` (counts) and `positions`
    (of first occurrences); substrings are numbered in the order of positions.
    """
    longer = np.full(codes.size, -1, np.int32)
    mask = np.uint64(slots.size - 1)
    found = 0
    for word in range(counts.size):
        for position in range(bounds[word], bounds[word + 1] - length):
            if names[position] < 0 or names[position + 1] < 0:
                continue
            key = (np.int64(names[position]) << 21) | np.int64(codes[position + length])
            mixed = np.uint64(key) * _MULTIPLIER
            slot = (mixed ^ (mixed >> _HALF)) & mask
            name = slots[slot] - 1
            while name >= 0 and keys[name] != key:
                slot = (slot + np.uint64(1)) & mask
                name = slots[slot] - 1
            if name < 0:
                name = found
                slots[slot] = name + 1
                keys[name] = key
                totals[name] = 0
                positions[name] = position
                found += 1
            totals[name] += counts[word]
            longer[position] = name
    return longer, found


@njit(cache=True, nogil=True)
def keep_edges(offsets: Any, edges: Any, scores: Any) -> int:
    """Remove the edges of dropped pieces (score minus infinity); returns how many edges remain."""
    written = 0
    begin = offsets[0]
    for position in range(offsets.size - 1):
        end = offsets[position + 1]
        for edge in range(begin, end):
            if scores[edges[edge]] > -np.inf:
                edges[written] = edges[edge]
                written += 1
        offsets[position + 1] = written
        begin = end
    return written


@njit(cache=True, nogil=True)
def _best_segmentation(
    first: int, size: int, whole: bool, offsets: Any, edges: Any, lengths: Any, scores: Any, best: Any, back: Any
) -> None:
    """Fill `best` (score) and `back` (last piece) for each prefix of the `size` characters at position `first`.

    Pieces that extend past the end are skipped, and unless `whole` also the piece that spans all of it.
    """
    best[0] = 0.0
    best[1 : size + 1] = -np.inf
    for node in range(size):
        for edge in range(offsets[first + node], offsets[first + node + 1]):
            piece = edges[edge]
            after = node + lengths[piece]
            if after > size or (lengths[piece] == size and not whole):
                break  # pieces at a position are ordered by length
            score = best[node] + scores[piece]
            if score > best[after]:
                best[after] = score
                back[after] = piece


@njit(cache=True, nogil=True)
def _most_edges(bounds: Any, offsets: Any) -> int:
    most = 0
    for word in range(bounds.size - 1):
        most = max(most, offsets[bounds[word + 1]] - offsets[bounds[word]])
    return most


@njit(cache=True, nogil=True)
def expect(bounds: Any, counts: Any, offsets: Any, edges: Any, lengths: Any, scores: Any) -> Any:
    """The expected count of each piece over all segmentations of each word.

    Forward sums are relative to the best path to a node, so they neither overflow nor vanish in long words. The
    backward pass distributes the probability mass of a node in proportion to the forward flow into it.
    """
    expected = np.zeros(scores.size)
    max_length = np.max(bounds[1:] - bounds[:-1])
    best, ways, mass = np.empty(max_length + 1), np.empty(max_length + 1), np.empty(max_length + 1)
    back = np.empty(max_length + 1, np.int32)
    flow = np.empty(_most_edges(bounds, offsets))
    for word in range(counts.size):
        first, size = bounds[word], bounds[word + 1] - bounds[word]
        base = offsets[first]
        _best_segmentation(first, size, True, offsets, edges, lengths, scores, best, back)
        ways[0] = 1.0
        ways[1 : size + 1] = 0.0
        for node in range(size):
            for edge in range(offsets[first + node], offsets[first + node + 1]):
                piece = edges[edge]
                after = node + lengths[piece]
                amount = ways[node] * np.exp(best[node] + scores[piece] - best[after])
                flow[edge - base] = amount
                ways[after] += amount
        mass[size] = 1.0
        for node in range(size - 1, -1, -1):
            mass[node] = 0.0
            for edge in range(offsets[first + node], offsets[first + node + 1]):
                piece = edges[edge]
                after = node + lengths[piece]
                part = mass[after] * flow[edge - base] / ways[after]
                expected[piece] += counts[word] * part
                mass[node] += part
    return expected


@njit(cache=True, nogil=True)
def count_best(bounds: Any, counts: Any, offsets: Any, edges: Any, lengths: Any, scores: Any) -> Any:
    totals = np.zeros(scores.size)
    max_length = np.max(bounds[1:] - bounds[:-1])
    best, back = np.empty(max_length + 1), np.empty(max_length + 1, np.int32)
    for word in range(counts.size):
        node = bounds[word + 1] - bounds[word]
        _best_segmentation(bounds[word], node, True, offsets, edges, lengths, scores, best, back)
        while node > 0:
            totals[back[node]] += counts[word]
            node -= lengths[back[node]]
    return totals


@njit(cache=True, nogil=True)
def losses(positions: Any, offsets: Any, edges: Any, lengths: Any, scores: Any, totals: Any) -> Any:
    """The loss of log-likelihood if each piece is segmented in the best other way; -inf for unused pieces."""
    result = np.full(scores.size, -np.inf)
    max_length = np.max(lengths)
    best, back = np.empty(max_length + 1), np.empty(max_length + 1, np.int32)
    total = np.sum(totals)
    for piece in range(scores.size):
        node = lengths[piece]
        if node == 1 or totals[piece] == 0.0 or scores[piece] == -np.inf:
            continue
        _best_segmentation(positions[piece], node, False, offsets, edges, lengths, scores, best, back)
        if best[node] > scores[piece]:
            continue
        parts = 0
        other = 0.0
        while node > 0:
            other += np.log(totals[back[node]] + totals[piece])
            parts += 1
            node -= lengths[back[node]]
        other -= parts * np.log(total + totals[piece] * (parts - 1))
        result[piece] = totals[piece] * (np.log(totals[piece]) - np.log(total) - other)
    return result
