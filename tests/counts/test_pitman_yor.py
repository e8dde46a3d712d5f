"""Pitman-Yor smoothing: what always holds, determinism, odd texts, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts.counting import count_sentences
from firth.counts.pitman_yor import PitmanYor, Seating, infer
from firth.counts.trie import ROOT, Trie
from firth.errors import RecipeError
from firth.tokens.tokenizer import BOS

VOCABULARY = 9
WORDS = 6
"""Four words, `<unk>` and the end."""

corpora = st.lists(st.lists(st.integers(5, 8), max_size=9), min_size=1, max_size=9)


def parents(trie: Trie) -> npt.NDArray[np.int64]:
    """The history of each node; -1 for the empty one."""
    histories = np.repeat(np.arange(trie.contexts), np.diff(trie.first.astype(np.int64)))
    return np.concatenate([np.full(trie.vocab_size, -1), histories])


def check(seating: Seating) -> None:
    """Every table has sent exactly one customer below, and all sums agree."""
    trie = seating.trie
    customers, tables = seating.dishes.T.astype(np.int64)
    assert np.all((tables <= customers) & ((tables > 0) == (customers > 0)))
    assert np.all((customers > 0) == ((trie.counts > 0) & (np.arange(customers.size) != BOS)))
    for node in range(trie.words.size):
        sizes = seating.table_sizes(node)
        assert (sum(sizes), len(sizes)) == (customers[node], tables[node])
        assert all(size > 0 for size in sizes)
    sent = np.zeros_like(customers)
    inner = trie.links != ROOT
    np.add.at(sent, trie.links[inner], tables[inner])
    for node in range(trie.words.size):
        ngram = trie.ngram(node)
        if len(ngram) == trie.order or (ngram[0] == BOS and len(ngram) > 1):
            assert sent[node] == 0
            sent[node] = trie.counts[node] * (ngram != [BOS])
    assert sent.tolist() == customers.tolist()
    for column in (0, 1):
        held = np.zeros(trie.contexts + 1, dtype=np.int64)
        np.add.at(held, parents(trie), seating.dishes[:, column])
        assert held.tolist() == seating.restaurants[:, column].tolist()


@given(corpora, st.integers(1, 5), st.integers(0, 3), st.floats(0, 0.999), st.floats(0, 50), st.integers(0, 1000))
def test_the_books_balance_after_any_number_of_moves(
    sentences: list[list[int]], order: int, sweeps: int, discount: float, concentration: float, seed: int
) -> None:
    seating = Seating(count_sentences(sentences, vocab_size=VOCABULARY, order=order))
    rng = np.random.default_rng(seed)
    check(seating)
    for _ in range(sweeps):
        seating.sweep(np.full(order, discount), np.full(order, concentration), 1 / WORDS, rng)
        check(seating)


def probability_sums(trie: Trie, found: PitmanYor) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What each history gives to its words and to the next shorter history; the empty history last."""
    above = parents(trie)
    level = np.repeat(np.arange(trie.order), np.diff(trie.levels))
    own = found.customers - found.discounts[level] * found.tables
    totals = np.zeros((3, trie.contexts + 1))
    for total, values in zip(totals, (found.customers, found.tables, own), strict=True):
        np.add.at(total, above, values)
    length = np.append(level[: trie.contexts] + 1, 0)
    seen = totals[0] > 0
    theta, d = found.concentrations[length[seen]], found.discounts[length[seen]]
    sums = totals[2][seen] / (theta + totals[0][seen])
    rest = (theta + d * totals[1][seen]) / (theta + totals[0][seen])
    assert own.min() >= 0
    return sums, rest


@given(corpora, st.integers(1, 5), st.integers(0, 1000))
def test_shares_add_up_and_parameters_are_in_range(sentences: list[list[int]], order: int, seed: int) -> None:
    trie = count_sentences(sentences, vocab_size=VOCABULARY, order=order)
    found = infer(trie, WORDS, sweeps=4, burn_in=1, seed=seed)
    sums, rest = probability_sums(trie, found)
    assert sums + rest == pytest.approx(1, abs=1e-12)
    assert np.all(rest > 0)
    assert np.all((found.discounts > 0) & (found.discounts < 1))
    assert np.all((found.concentrations > 0) & np.isfinite(found.concentrations))
    assert found.discounts.shape == found.concentrations.shape == (order,)


