"""Probabilities in one byte each: 256 values for every length of n-gram.

Values are rounded down, never up, so that what is seen after a history never adds up to more than one; what that leaves
goes to the back-off weights, which are kept exact. A quantised model is a probability like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts.trie import Trie

_VALUES = 256


def quantise(trie: Trie, logp: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """The code of each n-gram, and the book of each length that says what the codes mean."""
    codes = np.empty(logp.size, dtype=np.uint8)
    books = np.full((trie.order, _VALUES), -np.inf)
    counts = np.asarray(trie.counts)
    for n in range(1, trie.order + 1):
        level = trie.level(n)
        values = logp[level].astype(np.float64)
        book = make_book(values, counts[level].astype(np.float64) + 1)
        codes[level] = np.searchsorted(book, values, side="right") - 1
        books[n - 1] = book
    first = trie.level(1)
    books[0] -= np.log(np.exp(books[0][codes[first]]).sum())  # unigrams have no back-off weight to make up for it
    return codes, books


def make_book(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """256 values, the lowest -inf if there is a zero, between which about the same weight lies."""
    finite = np.isfinite(values)
    book = np.full(_VALUES, -np.inf)
    if not finite.any():
        return book
    order = np.argsort(values[finite], kind="stable")
    known, sums = values[finite][order], np.cumsum(np.sqrt(weights[finite][order]))
    cuts = np.searchsorted(sums, np.linspace(0, sums[-1], _VALUES - 1, endpoint=False), side="left")
    book[1:] = known[np.minimum(cuts, known.size - 1)]
    book[1] = known[0]
    if finite.all():
        book[0] = known[0]
    return np.maximum.accumulate(book)
