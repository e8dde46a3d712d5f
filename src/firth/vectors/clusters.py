"""Word sense induction by clustering contexts (Reisinger and Mooney 2010, Huang et al. 2012).

A context vector is the idf-weighted mean of the vectors of the words around, with unit norm. Word vectors are centred
and whitened first, so that random contexts are isotropic and common topics do not dominate.

A word's contexts are bisected recursively as long as the parts are distinct senses. That is judged on held-out contexts
by mean cosines of pairs: `w` within a part, `b` between the parts.

    b / sqrt(w0 w1) <= max_overlap   the parts have little in common: 0 is that of unrelated words
    min(w0, w1) >= 4 w idf' / idf    each part is coherent, compared with the parts of random contexts, whose w is about
                                     2 / (pi d); more so if the word's idf is below the median idf', because words that
                                     occur anywhere are function words
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
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _cluster_kernels as kernels
from firth.vectors._step_kernels import block_seed
from firth.vectors.cooccurrence import allocate_arrays, map_in_order
from firth.vectors.neighbours import Floats, one_blas_thread
from firth.vectors.recipe import SenseRecipe
from firth.vectors.text import TrainingText, bounds_of

Ints = npt.NDArray[np.int64]

_MAX_CONTEXTS = 2000  # of a word for sense induction
_MAX_POSITIONS = 1 << 24  # held at once
_CHUNK = 1 << 20  # tokens processed at once
_STRETCH_BITS = 10  # 2**10 adjacent tokens belong to one fold, because a text repeats itself
_MIN_CONTEXTS = 8  # held-out contexts of a sense
_RESTARTS = 8
_ROUNDS = 10
_MIN_COHERENCE = 4.0  # relative to that of bisected random contexts
_RANDOM_CONTEXTS = 20_000  # for whitening
_MIN_VARIANCE = 0.05  # relative to the mean variance, for whitening
_MAX_COSINE = 0.99  # mean cosine of contexts with their centre
_SHARPNESS_SCALE = 0.25  # calibrated: the words of a context are dependent


@dataclass(frozen=True, eq=False)
class SenseInventory:
    """The senses of all words, and the parameters of their disambiguation."""

    starts: Ints  # bounds of the senses of each word, most frequent first
    centres: Floats  # unit mean contexts of the senses of ambiguous words
    priors: Floats  # P(sense) of each of those
    sharpness: Floats  # von Mises-Fisher concentration of each of those
    vectors: Floats  # whitened word vectors that contexts are summed from
    idf: Floats
    window: int

    @cached_property
    def centre_starts(self) -> Ints:
        """Bounds of the centres of each word; words with one sense have none."""
        counts = np.diff(self.starts)
        return bounds_of(np.where(counts > 1, counts, 0))

    @cached_property
    def _scaled(self) -> tuple[Floats, Floats]:
        return self.centres * self.sharpness[:, None], np.log(self.priors)

    def probabilities(self, word: int, context: Floats) -> npt.NDArray[np.float64]:
        """P(sense | context) of a word's senses: prior * exp(sharpness * cosine), normalised."""
        low, high = self.centre_starts[word], self.centre_starts[word + 1]
        if low == high:
            return np.ones(1)
        centres, biases = self._scaled
        length = float(np.linalg.norm(context))
        scores = (centres[low:high] @ context / (length or 1.0) + biases[low:high]).astype(np.float64)
        probabilities = np.exp(scores - scores.max())
        return np.asarray(probabilities / probabilities.sum())

    def context(self, ids: npt.NDArray[np.uint32], word: int) -> Floats:
        """The summed contexts of all occurrences of a word in a text; the whole text if there are none."""
        total = np.zeros(self.vectors.shape[1], dtype=np.float32)
        one = np.empty_like(total)
        positions = np.flatnonzero(ids == word)
        for position in positions.tolist():
            kernels.sum_context(ids, 0, ids.size, position, self.window, FIRST_WORD, self.vectors, self.idf, one)
            total += one
        return total if positions.size else np.asarray(self.idf[ids] @ self.vectors[ids])

    def relabel(self, ids: npt.NDArray[np.uint32], bounds: Ints, out: npt.NDArray[np.uint32]) -> None:
        """Writes the most probable sense of each word in sentences."""
        centres, biases = self._scaled
        kernels.relabel(
            ids, bounds, self.window, FIRST_WORD, self.vectors, self.idf,
            self.starts, self.centre_starts, centres, biases, out,
        )  # fmt: skip

    def names(self, words: Sequence[str]) -> list[str]:
        """A name for each sense: the word, or word#1, word#2, ... with as many # as are needed to be unique.

        >>> none = np.zeros((0, 1), dtype=np.float32)
        >>> senses = SenseInventory(np.array([0, 2, 3, 4]), none, none, none, none, none, 5)
        >>> senses.names(["rock", "rock#2", "the"])
        ['rock##1', 'rock##2', 'rock#2', 'the']
        """
        known, found = set(words), []
        for word, count in zip(words, np.diff(self.starts).tolist(), strict=True):
            if count == 1:
                found.append(word)
                continue
            separator = "#"
            while any(f"{word}{separator}{number}" in known for number in range(1, count + 1)):
                separator += "#"
            found += [f"{word}{separator}{number}" for number in range(1, count + 1)]
        return found


