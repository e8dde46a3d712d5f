"""Counting pairs against the obvious way of counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.errors import RecipeError
from firth.tokens.tokenizer import FIRST_WORD, UNK
from firth.vectors import cooccurrence
from firth.vectors.cooccurrence import Cooccurrence, Weighting, allocate_arrays, count_pairs
from tests.vectors.word_groups import text_of

SIZE = 12
SENTENCES = st.lists(st.lists(st.integers(UNK, SIZE - 1), max_size=9), max_size=20)


def slow_pairs(sentences: Sequence[Sequence[int]], window: int, weighting: Weighting) -> dict[tuple[int, int], float]:
    found: Counter[tuple[int, int]] = Counter()
    for sentence in sentences:
        words = [word for word in sentence if word >= FIRST_WORD]
        for i, one in enumerate(words):
            for j, two in enumerate(words):
                if 0 < abs(i - j) <= window:
                    found[one, two] += 1.0 if weighting == "flat" else 1.0 / abs(i - j)  # type: ignore[assignment]
    return dict(found)


def cells(table: Cooccurrence) -> dict[tuple[int, int], float]:
    return {(row, column): weight for row in range(len(table.starts) - 1) for column, weight in table.row(row).items()}


def random_sentences(count: int, words: int) -> list[list[int]]:
    """Some words frequent, most rare."""
    rng = np.random.default_rng(count)
    return [(FIRST_WORD + words * rng.random(rng.integers(0, 40)) ** 3).astype(int).tolist() for _ in range(count)]


def equal(one: Cooccurrence, two: Cooccurrence) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("starts", "columns", "weights"))


def test_the_survey_example_is_the_matrix_that_can_be_written_by_hand() -> None:
    sentence = ["i", "love", "you", "but", "you", "love", "him", "i", "am", "sad"]
    words = list(dict.fromkeys(sentence))
    table = count_pairs(text_of([[FIRST_WORD + words.index(word) for word in sentence]], FIRST_WORD + 7), window=2)
    matrix = np.zeros((7, 7), dtype=int)
    for (row, column), weight in cells(table).items():
        matrix[row - FIRST_WORD, column - FIRST_WORD] = weight
    assert words == ["i", "love", "you", "but", "him", "am", "sad"]
    assert matrix.tolist() == [
        [0, 2, 1, 0, 1, 1, 1],  # i: love you | love him am sad
        [2, 0, 2, 2, 1, 0, 0],  # love: i you but | but you him i
        [1, 2, 2, 2, 1, 0, 0],  # you: i love but you | you but love him
        [0, 2, 2, 0, 0, 0, 0],  # but: love you | you love
        [1, 1, 1, 0, 0, 1, 0],  # him: you love | i am
        [1, 0, 0, 0, 1, 0, 1],  # am: him i | sad
        [1, 0, 0, 0, 0, 1, 0],  # sad: i am
    ]


@settings(max_examples=60)
@given(SENTENCES, st.integers(1, 6), st.sampled_from(["flat", "harmonic"]))
def test_it_counts_what_there_is(sentences: list[list[int]], window: int, weighting: Weighting) -> None:
    """Windows end with the sentence and reach over special tokens, which are left out."""
    table = count_pairs(text_of(sentences, SIZE), window, weighting=weighting)
    assert cells(table) == pytest.approx(slow_pairs(sentences, window, weighting), rel=1e-6)


def test_a_large_vocabulary_comes_out_in_order_and_symmetric() -> None:
    sentences = random_sentences(2000, 20_000)
    table = count_pairs(text_of(sentences, 20_010), 5)
    assert cells(table) == slow_pairs(sentences, 5, "flat")
    for row in range(len(table.starts) - 1):
        assert np.all(np.diff(table.columns[table.starts[row] : table.starts[row + 1]].astype(int)) > 0)
    assert all(table.row(column)[row] == weight for (row, column), weight in list(cells(table).items())[::50])


def test_threads_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(random_sentences(500, 300), 310)
    whole = count_pairs(text, 4, weighting="harmonic")
    monkeypatch.setattr(cooccurrence, "_BLOCK", 100)
    assert equal(count_pairs(text, 4, weighting="harmonic", threads=1), whole)
    assert equal(count_pairs(text, 4, weighting="harmonic", threads=3), whole)


@pytest.mark.parametrize("memory", ["", "0"])
def test_parts_of_a_long_text_add_up_in_memory_and_on_disk(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(random_sentences(500, 300), 310)
    whole = count_pairs(text, 4)
    monkeypatch.setenv("FIRTH_MEMORY", memory)
    assert equal(count_pairs(text, 4), whole)
    monkeypatch.setattr(cooccurrence, "_CHUNK", 1000)
    assert equal(count_pairs(text, 4, threads=2), whole), "flat counts are whole numbers, so sums are exact"


def test_what_might_not_fit_into_memory_is_put_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_MEMORY", "1")
    (inside,) = allocate_arrays(1 << 17, np.float64)
    (outside,) = allocate_arrays((1 << 17) + 1, np.float64)
    assert inside.base is None
    assert outside.base is not None
    outside[-1] = 3.0
    assert outside.sum() == 3.0


@pytest.mark.parametrize("sentences", [[], [[]], [[UNK, UNK]], [[7], [8]]])
def test_a_text_without_pairs_has_an_empty_table(sentences: list[list[int]]) -> None:
    table = count_pairs(text_of(sentences, SIZE), 5)
    assert table.starts.tolist() == [0] * (SIZE + 1)
    assert len(table.columns) == len(table.weights) == 0


def test_a_window_may_be_wider_than_the_text() -> None:
    assert cells(count_pairs(text_of([[7, 8]], SIZE), 1000)) == {(7, 8): 1.0, (8, 7): 1.0}


def test_memory_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_MEMORY", "lots")
    with pytest.raises(RecipeError, match="whole number of megabytes"):
        count_pairs(text_of([[7, 8]], SIZE), 1)
