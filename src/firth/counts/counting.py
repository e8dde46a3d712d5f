"""Counting: from a token store to a trie of all its n-grams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _count_kernels as kernels
from firth.counts.trie import ROOT, Trie
from firth.errors import RecipeError
from firth.progress import progress
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, MASK, UNK

_FIRST_WORD = MASK + 1
_FEW = 1 << 14  # tokens that are not worth a second thread
_MOST_NODES = (1 << 32) - 2

Words = npt.NDArray[np.uint32]


def count_store(
    store: TokenStore,
    vocabulary: int,
    order: int,
    begin: int = 0,
    end: int | None = None,
    threads: int | None = None,
) -> Trie:
    """All n-grams of the store's sentences from `begin` to `end`, up to the given order."""
    end = store.facts.sentences if end is None else end
    return count_text(lay_out(store, np.arange(begin, end)), vocabulary, order, threads)


def count_chosen(store: TokenStore, vocabulary: int, order: int, mask: npt.NDArray[np.bool_]) -> Trie:
    """All n-grams of the store's sentences for which the mask is true."""
    return count_text(lay_out(store, np.flatnonzero(mask)), vocabulary, order)


def lay_out(store: TokenStore, chosen: npt.NDArray[np.int64]) -> Words:
    """Sentences of a store as one text, each `<s> w1 ... wm </s>`."""
    lengths = store.sentences[chosen + 1] - store.sentences[chosen]
    text = np.empty(int(lengths.sum()) + 2 * chosen.size, dtype=np.uint32)
    kernels.lay_out(store.ids, store.sentences, chosen, _FIRST_WORD, BOS, EOS, UNK, text)
    return text


def count_sentences(sentences: Sequence[Sequence[int]], *, vocabulary: int, order: int) -> Trie:
    """All n-grams of sentences given as ids, which hold neither `<s>` nor `</s>`.

    >>> count_sentences([[5, 6, 5]], vocabulary=7, order=3).levels.tolist()
    [0, 7, 11, 14]
    """
    flat = [word for sentence in sentences for word in (BOS, *sentence, EOS)]
    return count_text(np.array(flat, dtype=np.uint32), vocabulary, order)


def count_text(text: Words, vocabulary: int, order: int, threads: int | None = None) -> Trie:
    """All n-grams of a text of sentences, each `<s> w1 ... wm </s>`."""
    if text.size >= _MOST_NODES:
        raise RecipeError("more than four thousand million tokens cannot be counted at once: count parts and merge.")
    with progress("counting n-grams", total=order * text.size, unit="tokens") as advance:
        counter = _Counter(text, vocabulary, 1 if text.size < _FEW else cores(threads))
        advance(text.size)
        for n in range(2, order + 1):
            counter.go_on(n, last=n == order)
            advance(text.size)
        return counter.trie()


class _Level:
    """The nodes of one length."""

    def __init__(self, words: Words, counts: Words, links: Words) -> None:
        self.words, self.counts, self.links = words, counts, links


class _Counter:
    """The n-grams of a text, found length by length."""

    def __init__(self, text: Words, vocabulary: int, threads: int) -> None:
        self.text = text
        self.threads = threads
        self.bits = max(1, int(vocabulary - 1).bit_length())
        counts = np.zeros(vocabulary, dtype=np.uint32)
        kernels.count_words(text, counts)
        self.levels = [_Level(np.arange(vocabulary, dtype=np.uint32), counts, np.full(vocabulary, ROOT))]
        self.firsts: list[Words] = []
        self.size = vocabulary  # nodes so far
        self.begins = (np.cumsum(counts, dtype=np.int64) - counts).astype(np.uint32)
        self.places = np.empty(text.size, dtype=np.uint32)
        kernels.sort_words(text, self.begins.copy(), self.places)
        self.keys = np.empty(text.size, dtype=np.uint32)
        self.ranks = np.empty(0, dtype=np.uint32)

    def go_on(self, n: int, last: bool) -> None:
        """Finds the n-grams of length `n` from those one shorter."""
        lower = self.levels[-1]
        children = np.empty(lower.words.size, dtype=np.uint32)
        parts = _share_out(lower.counts, self.threads)

        def sort(part: tuple[int, int]) -> None:
            groups = (self.begins, lower.counts, lower.words)
            kernels.sort_groups(self.text, n - 1, part, *groups, self.bits, EOS, self.places, self.keys, children)

        self._in_threads(sort, parts)
        total = int(children.sum(dtype=np.int64))
        if self.size + total > _MOST_NODES:
            raise RecipeError("there are more than four thousand million n-grams: lower the order or count less text.")
        first = np.cumsum(children, dtype=np.uint32) - children
        upper = _Level(*(np.empty(total, dtype=np.uint32) for _ in range(3)))
        begins = np.empty(total, dtype=np.uint32)
        ranks = np.empty(0 if last else self.text.size, dtype=np.uint32)

        def fill(part: tuple[int, int]) -> None:
            groups = (self.begins, lower.counts, lower.words)
            new = (upper.words, begins, upper.counts, upper.links, ranks)
            kernels.fill_level(part, *groups, EOS, self.places, self.keys, first, self.ranks, *new, self.size)

        self._in_threads(fill, parts)
        first += np.uint32(self.size)
        self.firsts.append(first)
        self.levels.append(upper)
        self.begins, self.ranks = begins, ranks
        self.size += total

    def trie(self) -> Trie:
        """One array of each kind; the parts are freed one by one, since together they are most of the memory."""
        levels = self.levels
        sizes = np.cumsum([0, *(level.words.size for level in levels)], dtype=np.int64)
        del self.text, self.places, self.keys, self.ranks, self.begins
        joined: list[Any] = []
        for name in ("words", "links", "counts"):
            joined.append(np.concatenate([getattr(level, name) for level in levels]))
            for level in levels:
                delattr(level, name)
        words, links, counts = joined
        first = np.concatenate([*self.firsts, np.array([self.size], dtype=np.uint32)])
        return Trie(sizes, words, first, links, counts)

    def _in_threads(self, work: Callable[[tuple[int, int]], None], parts: list[tuple[int, int]]) -> None:
        if self.threads == 1:
            for part in parts:
                work(part)
            return
        with ThreadPoolExecutor(self.threads) as executor:
            for _ in executor.map(work, parts):
                pass


def _share_out(counts: Words, threads: int) -> list[tuple[int, int]]:
    """Ranges of nodes with about the same number of places each."""
    if threads == 1 or counts.size == 0:
        return [(0, counts.size)]
    sums = np.cumsum(counts, dtype=np.int64)
    cuts = np.searchsorted(sums, sums[-1] * np.arange(1, 2 * threads) / (2 * threads))
    bounds = [0, *cuts.tolist(), counts.size]
    return [(a, b) for a, b in pairwise(bounds) if a < b]