class SplitQuality(NamedTuple):
    """The quality of a bisection on held-out contexts."""

    overlap: float  # mean cosine between the parts relative to that within them: the cosine of their true means
    coherence: float  # mean cosine of two contexts of one part, minimum of both


_WordSenses = tuple[Floats, Floats, Floats]  # centres, priors and sharpness of the senses of an ambiguous word


def find_senses(recipe: SenseRecipe, text: TrainingText, vectors: Floats, seed: int, threads: int) -> SenseInventory:
    """The senses of all words of a text, from its word vectors."""
    idf = sentence_idf(text)
    space = context_space(text, vectors, idf, recipe.window)
    sizes = np.minimum(text.counts, _MAX_CONTEXTS) * (
        (text.counts >= recipe.min_occurrences) & (idf > 0) & (recipe.max_senses > 1)
    )
    finder = _SenseFinder(recipe, text, space, idf, np.flatnonzero(sizes), seed)
    found: list[_WordSenses] = []
    counts = np.ones(len(text.words), dtype=np.int64)
    with ThreadPoolExecutor(threads) as pool, progress("finding senses", float(sizes.sum()), "contexts") as advance:
        for words in _word_groups(sizes):
            positions = _sample_positions(text, words, sizes)
            for word, senses in zip(words, pool.map(finder, words, positions), strict=True):
                if senses is not None:
                    found.append(senses)
                    counts[word] = len(senses[1])
                advance(float(sizes[word]))
    none = (np.zeros((0, space.shape[1]), np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32))
    centres, priors, sharpness = (np.concatenate(parts) for parts in zip(none, *found, strict=True))
    return SenseInventory(bounds_of(counts), centres, priors, sharpness, space, idf, recipe.window)


def sentence_idf(text: TrainingText) -> Floats:
    """log(sentences / sentences with the word); 0 for words that do not occur.

    >>> ids = np.array([5, 6, 5, 5, 7, 5], dtype=np.uint32)
    >>> text = TrainingText(ids, np.array([0, 2, 5, 6]), np.array([0, 3]), list("?????abc"))
    >>> [round(float(idf), 4) for idf in sentence_idf(text)[5:]]
    [0.0, 1.0986, 1.0986]
    """
    counts = np.zeros(len(text.words), dtype=np.int64)
    for ids, bounds, _ in _chunks(text):
        kernels.count_sentences(ids, bounds, np.full(len(text.words), -1, dtype=np.int64), counts)
    with np.errstate(divide="ignore"):
        idf = np.where(counts > 0, np.log((len(text.sentences) - 1) / counts), 0.0)
    idf[:FIRST_WORD] = 0
    return idf.astype(np.float32)


