"""Adding and subtracting tries: equal, array by array, to counting the resulting text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts import merge
from firth.counts.counting import count_sentences
from firth.counts.merge import REMOVED, ListSink, combine, merge_tries, renumber
from firth.counts.trie import ROOT, Trie
from firth.errors import CorpusError, RecipeError
from firth.tokens.tokenizer import BOS, EOS

V = 10
Sentences = list[list[int]]


def slow_count(sentences: Sequence[Sequence[int]], vocabulary: int, order: int) -> Trie:
    """The trie by its definition: a dictionary of n-grams, sorted."""
    found: Counter[tuple[int, ...]] = Counter()
    for sentence in sentences:
        words = (BOS, *sentence, EOS)
        for n in range(1, order + 1):
            found.update(words[begin : begin + n] for begin in range(len(words) - n + 1))
    ngrams = [(word,) for word in range(vocabulary)]
    ngrams += sorted((ngram for ngram in found if len(ngram) > 1), key=lambda ngram: (len(ngram), ngram))
    number = {ngram: node for node, ngram in enumerate(ngrams)}
    levels = [sum(len(ngram) <= n for ngram in ngrams) for n in range(order + 1)]
    children = Counter(ngram[:-1] for ngram in ngrams if len(ngram) > 1)
    first = vocabulary + np.cumsum([0, *(children[ngram] for ngram in ngrams if len(ngram) < order)])
    return Trie(
        np.array(levels, dtype=np.int64),
        np.array([ngram[-1] for ngram in ngrams], dtype=np.uint32),
        first.astype(np.uint32),
        np.array([number.get(ngram[1:], ROOT) for ngram in ngrams], dtype=np.uint32),
        np.array([found[ngram] for ngram in ngrams], dtype=np.uint32),
    )


def assert_same(one: Trie, other: Trie) -> None:
    for name in ("levels", "words", "first", "links", "counts"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype, name
        assert left.tolist() == right.tolist(), name


def add(*tries: Trie, vocabulary: int = V) -> Trie:
    return combine(tries, [1] * len(tries), [None] * len(tries), vocabulary)


def subtract(whole: Trie, part: Trie, vocabulary: int = V) -> Trie:
    return combine([whole, part], [1, -1], [None, None], vocabulary)


texts = st.lists(st.lists(st.integers(5, V - 1), max_size=6), max_size=8)
orders = st.integers(1, 5)


@given(texts, orders)
def test_the_slow_reference_agrees_with_the_counter(text: Sentences, order: int) -> None:
    assert_same(count_sentences(text, vocab_size=V, order=order), slow_count(text, V, order))


@given(st.lists(texts, min_size=1, max_size=5), orders)
def test_shards_add_up_to_the_whole(shards: list[Sentences], order: int) -> None:
    merged = add(*(slow_count(shard, V, order) for shard in shards))
    assert_same(merged, slow_count([sentence for shard in shards for sentence in shard], V, order))


@given(texts, texts, orders)
def test_removing_is_training_without(kept: Sentences, removed: Sentences, order: int) -> None:
    whole = slow_count(kept + removed, V, order)
    assert_same(subtract(whole, slow_count(removed, V, order)), slow_count(kept, V, order))


@given(texts, texts, orders)
def test_removing_what_was_added_changes_nothing(text: Sentences, more: Sentences, order: int) -> None:
    one, other = (slow_count(part, V, order) for part in (text, more))
    assert_same(subtract(add(one, other), other), one)


@given(st.lists(texts, min_size=2, max_size=5), orders, st.data())
def test_words_are_mapped_to_another_vocabulary(shards: list[Sentences], order: int, data: st.DataObject) -> None:
    size = V + 3
    special = list(range(5))
    mappings = [special + data.draw(st.permutations(range(5, size)))[: V - 5] for _ in shards]
    merged = combine(
        [slow_count(shard, V, order) for shard in shards],
        [1] * len(shards),
        [np.array(mapping, dtype=np.uint32) for mapping in mappings],
        size,
    )
    text = [[m[word] for word in sentence] for shard, m in zip(shards, mappings, strict=True) for sentence in shard]
    assert_same(merged, slow_count(text, size, order))


@given(texts, orders, st.lists(st.integers(5, V - 1), min_size=V - 5, max_size=V - 5))
def test_words_may_be_merged(text: Sentences, order: int, ids: list[int]) -> None:
    mapping = np.array([0, 1, 2, 3, 4, *ids], dtype=np.uint32)
    expected = slow_count([[int(mapping[word]) for word in sentence] for sentence in text], V, order)
    assert_same(combine([slow_count(text, V, order)], [1], [mapping], V), expected)


@given(st.lists(texts, min_size=1, max_size=4), orders, st.integers(1, 5))
def test_the_size_of_the_buffers_does_not_matter(shards: list[Sentences], order: int, slots: int) -> None:
    tries = [slow_count(shard, V, order) for shard in shards]
    merged = merge_tries(tries, [1] * len(tries), V, ListSink, slots)
    assert_same(merged, slow_count([sentence for shard in shards for sentence in shard], V, order))


def test_by_hand() -> None:
    # <s> 5 6 </s> and <s> 5 5 </s>: bigrams (<s> 5) (</s> never leads) (5 </s>) (5 5) (5 6) (6 </s>)
    both = add(*(slow_count([sentence], 7, 2) for sentence in ([5, 6], [5, 5])), vocabulary=7)
    assert both.levels.tolist() == [0, 7, 12]
    assert both.words.tolist() == [0, 1, 2, 3, 4, 5, 6, 5, 3, 5, 6, 3]
    assert both.counts.tolist() == [0, 0, 2, 2, 0, 3, 1, 2, 1, 1, 1, 1]
    assert both.first.tolist() == [7, 7, 7, 8, 8, 8, 11, 12]
    assert both.links.tolist() == [int(ROOT)] * 7 + [5, 3, 5, 6, 3]


@pytest.mark.parametrize("order", [1, 8])
def test_sentences_shorter_than_the_order(order: int) -> None:
    text: Sentences = [[5], [], [5, 6, 5, 6, 5, 6, 5, 6, 5, 6], [7, 7]]
    parts = [slow_count([sentence], V, order) for sentence in text]
    assert_same(add(*parts), slow_count(text, V, order))
    assert_same(subtract(add(*parts), parts[2]), slow_count([text[0], text[1], text[3]], V, order))


def test_a_corpus_of_one_word_and_empty_parts() -> None:
    empty, one = slow_count([], 6, 3), slow_count([[5]], 6, 3)
    assert_same(add(empty, one, empty, one, vocabulary=6), slow_count([[5], [5]], 6, 3))
    assert_same(add(empty, empty, vocabulary=6), empty)
    assert_same(subtract(one, one, vocabulary=6), empty)


def test_a_smaller_vocabulary_grows() -> None:
    small = slow_count([[5, 6]], 7, 3)
    assert_same(add(small, vocabulary=V), slow_count([[5, 6]], V, 3))
    assert_same(add(small, slow_count([[9, 5]], V, 3)), slow_count([[5, 6], [9, 5]], V, 3))


def test_words_that_no_longer_occur_can_leave_the_vocabulary() -> None:
    left = subtract(slow_count([[5, 6], [7, 8]], 9, 3), slow_count([[5, 6]], 9, 3), vocabulary=9)
    mapping = np.array([0, 1, 2, 3, 4, REMOVED, REMOVED, 5, 6], dtype=np.uint32)
    assert_same(combine([left], [1], [mapping], 7), slow_count([[5, 6]], 7, 3))


@pytest.mark.parametrize(
    ("text", "removed", "order"),
    [
        ([[5, 6]], [[7]], 1),  # a word
        ([[5, 6]], [[5, 6], [5, 6]], 3),  # too often
        ([[5, 6], [6, 5]], [[5, 5]], 3),  # words that do occur, in another order
        ([[5, 6, 7], [9, 6, 8]], [[5, 6, 8]], 3),  # only a trigram is new, and its prefix vanishes
        ([[5, 6, 7], [9, 6, 8]], [[5, 6, 8]], 4),
    ],
)
def test_text_that_was_not_counted_cannot_be_removed(text: Sentences, removed: Sentences, order: int) -> None:
    with pytest.raises(CorpusError, match="was not part of"):
        subtract(slow_count(text, V, order), slow_count(removed, V, order))


def test_counts_that_need_more_than_32_bits() -> None:
    trie = slow_count([[5, 6]], V, 2)
    large = Trie(trie.levels, trie.words, trie.first, trie.links, trie.counts * np.uint32(3_000_000_000))
    assert large.counts.dtype == np.uint32
    double = add(large, large)
    assert double.counts.dtype == np.int64
    assert double.counts.tolist() == [2 * count for count in large.counts.tolist()]
    assert_same(subtract(double, large), large)  # narrow again
    mapping = np.array([0, 1, 2, 3, 4, 5, 5, 7, 8, 9], dtype=np.uint32)
    assert int(renumber(large, mapping, V).counts[5]) == 6_000_000_000


def test_orders_and_mappings_must_fit() -> None:
    one, other = slow_count([[5]], V, 2), slow_count([[5]], V, 3)
    with pytest.raises(RecipeError, match="orders \\[2, 3\\]"):
        add(one, other)
    for mapping in ([0, 1], [0, 1, 2, 3, 4, 55, 6, 7, 8, 9], [0, 1, 2, 3, 4, REMOVED, 5, 6, 7, 8]):
        with pytest.raises(ValueError, match="mapping"):
            combine([one], [1], [np.array(mapping, dtype=np.uint32)], V)
    with pytest.raises(ValueError, match="mapping"):
        combine([one], [1], [None], V - 1)
    with pytest.raises(ValueError, match="sign"):
        combine([], [], [], V)
    with pytest.raises(ValueError, match="sign"):
        combine([one], [2], [None], V)


def test_a_trie_that_is_not_sorted_is_refused() -> None:
    trie = slow_count([[5], [6]], V, 2)
    words = trie.words.copy()
    words[[V, V + 1]] = words[[V + 1, V]]
    with pytest.raises(ValueError, match="sorted"):
        add(Trie(trie.levels, words, trie.first, trie.links, trie.counts), trie)


def test_a_trie_that_was_pruned_is_refused() -> None:
    trie = slow_count([[5, 6, 7]], V, 3)
    links = trie.links.copy()
    links[-1] = 7  # shorter than it need be
    pruned = Trie(trie.levels, trie.words, trie.first, links, trie.counts)
    for mapping in (None, np.arange(V, dtype=np.uint32)[::-1]):
        with pytest.raises(RecipeError, match="pruned"):
            combine([trie, pruned], [1, 1], [mapping, mapping], V)


def test_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MAX_NODES", V + 3)
    with pytest.raises(RecipeError, match="lower the order"):
        add(slow_count([[5, 6]], V, 2), slow_count([[7]], V, 2))


def test_inputs_stay_as_they_are_and_may_be_read_only() -> None:
    one, other = slow_count([[5, 6]], V, 3), slow_count([[6, 5]], V, 3)
    for array in (one.words, one.first, one.links, one.counts):
        array.flags.writeable = False
    mapping = np.array([0, 1, 2, 3, 4, 9, 8, 7, 6, 5], dtype=np.uint32)
    combine([one, other], [1, 1], [mapping, mapping], V)
    assert_same(add(one, other), slow_count([[5, 6], [6, 5]], V, 3))
    assert_same(one, slow_count([[5, 6]], V, 3))
    assert_same(other, slow_count([[6, 5]], V, 3))
