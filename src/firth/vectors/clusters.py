"""The senses of words, found by clustering what stands around them (Reisinger and Mooney 2010, Huang et al. 2012).

A context is the idf-weighted mean of the vectors of the words around, at length 1. The vectors are centred and whitened
first, so that contexts from anywhere in the text point in all directions alike: what is left in common are meanings,
not the few topics that most of a text is about.

A word's contexts are split in two again and again, for as long as the parts are senses. That is judged on contexts that
the split has not seen, by mean cosines of two different contexts: `w` within a part, `b` between the parts.

    b / sqrt(w0 w1) <= overlap     the parts have little in common: 0 is what unrelated words have
    min(w0, w1) >= 4 w idf' / idf  each part is about something, unlike the parts of contexts from anywhere in the text,
                                   whose w is 2 / (pi d) or so; and more so if the word's idf is below the median idf',
                                   because words that stand anywhere are grammatical
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from firth.progress import progress
from firth.vectors import _cluster_kernels as kernels
from firth.vectors._step_kernels import random_start
from firth.vectors.cooccurrence import make_room
from firth.vectors.neighbours import Floats, one_blas_thread
from firth.vectors.recipe import SenseRecipe
from firth.vectors.text import FIRST_WORD, TrainingText

Ints = npt.NDArray[np.int64]

_SAMPLE = 2000  # contexts of a word that its senses are found from
_PLACES = 1 << 24  # that are held at once
_CHUNK = 1 << 20  # tokens that are looked at together
_STRETCH = 10  # 2**10 tokens in a row serve as a whole to find senses or to judge them: a text repeats itself
_FEWEST = 8  # contexts of a sense among those that judge it
_TRIES = 8
_ROUNDS = 10
_COHERENCE = 4.0  # times as much as contexts from anywhere have, after a split
_RANDOM = 20_000  # contexts from anywhere, that tell how contexts are spread
_FLOOR = 0.05  # of the mean variance: directions with less are not made larger than that
_LARGEST = 0.99  # mean cosine of contexts with their centre
_DEPENDENT = 0.25  # of the sharpness is left, as the words of a context depend on each other: so it is calibrated


@dataclass(frozen=True, eq=False)
class Senses:
    """The senses of all words, and what tells which of them is meant."""

    starts: Ints
    """The senses of word w are numbered from `starts[w]` to `starts[w + 1]`, the most frequent first."""
    centres: Floats
    """Mean contexts of length 1, of the senses of words that have several."""
    shares: Floats
    """How frequent each of those is among the senses of its word."""
    sharpness: Floats
    """How much the cosine with a context tells (von Mises-Fisher concentration), for each of those."""
    vectors: Floats
    """What contexts are made of: a row for each word."""
    idf: Floats
    window: int

    @cached_property
    def centre_starts(self) -> Ints:
        """Where the centres of each word begin, and the end; words with one sense have none."""
        counts = np.diff(self.starts)
        return _bounds(np.where(counts > 1, counts, 0))

    @cached_property
    def _scaled(self) -> tuple[Floats, Floats]:
        return self.centres * self.sharpness[:, None], np.log(self.shares)

    def probabilities(self, word: int, context: Floats) -> npt.NDArray[np.float64]:
        """P(sense | context) of a word's senses: share * exp(sharpness * cosine), divided by their sum."""
        low, high = self.centre_starts[word], self.centre_starts[word + 1]
        if low == high:
            return np.ones(1)
        centres, biases = self._scaled
        length = float(np.linalg.norm(context))
        scores = (centres[low:high] @ context / (length or 1.0) + biases[low:high]).astype(np.float64)
        chances = np.exp(scores - scores.max())
        return np.asarray(chances / chances.sum())

    def context(self, ids: npt.NDArray[np.uint32], word: int) -> Floats:
        """The sum of what stands around a word in a text, at all its places; of all the text if it is not there."""
        total = np.zeros(self.vectors.shape[1], dtype=np.float32)
        one = np.empty_like(total)
        places = np.flatnonzero(ids == word)
        for place in places.tolist():
            kernels.sum_context(
                ids, 0, ids.size, place, self.window, FIRST_WORD, self.vectors, self.idf, one
            )  # fmt: skip
            total += one
        return total if places.size else np.asarray(self.idf[ids] @ self.vectors[ids])

    def relabel(self, ids: npt.NDArray[np.uint32], bounds: Ints, out: npt.NDArray[np.uint32]) -> None:
        """Writes the number of the most probable sense of each word in sentences."""
        centres, biases = self._scaled
        kernels.relabel(
            ids, bounds, self.window, FIRST_WORD, self.vectors, self.idf,
            self.starts, self.centre_starts, centres, biases, out,
        )  # fmt: skip

    def names(self, words: Sequence[str]) -> list[str]:
        """A name for each sense: the word, or word#1, word#2, ... with as many # as it takes to be no other word.

        >>> none = np.zeros((0, 1), dtype=np.float32)
        >>> senses = Senses(np.array([0, 2, 3, 4]), none, none, none, none, none, 5)
        >>> senses.names(["rock", "rock#2", "the"])
        ['rock##1', 'rock##2', 'rock#2', 'the']
        """
        known, found = set(words), []
        for word, count in zip(words, np.diff(self.starts).tolist(), strict=True):
            if count == 1:
                found.append(word)
                continue
            mark = "#"
            while any(f"{word}{mark}{number}" in known for number in range(1, count + 1)):
                mark += "#"
            found += [f"{word}{mark}{number}" for number in range(1, count + 1)]
        return found