def context_space(text: TrainingText, vectors: Floats, idf: Floats, window: int) -> Floats:
    """Word vectors transformed so that random contexts have mean zero and identity covariance."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    weights = text.counts * idf
    weights /= max(float(weights.sum()), 1e-30)
    with one_blas_thread():
        centred = units - weights.astype(np.float32) @ units
        centred[:FIRST_WORD] = 0
        contexts = _contexts(text, _spread_positions(text, _RANDOM_CONTEXTS), window, centred, idf).astype(np.float64)
        variances, directions = np.linalg.eigh(contexts.T @ contexts / len(contexts))
        floor = max(_MIN_VARIANCE * float(variances.mean()), 1e-30)
        whitening = (directions / np.sqrt(np.maximum(variances, floor))).astype(np.float32)
        return np.ascontiguousarray(centred @ whitening)


class _SenseFinder:
    """Finds the senses of one word after the other."""

    def __init__(
        self, recipe: SenseRecipe, text: TrainingText, space: Floats, idf: Floats, words: Ints, seed: int
    ) -> None:
        self.recipe, self.text, self.space, self.idf, self.seed = recipe, text, space, idf, seed
        positions = _spread_positions(text, _MAX_CONTEXTS)
        rows = self._rows(positions)
        split = judge_split(rows, _nonzero(rows), _folds(positions), int(block_seed(seed, 1, 0)))
        least = 2 / (math.pi * space.shape[1])  # of uniform points on a sphere, bisected
        typical = float(np.median(idf[words])) if words.size else 0.0
        self.coherence = _MIN_COHERENCE * max(least, split.coherence if split else 0.0) * typical

    def __call__(self, word: int, positions: Ints) -> _WordSenses | None:
        rows = self._rows(positions)
        start = int(block_seed(self.seed, 0, word))
        coherence = self.coherence / float(self.idf[word])
        parts = split_senses(rows, _folds(positions), start, self.recipe.max_senses, self.recipe.max_overlap, coherence)
        return _refine(rows, parts) if len(parts) > 1 else None

    def _rows(self, positions: Ints) -> Floats:
        return _contexts(self.text, positions, self.recipe.window, self.space, self.idf)


def _spread_positions(text: TrainingText, count: int) -> Ints:
    return np.unique(np.arange(count) * len(text.ids) // count)


def _folds(positions: Ints) -> Ints:
    """0 or 1 for each position, constant within a stretch of text.

    The highest bit of a multiple of the golden ratio: balanced, but not alternating.
    """
    stretches = positions.astype(np.uint64) >> np.uint64(_STRETCH_BITS)
    return ((stretches * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63)).astype(np.int64)


def _nonzero(rows: Floats) -> Ints:
    return np.flatnonzero(np.any(rows != 0, axis=1))


def split_senses(rows: Floats, folds: Ints, start: int, max_parts: int, overlap: float, coherence: float) -> list[Ints]:
    """The row indices of each sense, at most `max_parts`; zero rows belong to none.

    Rows of one fold, 0 or 1, judge the bisection of the other.
    """
    pending, final = [_nonzero(rows)], list[Ints]()
    while pending and len(pending) + len(final) < max_parts:
        pending.sort(key=len)
        members = pending.pop()
        start = (start + 1) % 2**64
        split = judge_split(rows, members, folds, start)
        if split is None or split.overlap > overlap or split.coherence < coherence:
            final.append(members)
            continue
        labels = np.empty(members.size, dtype=np.int64)
        kernels.assign(rows, members, _bisect(rows, members, start), labels)
        pending += [members[labels == 0], members[labels == 1]]
    return final + pending


def judge_split(rows: Floats, members: Ints, folds: Ints, start: int) -> SplitQuality | None:
    """The mean quality of each fold's bisection on the other fold; None if a part has too few rows."""
    found = []
    sums, counts = np.empty((2, rows.shape[1]), dtype=np.float32), np.empty(2, dtype=np.int64)
    for fold in (0, 1):
        train, heldout = members[folds[members] == fold], members[folds[members] != fold]
        if min(train.size, heldout.size) < 2 * _MIN_CONTEXTS:
            return None
        kernels.assign_and_sum(rows, heldout, _bisect(rows, train, start), sums, counts)
        if counts.min() < _MIN_CONTEXTS:
            return None
        products = sums.astype(np.float64) @ sums.T.astype(np.float64)
        # A squared sum of n unit rows contains n squares, which are 1, and all pairs of different rows.
        within = (np.diag(products) - counts) / (counts * (counts - 1))
        if within.min() <= 0:
            return None
        between = products[0, 1] / (counts[0] * counts[1])
        found.append(SplitQuality(between / math.sqrt(within[0] * within[1]), within.min()))
    return SplitQuality(*np.mean(found, axis=0).tolist())


