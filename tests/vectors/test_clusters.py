"""Context vectors, their clusters, and the number of senses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _cluster_kernels as kernels
from firth.vectors import clusters
from firth.vectors.clusters import (
    SenseInventory,
    context_space,
    find_senses,
    judge_split,
    relabel_text,
    sentence_idf,
    split_senses,
)
from firth.vectors.recipe import SenseRecipe
from firth.vectors.text import TrainingText
from tests.vectors.topic_text import TOPICS, WORDS, two_faced_text
from tests.vectors.word_groups import text_of


def bunches(sizes: list[int], spread: float, dimension: int = 40, seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows of length 1 around unrelated directions, which half each belongs to, and whose each is."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    owners = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = directions[owners] + spread * rng.normal(size=(owners.size, dimension)) / np.sqrt(dimension)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return rows, np.arange(owners.size) % 2, owners


# --- contexts -------------------------------------------------------------------------------------------------------


def slow_context(ids: list[int], position: int, window: int, vectors: Any, idf: Any) -> Any:
    """Context words without special tokens; the word itself counts towards the window but adds nothing."""
    left = [word for word in ids[:position][::-1] if word >= FIRST_WORD][:window]
    right = [word for word in ids[position + 1 :] if word >= FIRST_WORD][:window]
    total = np.zeros(vectors.shape[1])
    for word in left + right:
        if word != ids[position]:
            total += idf[word] * vectors[word].astype(np.float64)
    length = np.linalg.norm(total)
    return total / length if length else total


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_contexts_are_weighted_means(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    lines = [rng.integers(0, 12, size=length).tolist() for length in (1, 9, 30, 2, 0, 17)]
    text = text_of(lines, 12)
    text = replace(text, ids=text.ids.astype(dtype))
    vectors, idf = rng.normal(size=(12, 8)).astype(np.float32), rng.random(12).astype(np.float32)
    for window in (1, 3, 50):
        rows = clusters._contexts(text, np.arange(len(text.ids)), window, vectors, idf)
        twin = [slow_context(line, position, window, vectors, idf) for line in lines for position in range(len(line))]
        np.testing.assert_allclose(rows, twin, atol=1e-6)


def test_a_sentence_of_one_word_has_no_contexts() -> None:
    text = text_of([[5] * 1000, [5, 1, 1, 5]], 6)
    rows = clusters._contexts(
        text, np.flatnonzero(text.ids == 5), 5, np.ones((6, 3), np.float32), np.ones(6, np.float32)
    )
    assert not rows.any()


def test_idf_counts_sentences() -> None:
    text = text_of([[5, 6, 5], [5, 1], [], [7, 5, 5]], 9)
    expected = np.log([4 / 3, 4, 4])
    np.testing.assert_allclose(sentence_idf(text)[5:8], expected, rtol=1e-6)
    assert sentence_idf(text)[[0, 1, 8]].tolist() == [0, 0, 0]  # special ones, and a word that is not there


def test_positions_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_CHUNK", 7)
    ids = np.random.default_rng(0).integers(5, 8, size=500)
    text = text_of([ids.tolist()], 8)
    sizes = np.array([0, 0, 0, 0, 0, 10, 0, int(text.counts[7])])
    fives, sevens = clusters._sample_positions(text, [5, 7], sizes)
    every = np.flatnonzero(ids == 5)
    assert fives.tolist() == every[[-(-number * every.size // 10) for number in range(10)]].tolist()
    assert sevens.tolist() == np.flatnonzero(ids == 7).tolist()


def test_contexts_from_anywhere_spread_evenly() -> None:
    text = two_faced_text()
    vectors = np.random.default_rng(0).normal(size=(len(text.words), 6)).astype(np.float32)
    vectors[:, 0] += 3  # all words have much in common
    vectors[:, 1] *= 5
    idf = sentence_idf(text)
    rows = clusters._contexts(text, np.arange(len(text.ids)), 5, context_space(text, vectors, idf, 5), idf)
    moments = np.linalg.eigvalsh(rows.T @ rows / len(rows))
    assert np.linalg.norm(rows.mean(axis=0)) < 0.1
    assert moments.min() > 0.4 * moments.max()
    plain = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    before = clusters._contexts(text, np.arange(len(text.ids)), 5, plain, idf)
    moments = np.linalg.eigvalsh(before.T @ before / len(before))
    assert np.linalg.norm(before.mean(axis=0)) > 0.3
    assert moments.min() < 0.1 * moments.max()


# --- clusters -------------------------------------------------------------------------------------------------------


def test_lloyd_rounds() -> None:
    rows, _, _ = bunches([50, 40, 30], spread=1.0)
    members = np.sort(np.random.default_rng(0).permutation(120)[:90])
    centres = rows[members[:3]].copy()
    twin = centres.astype(np.float64)
    for _ in range(4):
        labels = (rows[members] @ twin.T).argmax(axis=1)
        twin = np.array([rows[members[labels == number]].sum(axis=0) for number in range(3)])
        lengths = np.linalg.norm(twin, axis=1)
        twin /= lengths[:, None]
    sums, counts = np.empty_like(centres), np.empty(3, dtype=np.int64)
    score = kernels.lloyd(rows, members, 4, centres, sums, counts)
    np.testing.assert_allclose(centres, twin, atol=1e-5)
    assert score == pytest.approx(lengths.sum(), rel=1e-5)  # a sum's length is the sum of cosines with its direction
    assert counts.tolist() == np.bincount(labels).tolist()


def test_first_centres_are_drawn_far_apart() -> None:
    rows, _, owners = bunches([500, 20, 20], spread=0.05)
    members = np.arange(540)
    centres = np.empty((3, rows.shape[1]), dtype=np.float32)
    first, apart = [], 0
    for start in range(300):
        kernels.kmeans_pp(rows, members, np.uint64(start * 7919), centres)
        found = [owners[np.flatnonzero(np.all(rows == centre, axis=1))[0]] for centre in centres]
        first.append(found[0])
        apart += len(set(found)) == 3
    assert abs(np.mean(np.array(first) == 0) - 500 / 540) < 0.06
    assert apart > 250  # evenly drawn rows would be from three bunches in one of a hundred


@pytest.mark.parametrize("sizes", [[400], [200, 200], [340, 60], [150, 150, 150], [100] * 5])
def test_number_of_senses_is_found(sizes: list[int]) -> None:
    rows, folds, owners = bunches(sizes, spread=2.0)
    parts = split_senses(rows, folds, 1, 10, 0.35, 0.05)
    assert len(parts) == len(sizes)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(rows)))
    if len(sizes) > 1:
        found = clusters._refine(rows, parts)
        assert found is not None
        nearest = np.argmax(rows @ found[0].T, axis=1)
        pure = sum(int(np.bincount(owners[nearest == sense]).max()) for sense in range(len(sizes)))
        assert pure > 0.93 * len(rows)


def test_at_most_so_many_senses() -> None:
    rows, folds, _ = bunches([100] * 5, spread=1.0)
    assert [len(split_senses(rows, folds, 1, most, 0.35, 0.05)) for most in (1, 2, 3, 10)] == [1, 2, 3, 5]


def test_words_that_stand_anywhere_are_not_split() -> None:
    rows, folds, _ = bunches([1000], spread=100.0)  # nearly even over the sphere
    split = judge_split(rows, np.arange(1000), folds, 1)
    assert split is not None
    assert split.overlap < 0  # two opposite sides, but of nothing:
    assert split.coherence == pytest.approx(2 / (np.pi * rows.shape[1]), rel=0.25)
    assert len(split_senses(rows, folds, 1, 10, 0.35, 4 * 2 / (np.pi * rows.shape[1]))) == 1


def test_overlap_is_that_of_the_true_directions() -> None:
    rng = np.random.default_rng(0)
    for cosine in (0.0, 0.5):
        directions = np.zeros((2, 40))
        directions[0, 0], directions[1, :2] = 1, (cosine, np.sqrt(1 - cosine**2))
        rows = directions[np.arange(4000) // 2 % 2] + 0.4 * rng.normal(size=(4000, 40)) / np.sqrt(10)
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        split = judge_split(rows, np.arange(4000), np.arange(4000) % 2, 3)
        assert split is not None
        assert split.overlap == pytest.approx(cosine, abs=0.06)


def test_too_few_or_empty_contexts_are_one_sense() -> None:
    rows, folds, _ = bunches([10, 10], spread=0.1)
    assert len(split_senses(rows, folds, 1, 10, 0.35, 0.05)) == 1
    assert [len(part) for part in split_senses(np.zeros((90, 3), np.float32), np.arange(90) % 2, 1, 10, 0.35, 0.0)] == [
        0
    ]


def test_few_rows_in_the_order_of_frequency() -> None:
    rows, folds, _ = bunches([300, 100, 200], spread=1.0)
    found = clusters._refine(rows, split_senses(rows, folds, 1, 10, 0.35, 0.05))
    assert found is not None
    np.testing.assert_allclose(found[1], [300 / 600, 200 / 600, 100 / 600], atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(found[0], axis=1), 1, atol=1e-6)
    mean = np.mean(np.max(rows @ found[0].T, axis=1))
    assert found[2][0] == pytest.approx(0.25 * mean * (40 - mean**2) / (1 - mean**2), rel=1e-3)


# --- texts ----------------------------------------------------------------------------------------------------------


def topic_vectors(text: TrainingText, dimension: int = 20) -> Any:
    """Words of a topic near each other."""
    rng = np.random.default_rng(3)
    topics = rng.normal(size=(TOPICS, dimension))
    vectors = 0.5 * rng.normal(size=(len(text.words), dimension))
    vectors[FIRST_WORD + 2 :] += np.repeat(topics, WORDS, axis=0)
    vectors[:FIRST_WORD] = 0
    return vectors.astype(np.float32)


def test_the_ambiguous_word_of_a_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_CHUNK", 1000)
    monkeypatch.setattr(clusters, "_MAX_POSITIONS", 500)
    monkeypatch.setattr(clusters, "_STRETCH_BITS", 6)
    text = two_faced_text()
    senses = find_senses(SenseRecipe(min_occurrences=20), text, topic_vectors(text), 0, 2)
    assert np.diff(senses.starts)[FIRST_WORD : FIRST_WORD + 2].tolist() == [2, 1]
    assert np.diff(senses.starts).sum() == len(text.words) + 1
    other = relabel_text(text, senses, 2)
    assert other.words[FIRST_WORD : FIRST_WORD + 3] == ["w5#1", "w5#2", "w6"]
    topics = [(other.ids[b:e], int(text.ids[b] - FIRST_WORD - 2) // WORDS) for b, e in _bounds(text)]
    chosen = {
        topic: {int(word) for ids, t in topics for word in ids if word in (5, 6) and t == topic} for topic in (0, 1)
    }
    assert len(chosen[0]) == len(chosen[1]) == 1
    assert chosen[0] != chosen[1]
    rest = text.ids != FIRST_WORD
    assert np.array_equal(other.ids[rest], text.ids[rest] + 1)


def _bounds(text: TrainingText) -> list[tuple[int, int]]:
    return list(itertools.pairwise(text.sentences.astype(int).tolist()))


def test_labels_are_the_most_probable_senses() -> None:
    text = two_faced_text(300)
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 4, size=len(text.words))
    counts[:FIRST_WORD] = 1
    several = int(counts[counts > 1].sum())
    senses = SenseInventory(
        np.concatenate([[0], np.cumsum(counts)]),
        *random_senses(several, 20),
        topic_vectors(text),
        sentence_idf(text),
        4,
    )
    ids = relabel_text(text, senses, 1).ids
    for begin, end in _bounds(text)[:40]:
        line = text.ids[begin:end].tolist()
        for position, word in enumerate(line):
            context = slow_context(line, position, 4, senses.vectors, senses.idf).astype(np.float32)
            chances = senses.probabilities(word, context)
            assert chances.sum() == pytest.approx(1)
            assert ids[begin + position] == senses.starts[word] + chances.argmax()


def random_senses(count: int, dimension: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(count, dimension)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return centres, rng.random(count).astype(np.float32), np.full(count, 9, dtype=np.float32)


def test_probabilities_by_hand() -> None:
    centres = np.array([[1, 0], [0, 1]], dtype=np.float32)
    priors, sharpness = np.array([0.75, 0.25], np.float32), np.array([2, 2], np.float32)
    vectors = np.array([[0, 0], [3, 0], [0, 1]], dtype=np.float32)
    senses = SenseInventory(
        np.array([0, 2, 3, 4]), centres, priors, sharpness, vectors, np.array([0, 1, 2], np.float32), 5
    )
    assert senses.probabilities(1, np.ones(2, np.float32)).tolist() == [1]
    assert senses.probabilities(0, np.zeros(2, np.float32)).tolist() == pytest.approx([0.75, 0.25])
    weights = np.array([0.75 * np.exp(2 * 0.6), 0.25 * np.exp(2 * 0.8)])
    assert senses.probabilities(0, np.array([3, 4], np.float32)) == pytest.approx(weights / weights.sum())
