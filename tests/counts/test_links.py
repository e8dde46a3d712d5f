"""Suffix links lead to the longest proper suffix that is a node, also in pruned tries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts import trie as trie_module
from firth.counts.counting import count_sentences
from firth.counts.trie import ROOT, Trie, find_links

SENTENCES = st.lists(st.lists(st.integers(5, 8), max_size=7), min_size=1, max_size=6)


def all_grams(trie: Trie) -> list[tuple[int, ...]]:
    return [tuple(trie.ngram(node)) for node in range(trie.words.size)]


def slow_links(ngrams: list[tuple[int, ...]]) -> list[int]:
    """The index of the longest proper suffix of each n-gram, from a dictionary."""
    positions = {ngram: position for position, ngram in enumerate(ngrams)}
    return [
        next((positions[ngram[cut:]] for cut in range(1, len(ngram)) if ngram[cut:] in positions), int(ROOT))
        for ngram in ngrams
    ]


def trie_of(ngrams: set[tuple[int, ...]], vocabulary: int, order: int) -> Trie:
    """The trie of a set of n-grams that holds all their prefixes."""
    levels = [sorted(ngram for ngram in ngrams if len(ngram) == n) for n in range(2, order + 1)]
    nodes = [(word,) for word in range(vocabulary)] + [ngram for level in levels for ngram in level]
    sizes = np.cumsum([0, vocabulary, *map(len, levels)], dtype=np.int64)
    positions = {ngram: position for position, ngram in enumerate(nodes)}
    contexts = int(sizes[-2])
    children = np.zeros(contexts, dtype=np.int64)
    for ngram in nodes[vocabulary:]:
        children[positions[ngram[:-1]]] += 1
    first = np.concatenate([[0], np.cumsum(children)]) + vocabulary
    words = np.array([ngram[-1] for ngram in nodes], dtype=np.uint32)
    return Trie(sizes, words, first.astype(np.uint32), words, words)


@given(SENTENCES, st.integers(1, 5))
def test_agrees_with_counting(sentences: list[list[int]], order: int) -> None:
    trie = count_sentences(sentences, vocab_size=9, order=order)
    assert find_links(trie.levels, trie.words, trie.first).tolist() == trie.links.tolist()


@given(st.sets(st.lists(st.integers(0, 3), min_size=2, max_size=5).map(tuple), max_size=30))
def test_finds_the_longest_suffix_where_some_are_missing(chosen: set[tuple[int, ...]]) -> None:
    ngrams = {ngram[:n] for ngram in chosen for n in range(2, len(ngram) + 1)}
    trie = trie_of(ngrams, vocabulary=4, order=5)
    assert find_links(trie.levels, trie.words, trie.first).tolist() == slow_links(all_grams(trie))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_is_the_same_for_any_number_of_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trie_module, "_PARALLEL_NODES", 1)
    rng = np.random.default_rng(1)
    trie = count_sentences(rng.integers(5, 30, size=(200, 9)).tolist(), vocab_size=30, order=4)
    assert np.array_equal(find_links(trie.levels, trie.words, trie.first, threads), trie.links)