def _bisect(rows: Floats, members: Ints, start: int) -> Floats:
    centres = np.empty((2, rows.shape[1]), dtype=np.float32)
    kernels.spherical_kmeans(rows, members, np.uint64(start), _RESTARTS, _ROUNDS, centres)
    return centres


def _refine(rows: Floats, parts: Sequence[Ints]) -> _WordSenses | None:
    """Centres of all parts, refined jointly by k-means, largest first."""
    centres = np.array([rows[part].sum(axis=0) for part in parts])
    sums, counts = np.empty_like(centres), np.empty(len(centres), dtype=np.int64)
    members = np.sort(np.concatenate(parts))
    kernels.lloyd(rows, members, _ROUNDS, centres, sums, counts)
    kernels.assign_and_sum(rows, members, centres, sums, counts)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    if order.size < 2:
        return None
    lengths = np.linalg.norm(sums[order], axis=1)
    mean = min(float(lengths.sum()) / members.size, _MAX_COSINE)
    # Approximate maximum-likelihood concentration (Banerjee et al. 2005).
    sharpness = _SHARPNESS_SCALE * mean * (rows.shape[1] - mean**2) / (1 - mean**2)
    priors = (counts[order] / members.size).astype(np.float32)
    return sums[order] / lengths[:, None], priors, np.full(order.size, sharpness, dtype=np.float32)


def relabel_text(text: TrainingText, senses: SenseInventory, threads: int) -> TrainingText:
    """The text with words replaced by their most probable senses."""
    (out,) = allocate_arrays(len(text.ids), np.uint32)

    def relabel(ids: npt.NDArray[np.uint32], bounds: Ints, begin: int) -> int:
        senses.relabel(ids, bounds, out[begin : begin + ids.size])
        return ids.size

    with ThreadPoolExecutor(threads) as pool, progress("choosing senses", len(text.ids), "words") as advance:
        for size in map_in_order(pool, relabel, _chunks(text), max_pending=threads):
            advance(size)
    return TrainingText(out, text.sentences, text.documents, senses.names(text.words))


def _chunks(text: TrainingText) -> Iterator[tuple[npt.NDArray[np.uint32], Ints, int]]:
    """The text in runs of sentences: their ids, the bounds of the sentences, and the position of the first id."""
    blocks, sentences = text.split_blocks(_CHUNK, np.iinfo(np.int64).max)
    for first, last in zip(blocks[:-1].tolist(), blocks[1:].tolist(), strict=True):
        bounds = sentences[first : last + 1]
        yield np.array(text.ids[bounds[0] : bounds[-1]], dtype=np.uint32), bounds - bounds[0], int(bounds[0])


def _contexts(text: TrainingText, positions: Ints, window: int, vectors: Floats, idf: Floats) -> Floats:
    """(positions, dimension): the unit context vectors, or zeros."""
    rows = np.empty((positions.size, vectors.shape[1]), dtype=np.float32)
    ids, sentences = np.asarray(text.ids).view(), np.asarray(text.sentences).view()
    ids.flags.writeable = sentences.flags.writeable = False  # as a memory map is, so that kernels compile once
    kernels.unit_contexts(ids, sentences, positions, window, FIRST_WORD, vectors, idf, rows)
    return rows


def _word_groups(sizes: Ints) -> Iterator[list[int]]:
    """Words with a positive size, in groups of about `_MAX_POSITIONS` in all."""
    words = np.flatnonzero(sizes)
    runs = (np.cumsum(sizes[words]) - 1) // _MAX_POSITIONS
    for run in np.unique(runs):
        yield words[runs == run].tolist()


def _sample_positions(text: TrainingText, words: Sequence[int], sizes: Ints) -> list[Ints]:
    wanted = np.zeros_like(sizes)
    wanted[words] = sizes[words]
    starts = bounds_of(wanted)
    positions = np.empty(starts[-1], dtype=np.int64)
    seen, sampled = np.zeros_like(sizes), np.zeros_like(sizes)
    for begin in range(0, len(text.ids), _CHUNK):
        ids = np.array(text.ids[begin : begin + _CHUNK], dtype=np.uint32)
        kernels.sample_positions(ids, begin, text.counts, seen, starts, sampled, positions)
    return [positions[starts[word] : starts[word + 1]] for word in words]
