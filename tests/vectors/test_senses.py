"""Senses: how many there are, which one is meant, and models of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError, RecipeError
from firth.vectors import _cluster_kernels as kernels
from firth.vectors import clusters
from firth.vectors.clusters import Senses, context_space, divide, find_senses, judge, relabel_text, sentence_idf
from firth.vectors.job import Arrays, Job
from firth.vectors.recipe import SenseRecipe, Word2vecRecipe
from firth.vectors.senses import SenseModel, restore, train_senses
from firth.vectors.text import FIRST_WORD, TrainingText
from tests.vectors.small_models import save_model, small_tokenizer
from tests.vectors.word_groups import text_of

BASE = Word2vecRecipe(dimension=20, epochs=10, subsample=0, learning_rate=0.025)
SMALL = SenseRecipe(base=BASE, exposure=0, least=20)
TOPICS = 12
WORDS = 6  # of each topic


def two_faced_text(sentences: int = 1500, seed: int = 0) -> TrainingText:
    """Sentences about one of twelve topics each; word 5 stands in those of two topics, word 6 in all, others in one."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(sentences):
        topic = int(rng.integers(TOPICS))
        line = (FIRST_WORD + 2 + topic * WORDS + rng.integers(WORDS, size=8)).tolist()
        line.insert(4, FIRST_WORD if topic < 2 else FIRST_WORD + 1)
        line.insert(1, FIRST_WORD + 1)
        lines.append(line)
    return text_of(lines, FIRST_WORD + 2 + TOPICS * WORDS)


def job_for(text: TrainingText, **options: Any) -> Job:
    words = text.words[FIRST_WORD:]
    return Job(text, small_tokenizer(words), "lines", **options)


def bunches(sizes: list[int], spread: float, dimension: int = 40, seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows of length 1 around unrelated directions, which half each belongs to, and whose each is."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    owners = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = directions[owners] + spread * rng.normal(size=(owners.size, dimension)) / np.sqrt(dimension)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return rows, np.arange(owners.size) % 2, owners


# --- contexts -------------------------------------------------------------------------------------------------------


def slow_context(ids: list[int], place: int, window: int, vectors: Any, idf: Any) -> Any:
    """The words around, special ones passed over; the word itself takes room but adds nothing."""
    left = [word for word in ids[:place][::-1] if word >= FIRST_WORD][:window]
    right = [word for word in ids[place + 1 :] if word >= FIRST_WORD][:window]
    total = np.zeros(vectors.shape[1])
    for word in left + right:
        if word != ids[place]:
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
        twin = [slow_context(line, place, window, vectors, idf) for line in lines for place in range(len(line))]
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


def test_places_are_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_CHUNK", 7)
    ids = np.random.default_rng(0).integers(5, 8, size=500)
    text = text_of([ids.tolist()], 8)
    sizes = np.array([0, 0, 0, 0, 0, 10, 0, int(text.counts[7])])
    fives, sevens = clusters._pick_places(text, [5, 7], sizes)
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
    score = kernels.move_centres(rows, members, 4, centres, sums, counts)
    np.testing.assert_allclose(centres, twin, atol=1e-5)
    assert score == pytest.approx(lengths.sum(), rel=1e-5)  # a sum's length is the sum of cosines with its direction
    assert counts.tolist() == np.bincount(labels).tolist()


def test_first_centres_are_drawn_far_apart() -> None:
    rows, _, owners = bunches([500, 20, 20], spread=0.05)
    members = np.arange(540)
    centres = np.empty((3, rows.shape[1]), dtype=np.float32)
    first, apart = [], 0
    for start in range(300):
        kernels.draw_centres(rows, members, np.uint64(start * 7919), centres)
        found = [owners[np.flatnonzero(np.all(rows == centre, axis=1))[0]] for centre in centres]
        first.append(found[0])
        apart += len(set(found)) == 3
    assert abs(np.mean(np.array(first) == 0) - 500 / 540) < 0.06
    assert apart > 250  # evenly drawn rows would be from three bunches in one of a hundred


@pytest.mark.parametrize("sizes", [[400], [200, 200], [340, 60], [150, 150, 150], [100] * 5])
def test_number_of_senses_is_found(sizes: list[int]) -> None:
    rows, halves, owners = bunches(sizes, spread=2.0)
    parts = divide(rows, halves, 1, 10, 0.35, 0.05)
    assert len(parts) == len(sizes)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(rows)))
    if len(sizes) > 1:
        found = clusters._settle(rows, parts)
        assert found is not None
        nearest = np.argmax(rows @ found.centres.T, axis=1)
        pure = sum(int(np.bincount(owners[nearest == sense]).max()) for sense in range(len(sizes)))
        assert pure > 0.93 * len(rows)