class Split(NamedTuple):
    """How two parts of contexts compare, judged by contexts that did not make them."""

    overlap: float
    """Mean cosine between the parts by that within them: the cosine of their true means."""
    coherence: float
    """Mean cosine of two contexts of one part, the smaller of both."""


class _Found(NamedTuple):
    """The senses of a word that has several."""

    centres: Floats
    shares: Floats
    sharpness: Floats


def find_senses(recipe: SenseRecipe, text: TrainingText, vectors: Floats, seed: int, threads: int) -> Senses:
    """The senses of all words of a text, from vectors of its words."""
    idf = sentence_idf(text)
    space = context_space(text, vectors, idf, recipe.context)
    sizes = np.minimum(text.counts, _SAMPLE) * ((text.counts >= recipe.least) & (idf > 0) & (recipe.senses > 1))
    finder = _Finder(recipe, text, space, idf, np.flatnonzero(sizes), seed)
    found: list[_Found] = []
    counts = np.ones(len(text.words), dtype=np.int64)
    with ThreadPoolExecutor(threads) as pool, progress("finding senses", float(sizes.sum()), "contexts") as advance:
        for words in _groups(sizes):
            places = _pick_places(text, words, sizes)
            for word, senses in zip(words, pool.map(finder, words, places), strict=True):
                if senses is not None:
                    found.append(senses)
                    counts[word] = len(senses.shares)
                advance(float(sizes[word]))
    none = _Found(np.zeros((0, space.shape[1]), np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32))
    centres, shares, sharpness = (np.concatenate(parts) for parts in zip(none, *found, strict=True))
    return Senses(_bounds(counts), centres, shares, sharpness, space, idf, recipe.context)


def sentence_idf(text: TrainingText) -> Floats:
    """ln(sentences / sentences with the word); 0 for words that do not occur.

    >>> ids = np.array([5, 6, 5, 5, 7, 5], dtype=np.uint32)
    >>> text = TrainingText(ids, np.array([0, 2, 5, 6]), np.array([0, 3]), list("?????abc"))
    >>> [round(float(idf), 4) for idf in sentence_idf(text)[5:]]
    [0.0, 1.0986, 1.0986]
    """
    counts = np.zeros(len(text.words), dtype=np.int64)
    for ids, bounds in _chunks(text):
        kernels.count_once(ids, bounds, np.full(len(text.words), -1, dtype=np.int64), counts)
    with np.errstate(divide="ignore"):
        idf = np.where(counts > 0, np.log((len(text.sentences) - 1) / counts), 0.0)
    idf[:FIRST_WORD] = 0
    return idf.astype(np.float32)