def test_the_means_are_those_of_the_kept_samples() -> None:
    trie = count_sentences([[5, 6, 5, 6, 5], [5, 5, 6]] * 3, vocab_size=VOCABULARY, order=3)
    seating, rng = Seating(trie), np.random.default_rng(4)
    d, theta, kept = seating.kneser_ney_discounts(), np.ones(3), []
    for _ in range(6):
        seating.sweep(d, theta, 1 / WORDS, rng)
        d, theta = seating.sample_parameters(d, theta, rng)
        kept.append((seating.dishes[:, 0].copy(), seating.dishes[:, 1].copy(), d, theta))
    found = infer(trie, WORDS, sweeps=6, burn_in=2, seed=4)
    for number, array in enumerate(astuple(found)):
        assert array == pytest.approx(np.mean([one[number] for one in kept[2:]], axis=0), abs=1e-12)


def test_a_seed_gives_one_answer_in_any_thread() -> None:
    trie = count_sentences([[5, 6, 5, 6, 5], [5, 5, 6], [7, 8, 7]] * 5, vocab_size=VOCABULARY, order=3)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda seed: infer(trie, WORDS, sweeps=20, burn_in=5, seed=seed), [3, 3, 3, 4]))
    results.append(infer(trie, WORDS, sweeps=20, burn_in=5, seed=3))
    for found in (*results[:3], results[4]):
        assert all(np.array_equal(a, b) for a, b in zip(astuple(results[0]), astuple(found), strict=True))
    assert not np.array_equal(results[0].tables, results[3].tables)


def test_fixed_parameters_stay() -> None:
    trie = count_sentences([[5, 6, 5, 6, 5], [5, 5, 6]], vocab_size=VOCABULARY, order=2)
    found = infer(trie, WORDS, sweeps=3, burn_in=1, discounts=[0.25, 0.5])
    assert found.discounts.tolist() == [0.25, 0.5]
    assert found.concentrations.tolist() != [1, 1]
    found = infer(trie, WORDS, sweeps=3, burn_in=1, concentrations=[0.0, 2.0])
    assert found.concentrations.tolist() == [0, 2]
    assert infer(trie, WORDS, discounts=[0.5, 0.5], concentrations=[1, 1]).concentrations.tolist() == [1, 1]


@pytest.mark.parametrize("order", [1, 2, 5, 8])
@pytest.mark.parametrize("sentences", [[[5]], [[]], [[5] * 300], [[5, 6, 7]] * 200, [[5]] * 3000, []])
def test_odd_texts(sentences: list[list[int]], order: int) -> None:
    trie = count_sentences(sentences, vocab_size=VOCABULARY, order=order)
    found = infer(trie, WORDS, sweeps=12, burn_in=2)
    assert all(np.all(np.isfinite(array)) for array in astuple(found))
    sums, rest = probability_sums(trie, found)
    assert sums + rest == pytest.approx(1, abs=1e-12)
    seating = Seating(trie)
    seating.sweep(found.discounts, found.concentrations, 1 / WORDS, np.random.default_rng(0))
    check(seating)


def test_what_cannot_be_done_is_refused() -> None:
    trie = count_sentences([[5, 6, 5]], vocab_size=VOCABULARY, order=3)
    with pytest.raises(RecipeError, match="larger than burn_in"):
        infer(trie, WORDS, sweeps=3, burn_in=3)
    with pytest.raises(RecipeError, match="below 1"):
        infer(trie, WORDS, discounts=[0.5, 0.5, 1.0])
    with pytest.raises(RecipeError, match="3 numbers"):
        infer(trie, WORDS, concentrations=[1.0])
    with pytest.raises(RecipeError, match="at least 0"):
        infer(trie, WORDS, concentrations=[1.0, float("nan"), 1.0])
    with pytest.raises(RecipeError, match="set one above 0"):
        infer(trie, WORDS, discounts=[0.0] * 3, concentrations=[0.0] * 3)
    links = trie.links.copy()
    links[trie.levels[2] :] = 5
    with pytest.raises(RecipeError, match="prune then"):
        infer(replace(trie, links=links), WORDS)
    counts = trie.counts.copy()
    counts[5] = 1 << 29
    with pytest.raises(RecipeError, match="use less text"):
        infer(replace(trie, counts=counts), WORDS)
