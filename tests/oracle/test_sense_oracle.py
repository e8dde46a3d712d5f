"""Planted senses: what multi-prototype vectors tell apart on the oracle's texts, and skip-gram cannot."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from firth.errors import AbilityError
from firth.text.corpus import read_corpus
from firth.text.oracle import OracleSource, oracle_source
from firth.vectors.job import VectorResult
from firth.vectors.model import VectorModel
from firth.vectors.recipe import SenseRecipe, Word2vecRecipe
from firth.vectors.senses import SenseModel, train_senses
from firth.vectors.word2vec import train_word2vec
from tests.vectors.word_groups import job_of, oracle_job

HELD_OUT = range(5000, 5150)  # the corpus has the documents up to number 1999


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> pytest.MonkeyPatch:
    patch = pytest.MonkeyPatch()
    patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
    return patch


@pytest.fixture(scope="module")
def trained(own_folder: pytest.MonkeyPatch) -> VectorResult:
    """What the recipe gives as it is."""
    return train_senses(SenseRecipe(), oracle_job(threads=2))


def occurrences(source: OracleSource) -> list[tuple[str, str, str]]:
    """The ambiguous words of texts that nobody has trained on: word, sentence, planted sense."""
    return [
        (word, sentence.text, sense)
        for index in HELD_OUT
        for sentence in source.sample_document(0, index, 10)
        for word, sense in zip(sentence.words, sentence.senses, strict=True)
        if sense is not None
    ]


def chosen_senses(model: SenseModel, source: OracleSource) -> list[tuple[str, float, str, bool]]:
    """For each occurrence the word, how probable the chosen sense is, the planted one, and whether they agree.

    A sense is named after the planted one that it is chosen for most often in the first half of the occurrences.
    """
    chosen = [(word, *model.sense(word, text), sense) for word, text, sense in occurrences(source)]
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for _, name, _, sense in chosen[::2]:
        votes[name][sense] += 1
    right = {name: counts.most_common(1)[0][0] for name, counts in votes.items()}
    return [(word, chance, sense, right.get(name) == sense) for word, name, chance, sense in chosen[1::2]]


def most_frequent(found: list[tuple[str, float, str, bool]]) -> float:
    """How often one who always says the more frequent sense of a word would be right."""
    senses: dict[str, Counter[str]] = defaultdict(Counter)
    for word, _, sense, _ in found:
        senses[word][sense] += 1
    return sum(max(counts.values()) for counts in senses.values()) / len(found)


def test_planted_senses_are_told_apart(trained: VectorResult) -> None:
    found = chosen_senses(trained.model, oracle_source("english"))
    accuracy = np.mean([agrees for *_, agrees in found])
    assert len(found) > 300
    assert accuracy > 0.93  # 0.97
    assert most_frequent(found) < 0.72
    chances = [chance for _, chance, _, _ in found]
    assert abs(np.mean(chances) - accuracy) < 0.04  # it knows how sure it may be


def test_only_ambiguous_words_have_several_senses(trained: VectorResult) -> None:
    planted = {word for word, _, _ in occurrences(oracle_source("english"))}
    assert len(planted) == 12  # six nouns and their plurals
    model = trained.model
    several = {word for word in model.tokenizer.vocabulary[5:] if len(model.senses(word)) > 1}
    assert planted <= several
    assert len(several - planted) < 0.1 * len(model.tokenizer.vocabulary)
    assert trained.metrics["ambiguous"] == len(several)
    assert not several & {"the", "every", "many", "very", "near", "old", "today", "."}


def nearest_class(vector: np.ndarray, model: VectorModel, classes: dict[str, list[str]]) -> str:
    def nearness(kind: str) -> float:
        others = np.array([model.vector(word) for word in classes[kind]])
        return float(np.mean(others @ vector / np.linalg.norm(others, axis=1)))

    return max(classes, key=nearness)


def test_sense_vectors_lie_with_their_class_and_skipgram_has_one_for_all(trained: VectorResult) -> None:
    source = oracle_source("english")
    model = trained.model
    plain = train_word2vec(Word2vecRecipe(), oracle_job(threads=2, tokens=1_000_000)).model
    classes = {kind: [word for word in words if word not in source.senses] for kind, words in source.classes.items()}
    classes = {kind: [word for word in words if len(model.senses(word)) == 1] for kind, words in classes.items()}
    found = {True: 0, False: 0}
    for word, kinds in source.senses.items():
        rows = [model.vectors[row] for row in model.rows_of(word)]
        found[True] += len({nearest_class(row, model, classes) for row in rows} & set(kinds))
        found[False] += nearest_class(plain.vector(word), plain, classes) in kinds
    assert found[True] >= 22  # of twelve words with two senses each
    assert found[False] <= 12  # one vector, one place
    with pytest.raises(AbilityError, match="train multi-prototype"):
        plain.similar("bank", context="the bank fails.")


def test_context_chooses_the_neighbours(trained: VectorResult) -> None:
    classes = oracle_source("english").classes

    def share(context: str, kind: str) -> float:
        near = [name.partition("#")[0] for name, _ in trained.model.similar("bank", 8, context=context)]
        return float(np.mean([word in classes[kind] for word in near]))

    assert share("every bank hires the clerk.", "firms") > 0.7
    assert share("every bank hires the clerk.", "places") < 0.3
    assert share("the sailor walks to the bank.", "places") > 0.7
    assert share("the sailor walks to the bank.", "firms") < 0.3


def test_chinese(own_folder: pytest.MonkeyPatch) -> None:
    source = oracle_source("chinese")
    model = train_senses(
        SenseRecipe(min_training_words=3_000_000), job_of(read_corpus("builtin:oracle-chinese"), threads=2)
    ).model
    found = [one for one in chosen_senses(model, source) if one[0] != "打"]
    assert np.mean([agrees for *_, agrees in found]) > 0.85
    assert most_frequent(found) < 0.75
