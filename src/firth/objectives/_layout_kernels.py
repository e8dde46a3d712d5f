"""Numba kernels that lay out the sequences of objectives of sentences.

The random numbers of an example are a function of a key and of its number.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._noise_kernels import below, draw


@njit(cache=True, nogil=True)
def shuffled_order(count: Any, seed: Any, order: Any) -> Any:
    """Write a random permutation of `count` segments; returns its rank among all in lexicographic order."""
    order[:count] = np.arange(count)
    for last in range(count - 1, 0, -1):
        other = below(draw(seed, last), last + 1)
        order[last], order[other] = order[other], order[last]
    rank = np.int64(0)
    for place in range(count):
        smaller = 0
        for later in range(place + 1, count):
            smaller += order[later] < order[place]
        rank = rank * (count - place) + smaller
    return rank


@njit(cache=True, nogil=True)
def permute_paragraphs(
    sentences: Any, documents: Any, chosen: Any, limit: Any, most: Any, key: Any, starts: Any, ends: Any, labels: Any
) -> Any:
    """Write paragraphs of consecutive sentences, each split into 1 to `most` segments in a random order.

    The class of a paragraph of n segments is 1! + ... + (n - 1)! and the rank of its order. Returns the number of
    paragraphs.
    """
    order, cuts = np.empty(most, dtype=np.int64), np.empty(most + 1, dtype=np.int64)
    count = np.int64(0)
    for document in chosen:
        first = documents[document]
        while first < documents[document + 1]:
            last = first + 1
            while last < documents[document + 1] and sentences[last + 1] - sentences[first] <= limit:
                last += 1
            seed = draw(key, count)
            parts = 1 + below(draw(seed, 100), min(most, last - first))
            # Distinct random bounds between sentences: reservoir of `parts` - 1 of them, in order.
            cuts[0], found = first, 1
            for bound in range(first + 1, last):
                wanted = parts - found
                if below(draw(seed, 200 + bound - first), last - bound) < wanted:
                    cuts[found] = bound
                    found += 1
            cuts[parts] = last
            rank = shuffled_order(parts, draw(seed, 101), order)
            before, factorial = np.int64(0), np.int64(1)
            for number in range(1, parts):
                factorial *= number
                before += factorial
            for column in range(most):
                starts[count, column] = ends[count, column] = sentences[first]
                if column < parts:
                    starts[count, column] = sentences[cuts[order[column]]]
                    ends[count, column] = sentences[cuts[order[column] + 1]]
            if parts == 1:  # a single sentence may be longer
                ends[count, 0] = min(ends[count, 0], starts[count, 0] + limit)
            labels[count] = before + rank
            count += 1
            first = last
    return count


ADJACENT, SAME_DOCUMENT, OTHER_DOCUMENT = range(3)


@njit(cache=True, nogil=True)
def _another(sentence: Any, begin: Any, end: Any, count: Any, kind: Any, seed: Any) -> Any:
    """The second sentence of a pair of a kind; -1 if there is none."""
    if kind == ADJACENT:
        return sentence + 1 if sentence + 1 < end else -1
    if kind == SAME_DOCUMENT:
        low, high = max(begin, sentence - 1), min(end, sentence + 2)  # not the neighbours
        choices = end - begin - (high - low)
        if choices < 1:
            return -1
        other = begin + below(draw(seed, 2), choices)
        return other if other < low else other + high - low
    if count <= end - begin:
        return -1
    other = below(draw(seed, 3), count - (end - begin))
    return other if other < begin else other + end - begin


@njit(cache=True, nogil=True)
def pair_distances(sentences: Any, documents: Any, key: Any, starts: Any, ends: Any, labels: Any) -> Any:
    """Write a pair of sentences for each second sentence of a text: adjacent, of one document, or of two.

    All three are equally likely where they are possible. Returns the number of pairs.
    """
    count, all_of = np.int64(0), sentences.size - 1
    for document in range(documents.size - 1):
        begin, end = documents[document], documents[document + 1]
        for sentence in range(begin + below(draw(key, document), 2), end, 2):
            seed = draw(key ^ np.uint64(0x9E37), sentence)
            kind, other = below(draw(seed, 0), 3), np.int64(-1)
            for _ in range(3):
                other = _another(sentence, begin, end, all_of, kind, seed)
                if other >= 0:
                    break
                kind = (kind + 1) % 3
            if other < 0:
                continue
            starts[count, 0], ends[count, 0] = sentences[sentence], sentences[sentence + 1]
            starts[count, 1], ends[count, 1] = sentences[other], sentences[other + 1]
            labels[count] = kind
            count += 1
    return count