def context_space(text: TrainingText, vectors: Floats, idf: Floats, window: int) -> Floats:
    """Vectors of words such that contexts from anywhere in the text have mean zero and spread evenly."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    weights = text.counts * idf
    weights /= max(float(weights.sum()), 1e-30)
    with one_blas_thread():
        centred = units - weights.astype(np.float32) @ units
        centred[:FIRST_WORD] = 0
        wide = _contexts(text, _anywhere(text, _RANDOM), window, centred, idf).astype(np.float64)
        variances, directions = np.linalg.eigh(wide.T @ wide / len(wide))
        floor = max(_FLOOR * float(variances.mean()), 1e-30)
        whitening = (directions / np.sqrt(np.maximum(variances, floor))).astype(np.float32)
        return np.ascontiguousarray(centred @ whitening)


class _Finder:
    """Finds the senses of one word after the other."""

    def __init__(
        self, recipe: SenseRecipe, text: TrainingText, space: Floats, idf: Floats, words: Ints, seed: int
    ) -> None:
        self.recipe, self.text, self.space, self.idf, self.seed = recipe, text, space, idf, seed
        places = _anywhere(text, _SAMPLE)
        rows = self._rows(places)
        split = judge(rows, _meaningful(rows), _halves(places), int(random_start(seed, 1, 0)))
        least = 2 / (math.pi * space.shape[1])  # of points spread evenly over a sphere, cut through the middle
        typical = float(np.median(idf[words])) if words.size else 0.0
        self.coherence = _COHERENCE * max(least, split.coherence if split else 0.0) * typical

    def __call__(self, word: int, places: Ints) -> _Found | None:
        rows = self._rows(places)
        start = int(random_start(self.seed, 0, word))
        coherence = self.coherence / float(self.idf[word])
        parts = divide(rows, _halves(places), start, self.recipe.senses, self.recipe.overlap, coherence)
        return _settle(rows, parts) if len(parts) > 1 else None

    def _rows(self, places: Ints) -> Floats:
        return _contexts(self.text, places, self.recipe.context, self.space, self.idf)


def _anywhere(text: TrainingText, count: int) -> Ints:
    """Places evenly spread over the text."""
    return np.unique(np.arange(count) * len(text.ids) // count)


def _halves(places: Ints) -> Ints:
    """0 or 1 for each place, the same within a stretch of text.

    It is the highest bit of a multiple of the golden ratio: stretches are dealt out evenly, but not by turns.
    """
    stretches = places.astype(np.uint64) >> np.uint64(_STRETCH)
    return ((stretches * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63)).astype(np.int64)


def _meaningful(rows: Floats) -> Ints:
    """Which rows are not zero."""
    return np.flatnonzero(np.any(rows != 0, axis=1))


def divide(rows: Floats, halves: Ints, start: int, most: int, overlap: float, coherence: float) -> list[Ints]:
    """The rows of each sense, at most so many; rows of zeros are of none.

    `halves`, 0 or 1 for each row, says which rows judge what is found in the others.
    """
    waiting, settled = [_meaningful(rows)], list[Ints]()
    while waiting and len(waiting) + len(settled) < most:
        waiting.sort(key=len)
        members = waiting.pop()
        start = (start + 1) % 2**64
        split = judge(rows, members, halves, start)
        if split is None or split.overlap > overlap or split.coherence < coherence:
            settled.append(members)
            continue
        labels = np.empty(members.size, dtype=np.int64)
        kernels.label(rows, members, _two_centres(rows, members, start), labels)
        waiting += [members[labels == 0], members[labels == 1]]
    return settled + waiting


def judge(rows: Floats, members: Ints, halves: Ints, start: int) -> Split | None:
    """How a split in two of each half's rows compares on those of the other half; None if a part has too few."""
    found = []
    sums, counts = np.empty((2, rows.shape[1]), dtype=np.float32), np.empty(2, dtype=np.int64)
    for half in (0, 1):
        seen, unseen = members[halves[members] == half], members[halves[members] != half]
        if min(seen.size, unseen.size) < 2 * _FEWEST:
            return None
        kernels.add_up(rows, unseen, _two_centres(rows, seen, start), sums, counts)
        if counts.min() < _FEWEST:
            return None
        products = sums.astype(np.float64) @ sums.T.astype(np.float64)
        # A sum's square holds each of its n rows times itself, which is 1, and all pairs of different ones.
        within = (np.diag(products) - counts) / (counts * (counts - 1))
        if within.min() <= 0:
            return None
        between = products[0, 1] / (counts[0] * counts[1])
        found.append(Split(between / math.sqrt(within[0] * within[1]), within.min()))
    return Split(*np.mean(found, axis=0).tolist())


