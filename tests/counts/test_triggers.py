"""Trigger pairs: counts and information against slow Python, and which pairs are chosen."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts import _maxent_kernels as kernels
from firth.counts.maxent_features import choose_triggers, next_occurrences, window_bounds
from firth.lm.language_model import TokenStream
from firth.tokens.tokenizer import FIRST_WORD

VOCABULARY = 10
SENTENCES = st.lists(st.lists(st.integers(FIRST_WORD, VOCABULARY - 1), max_size=6), min_size=1, max_size=8)


def near(stream: TokenStream, window: int) -> list[set[int]]:
    """The words in the window of each position."""
    found = []
    for sentence, (begin, end) in enumerate(zip(stream.bounds[:-1], stream.bounds[1:], strict=True)):
        text = max(s for s in range(sentence + 1) if stream.starts_document[s])
        for position in range(begin, end):
            found.append(set(stream.ids[max(stream.bounds[text], position - window) : position].tolist()))
    return found


def slow_pairs(stream: TokenStream, window: int) -> dict[tuple[int, int], tuple[int, float]]:
    """How often and how informatively each trigger is near each word, from the four cells of their table."""
    windows, pairs = near(stream, window), {}
    for a, b in product(range(FIRST_WORD, VOCABULARY), repeat=2):
        positions = list(zip(windows, stream.ids.tolist(), strict=True))
        cells = {(x, y): 0 for x in (True, False) for y in (True, False)}
        for words, following_word in positions:
            cells[a in words, following_word == b] += 1
        n, value = len(positions), 0.0
        for (x, y), cell in cells.items():
            if cell:
                row, column = cells[x, True] + cells[x, False], cells[True, y] + cells[False, y]
                value += cell / n * math.log(cell * n / (row * column))
        if cells[True, True]:
            pairs[a, b] = cells[True, True], value
    return pairs


def streams(sentences: list[list[int]], starts_document: int) -> TokenStream:
    """A stream in which a new text begins at every sentence whose bit is set in `starts_document`."""
    stream = TokenStream.of(sentences)
    flags = np.array([s == 0 or bool(starts_document >> s & 1) for s in range(len(sentences))])
    return stream._replace(starts_document=flags)


def test_information_by_hand() -> None:
    """Eight positions; the trigger is in the window of four, and the word occurs at three of these and at one other."""
    value = kernels.mutual_information(3, 4, 4, 8)
    expected = 2 * 3 / 8 * math.log(3 / 8 / (1 / 4)) + 2 * 1 / 8 * math.log(1 / 8 / (1 / 4))
    assert value == pytest.approx(expected, abs=1e-15)
    assert kernels.mutual_information(2, 4, 4, 8) == pytest.approx(0, abs=1e-15)
    assert kernels.mutual_information(4, 4, 4, 8) == pytest.approx(math.log(2), abs=1e-15)
    assert kernels.mutual_information(0, 4, 4, 8) == pytest.approx(math.log(2), abs=1e-15)


def test_a_small_text_by_hand() -> None:
    """`5 8 6` twice and `7 8 9` twice: with a window of two words, 5 triggers 6 and 7 triggers 9."""
    stream = TokenStream.of([[5, 8, 6], [7, 8, 9], [5, 8, 6], [7, 8, 9]], starts_document=True)
    pairs = choose_triggers(stream, VOCABULARY, 4, 2, per_word=1, min_count=1)
    found = dict(
        zip(zip(pairs.triggers.tolist(), pairs.words.tolist(), strict=True), pairs.counts.tolist(), strict=True)
    )
    assert found[5, 6] == found[7, 9] == 2
    n11, a, b, n = 2, 4, 2, 16  # 5 is near where 8 and 6 stand
    expected = sum(
        cell / n * math.log(cell * n / (row * column))
        for cell, row, column in ((n11, a, b), (a - n11, a, n - b), (n - a, n - a, n - b))
    )
    assert pairs.information[0] == pytest.approx(expected, abs=1e-15)
    assert pairs.information[:2].tolist() == pytest.approx([expected] * 2)


@given(SENTENCES, st.integers(0, 255), st.integers(1, 12))
def test_counts_and_information_are_right(sentences: list[list[int]], starts_document: int, window: int) -> None:
    stream = streams(sentences, starts_document)
    expected = slow_pairs(stream, window)
    pairs = choose_triggers(stream, VOCABULARY, 1000, window, per_word=100, min_count=1)
    assert set(zip(pairs.triggers.tolist(), pairs.words.tolist(), strict=True)) == set(expected)
    assert np.all(np.diff(pairs.information) <= 0)
    for a, b, count, information in zip(*(column.tolist() for column in pairs), strict=True):
        assert count == expected[a, b][0]
        assert information == pytest.approx(expected[a, b][1], abs=1e-12)


@given(SENTENCES, st.integers(0, 255), st.integers(1, 12))
def test_the_reach_of_a_word_is_counted(sentences: list[list[int]], starts_document: int, window: int) -> None:
    stream = streams(sentences, starts_document)
    reach = np.zeros(VOCABULARY, dtype=np.int64)
    ends = window_bounds(stream, window)[1]
    kernels.count_reach(stream.ids, next_occurrences(stream.ids, VOCABULARY), ends, window, reach)
    windows = near(stream, window)
    assert reach.tolist() == [sum(word in words for words in windows) for word in range(VOCABULARY)]


def test_only_so_many_for_each_word() -> None:
    rng = np.random.default_rng(0)
    stream = TokenStream.of(rng.integers(FIRST_WORD, VOCABULARY, (50, 8)).tolist())
    every = choose_triggers(stream, VOCABULARY, 1000, 5, per_word=100)
    some = choose_triggers(stream, VOCABULARY, 1000, 5, per_word=2)
    for word in range(FIRST_WORD, VOCABULARY):
        assert some.information[some.words == word].tolist() == every.information[every.words == word][:2].tolist()
    assert choose_triggers(stream, VOCABULARY, 3, 5).words.size == 3


def test_covered_pairs_are_left_out_but_not_repetitions() -> None:
    rng = np.random.default_rng(1)
    stream = TokenStream.of(rng.integers(FIRST_WORD, VOCABULARY, (50, 8)).tolist())
    covered = np.array(sorted(a * VOCABULARY + b for a in (5, 6) for b in range(VOCABULARY)))
    pairs = choose_triggers(stream, VOCABULARY, 1000, 5, per_word=100, covered=covered)
    left = {(a, b) for a, b in zip(pairs.triggers.tolist(), pairs.words.tolist(), strict=True) if a in (5, 6)}
    assert left == {(5, 5), (6, 6)}


def test_rare_words_and_special_tokens_are_excluded() -> None:
    stream = TokenStream.of([[5, 6, 1, 1, 7]] + [[5, 6, 1]] * 9)
    pairs = choose_triggers(stream, VOCABULARY, 1000, 50, min_count=2)
    assert {*pairs.triggers.tolist(), *pairs.words.tolist()} == {5, 6}
    assert choose_triggers(TokenStream.of([[5, 6]]), VOCABULARY, 10, 5).words.size == 0
    assert choose_triggers(TokenStream.of([]), VOCABULARY, 10, 5).words.size == 0


def test_threads_do_not_change_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.counts.maxent_features._TRIGGER_BLOCK", 50)
    rng = np.random.default_rng(2)
    stream = TokenStream.of(rng.integers(FIRST_WORD, VOCABULARY, (100, 10)).tolist())
    one = choose_triggers(stream, VOCABULARY, 9, 20, threads=1)
    two = choose_triggers(stream, VOCABULARY, 9, 20, threads=2)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
