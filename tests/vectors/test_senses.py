"""Training senses, and models of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError, RecipeError, TrainingError
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import clusters
from firth.vectors.clusters import SenseInventory
from firth.vectors.job import VectorJob
from firth.vectors.recipe import SenseRecipe, Word2vecRecipe
from firth.vectors.senses import SenseModel, restore_senses, train_senses
from firth.vectors.text import TrainingText
from tests.memory_checkpointer import KilledError, MemoryCheckpointer
from tests.vectors.small_models import save_model, small_tokenizer
from tests.vectors.topic_text import TOPICS, WORDS, two_faced_text
from tests.vectors.word_groups import text_of

BASE = Word2vecRecipe(dimension=20, epochs=10, subsample=0, lr=0.025)
SMALL = SenseRecipe(base=BASE, min_training_words=0, min_occurrences=20)


def job_for(text: TrainingText, **options: Any) -> VectorJob:
    words = text.words[FIRST_WORD:]
    return VectorJob(text, small_tokenizer(words), "lines", **options)


# --- training -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_STRETCH_BITS", 6)


def same(one: SenseModel, two: SenseModel) -> bool:
    first, second = one.arrays(), two.arrays()
    return first.keys() == second.keys() and all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_the_same_bytes_for_any_number_of_threads() -> None:
    text = two_faced_text()
    one, three = (train_senses(SMALL, job_for(text, threads=threads)).model for threads in (1, 3))
    assert same(one, three)
    assert not same(one, train_senses(SMALL, job_for(text, seed=1)).model)


def test_interrupted_anywhere_and_gone_on_with() -> None:
    text, recipe = two_faced_text(1000), replace(SMALL, base=replace(BASE, negatives=5))
    whole = MemoryCheckpointer()
    expected = train_senses(recipe, job_for(text, checkpointer=whole))
    assert expected.metrics["ambiguous"] >= 1
    change = [state["facts"] is not None for _, state in whole.states].index(True)
    assert 1 <= change < len(whole.saved) - 1  # states of the first training, between them, and of the second
    for last in {1, change, change + 1, change + 2, len(whole.saved)}:
        checkpointer = MemoryCheckpointer(dies_after=last)
        with pytest.raises(KilledError):
            train_senses(recipe, job_for(text, checkpointer=checkpointer))
        found = train_senses(recipe, job_for(text, checkpointer=checkpointer))
        assert same(found.model, expected.model)
        assert (found.tokens, found.metrics) == (expected.tokens, expected.metrics)


def test_divergence_names_the_rate_of_the_base() -> None:
    fast = replace(SMALL, base=replace(BASE, lr=10.0, dimension=200, window=8, epochs=30))
    with pytest.raises(TrainingError, match=r"diverged: .* train with settings={'base.lr': 5}, say"):
        train_senses(fast, job_for(two_faced_text()))


def test_budgets_are_divided() -> None:
    text = two_faced_text()
    assert train_senses(SMALL, job_for(text, tokens=60_000)).tokens == pytest.approx(60_000, rel=0.2)
    assert train_senses(SMALL, job_for(text)).tokens == 2 * 10 * len(text.ids)
    more = train_senses(replace(SMALL, min_training_words=300_000), job_for(text)).tokens
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


def test_one_sense_if_max_senses_is_one() -> None:
    model = train_senses(replace(SMALL, max_senses=1), job_for(two_faced_text(300))).model
    assert model.words[FIRST_WORD:] == model.tokenizer.vocabulary[FIRST_WORD:]


def test_impossible_recipes() -> None:
    with pytest.raises(RecipeError, match=r"max_overlap=2 must be -1 to 1"):
        SenseRecipe(max_overlap=2)
    with pytest.raises(RecipeError, match="whole words"):
        SenseRecipe(base=Word2vecRecipe(min_n=3, max_n=6))
    with pytest.raises(RecipeError, match="window=0 must be 1 to 1000"):
        SenseRecipe(window=0)


# --- models ---------------------------------------------------------------------------------------------------------


def hand_made() -> SenseModel:
    """bank is a firm in three of four cases, and a shore; contexts are made of money and water."""
    words = ["bank", "money", "water", "the"]
    vectors = np.array([[1, 0], [0, 2], [1, 0.2], [0.1, 1], [1, 1]], dtype=np.float32)  # bank#1 bank#2 money water the
    special = np.zeros((FIRST_WORD, 2), dtype=np.float32)
    starts = np.concatenate([np.arange(FIRST_WORD + 1), FIRST_WORD + np.array([2, 3, 4, 5])])
    contexts = np.vstack([special, np.array([[0, 0], [1, 0], [0, 1], [0, 0]], dtype=np.float32)])
    idf = np.array([0] * FIRST_WORD + [2, 3, 3, 0], dtype=np.float32)
    priors, sharpness = np.array([0.75, 0.25], np.float32), np.array([4, 4], np.float32)
    senses = SenseInventory(starts, np.eye(2, dtype=np.float32), priors, sharpness, contexts, idf, 5)
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
    for query in (model.vector, model.senses, model.row, lambda word: model.sense(word, "money")):
        with pytest.raises(AbilityError, match="there is no vector for 'monye': did you mean 'money'"):
            query("monye")


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
        ("priors", np.array([1, 0], np.float32)),
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
        restore_senses(model.recipe, arrays, model.tokenizer, "lines")