def test_at_most_so_many_senses() -> None:
    rows, halves, _ = bunches([100] * 5, spread=1.0)
    assert [len(divide(rows, halves, 1, most, 0.35, 0.05)) for most in (1, 2, 3, 10)] == [1, 2, 3, 5]


def test_words_that_stand_anywhere_are_not_split() -> None:
    rows, halves, _ = bunches([1000], spread=100.0)  # nearly even over the sphere
    split = judge(rows, np.arange(1000), halves, 1)
    assert split is not None
    assert split.overlap < 0  # two opposite sides, but of nothing:
    assert split.coherence == pytest.approx(2 / (np.pi * rows.shape[1]), rel=0.25)
    assert len(divide(rows, halves, 1, 10, 0.35, 4 * 2 / (np.pi * rows.shape[1]))) == 1


def test_overlap_is_that_of_the_true_directions() -> None:
    rng = np.random.default_rng(0)
    for cosine in (0.0, 0.5):
        directions = np.zeros((2, 40))
        directions[0, 0], directions[1, :2] = 1, (cosine, np.sqrt(1 - cosine**2))
        rows = directions[np.arange(4000) // 2 % 2] + 0.4 * rng.normal(size=(4000, 40)) / np.sqrt(10)
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        split = judge(rows, np.arange(4000), np.arange(4000) % 2, 3)
        assert split is not None
        assert split.overlap == pytest.approx(cosine, abs=0.06)


def test_too_few_or_empty_contexts_are_one_sense() -> None:
    rows, halves, _ = bunches([10, 10], spread=0.1)
    assert len(divide(rows, halves, 1, 10, 0.35, 0.05)) == 1
    assert [len(part) for part in divide(np.zeros((90, 3), np.float32), np.arange(90) % 2, 1, 10, 0.35, 0.0)] == [0]


def test_few_rows_in_the_order_of_frequency() -> None:
    rows, halves, _ = bunches([300, 100, 200], spread=1.0)
    found = clusters._settle(rows, divide(rows, halves, 1, 10, 0.35, 0.05))
    assert found is not None
    np.testing.assert_allclose(found.shares, [300 / 600, 200 / 600, 100 / 600], atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(found.centres, axis=1), 1, atol=1e-6)
    mean = np.mean(np.max(rows @ found.centres.T, axis=1))
    assert found.sharpness[0] == pytest.approx(0.25 * mean * (40 - mean**2) / (1 - mean**2), rel=1e-3)


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
    monkeypatch.setattr(clusters, "_PLACES", 500)
    monkeypatch.setattr(clusters, "_STRETCH", 6)
    text = two_faced_text()
    senses = find_senses(SMALL, text, topic_vectors(text), 0, 2)
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
    senses = Senses(
        np.concatenate([[0], np.cumsum(counts)]),
        *random_senses(several, 20),
        topic_vectors(text),
        sentence_idf(text),
        4,
    )
    ids = relabel_text(text, senses, 1).ids
    for begin, end in _bounds(text)[:40]:
        line = text.ids[begin:end].tolist()
        for place, word in enumerate(line):
            context = slow_context(line, place, 4, senses.vectors, senses.idf).astype(np.float32)
            chances = senses.probabilities(word, context)
            assert chances.sum() == pytest.approx(1)
            assert ids[begin + place] == senses.starts[word] + chances.argmax()


def random_senses(count: int, dimension: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(count, dimension)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return centres, rng.random(count).astype(np.float32), np.full(count, 9, dtype=np.float32)


def test_probabilities_by_hand() -> None:
    centres = np.array([[1, 0], [0, 1]], dtype=np.float32)
    shares, sharpness = np.array([0.75, 0.25], np.float32), np.array([2, 2], np.float32)
    vectors = np.array([[0, 0], [3, 0], [0, 1]], dtype=np.float32)
    senses = Senses(np.array([0, 2, 3, 4]), centres, shares, sharpness, vectors, np.array([0, 1, 2], np.float32), 5)
    assert senses.probabilities(1, np.ones(2, np.float32)).tolist() == [1]
    assert senses.probabilities(0, np.zeros(2, np.float32)).tolist() == pytest.approx([0.75, 0.25])
    weights = np.array([0.75 * np.exp(2 * 0.6), 0.25 * np.exp(2 * 0.8)])
    assert senses.probabilities(0, np.array([3, 4], np.float32)) == pytest.approx(weights / weights.sum())


# --- training -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_STRETCH", 6)


def same(one: SenseModel, two: SenseModel) -> bool:
    first, second = one.arrays(), two.arrays()
    return first.keys() == second.keys() and all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_the_same_bytes_for_any_number_of_threads() -> None:
    text = two_faced_text()
    one, three = (train_senses(SMALL, job_for(text, threads=threads)).model for threads in (1, 3))
    assert same(one, three)
    assert not same(one, train_senses(SMALL, job_for(text, seed=1)).model)


class KilledError(Exception):
    """Stands for kill -9."""


class Memory:
    """A keeper that keeps copies as files would, and is interrupted at a given number of states."""

    def __init__(self, last: int) -> None:
        self.last, self.number = last, 0
        self.state: tuple[Arrays, str] | None = None
        self.stages: list[str] = []

    def due(self) -> bool:
        return True

    def keep(self, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self.state = {name: array.copy() for name, array in arrays.items()}, json.dumps(state)
        self.stages.append("first" if state["facts"] is None else "second")
        self.number += 1
        if self.number == self.last:
            raise KilledError

    def kept(self) -> tuple[Arrays, dict[str, Any]] | None:
        if self.state is None:
            return None
        arrays = {name: array.copy() for name, array in self.state[0].items()}
        for array in arrays.values():
            array.flags.writeable = False
        return arrays, json.loads(self.state[1])


def test_interrupted_anywhere_and_gone_on_with() -> None:
    text, recipe = two_faced_text(1000), replace(SMALL, base=replace(BASE, negatives=5))
    whole = Memory(-1)
    expected = train_senses(recipe, job_for(text, keeper=whole))
    assert expected.metrics["ambiguous"] >= 1
    change = whole.stages.index("second")
    assert 1 <= change < whole.number - 1  # states of the first training, between them, and of the second
    for last in {1, change, change + 1, change + 2, whole.number}:
        keeper = Memory(last)
        with pytest.raises(KilledError):
            train_senses(recipe, job_for(text, keeper=keeper))
        found = train_senses(recipe, job_for(text, keeper=keeper))
        assert same(found.model, expected.model)
        assert (found.tokens, found.metrics) == (expected.tokens, expected.metrics)


def test_budgets_are_shared() -> None:
    text = two_faced_text()
    assert train_senses(SMALL, job_for(text, tokens=60_000)).tokens == pytest.approx(60_000, rel=0.2)
    assert train_senses(SMALL, job_for(text)).tokens == 2 * 10 * len(text.ids)
    more = train_senses(replace(SMALL, exposure=300_000), job_for(text)).tokens
    assert more == pytest.approx(600_000, rel=0.1)
    assert train_senses(SMALL, job_for(text, seconds=0.5)).tokens > 0
    assert train_senses(SMALL, job_for(text, flops=1e7)).tokens > 0


def test_metrics() -> None:
    result = train_senses(SMALL, job_for(two_faced_text()))
    metrics = result.metrics
    assert metrics["words"] == 2 + TOPICS * WORDS
    assert metrics["vocabulary"] - metrics["words"] >= metrics["ambiguous"] >= 1
    assert json.loads(json.dumps(metrics)) == metrics
    assert list(metrics["examples"]["w5"])[:2] == ["w5#1", "w5#2"]
    assert len(metrics["losses"]) == len(metrics["first_losses"]) == 10
    assert result.model.recipe.base.negatives == 15  # what was left open is filled in


@pytest.mark.parametrize("lines", [[[5, 6], [5, 6, 6]], [[5, 6, 5, 6] * 50], [[5], [6]] * 30, [[5, 6, 7, 1, 1]] * 100])
def test_texts_that_tell_nothing(lines: list[list[int]]) -> None:
    model = train_senses(SMALL, job_for(text_of(lines, 8))).model
    assert np.diff(model.inventory.starts).tolist() == [1] * 8
    assert model.words[FIRST_WORD:] == model.tokenizer.vocabulary[FIRST_WORD:]
    assert model.sense("w5", "w6 w5")[0] == "w5"


def test_one_sense_if_one_is_asked_for() -> None:
    model = train_senses(replace(SMALL, senses=1), job_for(two_faced_text(300))).model
    assert model.words[FIRST_WORD:] == model.tokenizer.vocabulary[FIRST_WORD:]


def test_impossible_recipes() -> None:
    with pytest.raises(RecipeError, match=r"overlap=2 must be -1 to 1"):
        SenseRecipe(overlap=2)
    with pytest.raises(RecipeError, match="whole words"):
        SenseRecipe(base=Word2vecRecipe(min_n=3, max_n=6))
    with pytest.raises(RecipeError, match="context=0 must be 1 to 1000"):
        SenseRecipe(context=0)


# --- models ---------------------------------------------------------------------------------------------------------


def hand_made() -> SenseModel:
    """bank is a firm in three of four cases, and a shore; contexts are made of money and water."""
    words = ["bank", "money", "water", "the"]
    vectors = np.array([[1, 0], [0, 2], [1, 0.2], [0.1, 1], [1, 1]], dtype=np.float32)  # bank#1 bank#2 money water the
    special = np.zeros((FIRST_WORD, 2), dtype=np.float32)
    starts = np.concatenate([np.arange(FIRST_WORD + 1), FIRST_WORD + np.array([2, 3, 4, 5])])
    contexts = np.vstack([special, np.array([[0, 0], [1, 0], [0, 1], [0, 0]], dtype=np.float32)])
    idf = np.array([0] * FIRST_WORD + [2, 3, 3, 0], dtype=np.float32)
    shares, sharpness = np.array([0.75, 0.25], np.float32), np.array([4, 4], np.float32)
    senses = Senses(starts, np.eye(2, dtype=np.float32), shares, sharpness, contexts, idf, 5)
    tokenizer = small_tokenizer(words)
    return SenseModel(
        SenseRecipe(tokenizer=tokenizer.recipe), tokenizer, "lines", np.vstack([special, vectors]), senses=senses,
        counts=np.array([0] * FIRST_WORD + [60, 20, 9, 8, 7]), outputs=np.ones((FIRST_WORD + 5, 2), np.float32),
        words=senses.names(tokenizer.vocabulary),
    )  # fmt: skip


def test_names_and_vectors() -> None:
    model = hand_made()
    assert model.words[FIRST_WORD:] == ["bank#1", "bank#2", "money", "water", "the"]
    assert model.senses("bank") == model.senses("Bank") == ["bank#1", "bank#2"]
    assert model.senses("money") == ["money"]
    assert model.senses("BANK#2") == ["bank#2"]
    assert model.vector("bank").tolist() == [0.75, 0.5]
    assert model.vector("bank#2").tolist() == [0, 2]
    assert model.vector("water").tolist() == pytest.approx([0.1, 1])
    assert [model.row(word) for word in ("bank", "bank#2", "money")] == [5, 6, 7]
    for ask in (model.vector, model.senses, model.row, lambda word: model.sense(word, "money")):
        with pytest.raises(AbilityError, match="there is no vector for 'monye': did you mean 'money'"):
            ask("monye")


def test_the_context_tells_the_sense() -> None:
    model = hand_made()
    rich, wet = 0.75 * np.exp(4), 0.25
    assert model.sense("bank", "the bank has money") == ("bank#1", pytest.approx(rich / (rich + wet)))
    assert model.sense("bank", "the water")[0] == "bank#2"  # a context may leave the word out
    assert model.sense("bank", "water near the bank " + "the " * 9 + "money money bank")[0] == "bank#1"
    assert model.sense("bank", "") == ("bank#1", pytest.approx(0.75))
    assert model.sense("bank#2", "money") == ("bank#2", 1.0)
    assert model.sense("money", "water") == ("money", 1.0)


def test_similarities_by_hand() -> None:
    model = hand_made()
    money = np.array([1, 0.2]) / np.hypot(1, 0.2)
    assert model.similarity("bank", "money") == pytest.approx(0.75 * money[0] + 0.25 * money[1])
    assert model.similarity("bank#2", "money") == pytest.approx(money[1])
    assert model.similarity("bank", "bank") == pytest.approx(0.75**2 + 0.25**2)
    p, q = (chance for _, chance in (model.sense("bank", "money"), model.sense("bank", "water")))
    q = 1 - q  # of the first sense, too
    expected = p * q + (1 - p) * (1 - q)
    assert model.similarity_in_context("bank", "money", "bank", "water") == pytest.approx(expected)
    assert model.max_similarity_in_context("bank", "money", "bank", "water") == 0
    assert model.max_similarity_in_context("bank", "water", "bank", "water") == pytest.approx(1)


def test_neighbours() -> None:
    model = hand_made()
    assert [word for word, _ in model.similar("bank", 2, context="money")] == ["money", "the"]
    assert [word for word, _ in model.similar("bank", 2, context="water")] == ["water", "the"]
    merged = model.similar("bank", 3)  # the best cosine with any sense
    assert [word for word, _ in merged] == ["water", "money", "the"]
    assert merged[2][1] == pytest.approx(np.sqrt(0.5))
    assert [word for word, _ in model.similar("bank#1", 4)] == ["money", "the", "water", "bank#2"]
    assert [word for word, _ in model.similar("money", 9, exclude=["bank"])] == ["the", "water"]
    assert model.analogy(["bank"], [], 1)[0][0] == "the"
    assert model.odd_one_out(["bank#1", "money", "water"]) == "water"


def test_texts_are_means_of_the_senses_that_are_meant() -> None:
    model = hand_made()
    found = model.embed(["bank money", "bank water", "nothing", "bank"])
    expected = [[1, 0.1], [0.05, 1.5], [0, 0], [1, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_round_trip(tmp_path: Path) -> None:
    model = hand_made()
    again = load(save_model(model, tmp_path / "model"))
    assert isinstance(again, SenseModel)
    assert same(model, again)
    assert again.words == model.words
    assert again.sense("bank", "water") == model.sense("bank", "water")
    np.testing.assert_array_equal(again.embed(["bank water"]), model.embed(["bank water"]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("senses", None),
        ("senses", np.arange(10)),
        ("senses", np.array([0, 2, 3, 4, 5, 6, 7, 8, 9, 10])),
        ("senses", np.array([0, 1, 2, 3, 4, 5, 5, 7, 9, 10])),
        ("centres", np.ones((3, 2), np.float32)),
        ("shares", np.array([1, 0], np.float32)),
        ("sharpness", np.array([1, np.nan], np.float32)),
        ("contexts", np.ones((8, 2), np.float32)),
        ("idf", np.ones(9)),
        ("vectors", np.ones((9, 2), np.float32)),
        ("counts", None),
    ],
)
def test_damaged_arrays(name: str, value: Any) -> None:
    model = hand_made()
    arrays = model.arrays() | {name: value}
    arrays = {key: array for key, array in arrays.items() if array is not None}
    with pytest.raises(ArtifactError, match="train the model again"):
        restore(model.recipe, arrays, model.tokenizer, "lines")