def _two_centres(rows: Floats, members: Ints, start: int) -> Floats:
    centres = np.empty((2, rows.shape[1]), dtype=np.float32)
    kernels.group(rows, members, np.uint64(start), _TRIES, _ROUNDS, centres)
    return centres


def _settle(rows: Floats, parts: Sequence[Ints]) -> _Found | None:
    """Centres of all parts, moved together once more, the one with most rows first."""
    centres = np.array([rows[part].sum(axis=0) for part in parts])
    sums, counts = np.empty_like(centres), np.empty(len(centres), dtype=np.int64)
    members = np.sort(np.concatenate(parts))
    kernels.move_centres(rows, members, _ROUNDS, centres, sums, counts)
    kernels.add_up(rows, members, centres, sums, counts)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    if order.size < 2:
        return None
    lengths = np.linalg.norm(sums[order], axis=1)
    mean = min(float(lengths.sum()) / members.size, _LARGEST)
    # An approximation of the most likely concentration in d dimensions (Banerjee et al. 2005).
    sharpness = _DEPENDENT * mean * (rows.shape[1] - mean**2) / (1 - mean**2)
    shares = (counts[order] / members.size).astype(np.float32)
    return _Found(sums[order] / lengths[:, None], shares, np.full(order.size, sharpness, dtype=np.float32))


def relabel_text(text: TrainingText, senses: Senses, threads: int) -> TrainingText:
    """The text with the number of the sense that is meant in the place of each word."""
    (out,) = make_room(len(text.ids), np.uint32)
    begin = 0

    def relabel(chunk: tuple[npt.NDArray[np.uint32], Ints], place: int) -> int:
        ids, bounds = chunk
        senses.relabel(ids, bounds, out[place : place + ids.size])
        return ids.size

    with ThreadPoolExecutor(threads) as pool, progress("choosing senses", len(text.ids), "words") as advance:
        waiting = []
        for chunk in _chunks(text):
            waiting.append(pool.submit(relabel, chunk, begin))
            begin += chunk[0].size
            if len(waiting) > threads:  # few chunks are held at once
                advance(waiting.pop(0).result())
        for future in waiting:
            advance(future.result())
    return TrainingText(out, text.sentences, text.documents, senses.names(text.words))


def _chunks(text: TrainingText) -> Iterator[tuple[npt.NDArray[np.uint32], Ints]]:
    """The text in runs of sentences: their ids, and where each begins in them, and the end."""
    cuts, sentences = text.cut(_CHUNK, np.iinfo(np.int64).max)
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        bounds = sentences[first : last + 1]
        yield np.array(text.ids[bounds[0] : bounds[-1]], dtype=np.uint32), bounds - bounds[0]


def _contexts(text: TrainingText, places: Ints, window: int, vectors: Floats, idf: Floats) -> Floats:
    """The contexts of places, a row of length 1 for each, or of zeros."""
    rows = np.empty((places.size, vectors.shape[1]), dtype=np.float32)
    ids, sentences = np.asarray(text.ids).view(), np.asarray(text.sentences).view()
    ids.flags.writeable = sentences.flags.writeable = False  # a memory map is so as well, and kernels compile once
    kernels.unit_contexts(ids, sentences, places, window, FIRST_WORD, vectors, idf, rows)
    return rows


def _groups(sizes: Ints) -> Iterator[list[int]]:
    """Words that have a size above 0, in runs of about `_PLACES` together."""
    words = np.flatnonzero(sizes)
    runs = (np.cumsum(sizes[words]) - 1) // _PLACES
    for run in np.unique(runs):
        yield words[runs == run].tolist()


def _pick_places(text: TrainingText, words: Sequence[int], sizes: Ints) -> list[Ints]:
    """Where each of the words occurs: so many places, evenly spread."""
    wanted = np.zeros_like(sizes)
    wanted[words] = sizes[words]
    starts = _bounds(wanted)
    places = np.empty(starts[-1], dtype=np.int64)
    seen, taken = np.zeros_like(sizes), np.zeros_like(sizes)
    for begin in range(0, len(text.ids), _CHUNK):
        ids = np.array(text.ids[begin : begin + _CHUNK], dtype=np.uint32)
        kernels.pick_places(ids, begin, text.counts, seen, starts, taken, places)
    return [places[starts[word] : starts[word + 1]] for word in words]


def _bounds(counts: Ints) -> Ints:
    bounds = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
