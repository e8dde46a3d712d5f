"""Counting against a plain Python reference."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts import counting
from firth.counts.counting import count_sentences, count_store, count_text
from firth.counts.trie import ROOT, Trie
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, UNK
from firth.tokens.train import train_tokenizer

SENTENCES = st.lists(st.lists(st.integers(5, 12), max_size=9), min_size=1, max_size=30)


def slow_counts(sentences: list[list[int]], n: int) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for sentence in sentences:
        words = (BOS, *sentence, EOS)
        found.update(words[i : i + n] for i in range(len(words) - n + 1))
    return found


def check(trie: Trie, sentences: list[list[int]]) -> None:
    for n in range(1, trie.order + 1):
        level = trie.level(n)
        ngrams = [tuple(trie.ngram(node)) for node in range(level.start, level.stop)]
        counts = dict(zip(ngrams, trie.counts[level].tolist(), strict=True))
        assert {ngram: count for ngram, count in counts.items() if count} == dict(slow_counts(sentences, n))
        assert n == 1 or ngrams == sorted(ngrams)
        for node, ngram in enumerate(ngrams, level.start):
            assert trie.find(ngram) == node
            assert trie.links[node] == (ROOT if n == 1 else trie.find(ngram[1:]))


@given(SENTENCES, st.integers(1, 8))
def test_counts_equal_the_reference(sentences: list[list[int]], order: int) -> None:
    check(count_sentences(sentences, vocab_size=13, order=order), sentences)


@pytest.mark.parametrize("size", [20, 300, 5000])
def test_large_groups_and_threads_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups for all three sort algorithms, with one thread and with three."""
    rng = np.random.default_rng(size)
    sentences = [rng.integers(5, 5 + size // 10, size=rng.integers(0, 40)).tolist() for _ in range(size)]
    flat = np.array([word for sentence in sentences for word in (BOS, *sentence, EOS)], dtype=np.uint32)
    vocabulary = 5 + size // 10
    monkeypatch.setattr(counting, "_PARALLEL_TOKENS", 0)
    one, three = (count_text(flat, vocabulary, 3, threads) for threads in (1, 3))
    for name in ("levels", "words", "first", "links", "counts"):
        assert np.array_equal(getattr(one, name), getattr(three, name)), name
    if size < 5000:
        check(one, sentences)
    else:
        assert one.counts[one.level(3)].sum() == slow_counts(sentences, 3).total()
        assert np.diff(one.levels).tolist()[1:] == [len(slow_counts(sentences, n)) for n in (2, 3)]


def test_a_store_is_counted_with_its_sentence_bounds() -> None:
    corpus = read_corpus([["a b <unk> a", "b </s> c"]], layout="lines")
    tokenizer = train_tokenizer(TokenizerRecipe(model="words"), corpus)
    store = open_store(corpus, tokenizer)
    trie = count_store(store, len(tokenizer), 2)
    a, b = tokenizer.id("a"), tokenizer.id("b")
    assert trie.counts[[UNK, BOS, EOS, a, b]].tolist() == [2, 2, 2, 2, 2], (
        "special tokens in the text are unknown words"
    )
    assert trie.find((BOS, a)) is not None
    assert trie.find((EOS, b)) is None, "nothing follows the end of a sentence"
    part = count_store(store, len(tokenizer), 2, 1, 2)
    assert part.counts[[BOS, a, b]].tolist() == [1, 0, 1]
