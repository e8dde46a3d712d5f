"""Entities and words of tags: CoNLL's rule by hand and against seqeval; SIGHAN's word F1 by hand."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval import metrics as seqeval
from seqeval.metrics.sequence_labeling import get_entities

from firth.metrics.bootstrap import resamples, values
from firth.metrics.measure import measure
from firth.metrics.tags import entities, has_entities, segments_sample, tags_sample, words

Sentences = list[list[str]]
BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = [*BIO, "E-PER", "S-PER", "E-LOC", "S-LOC"]


def random_tags(seed: int, tags: Sequence[str], sentences: int = 40) -> tuple[Sentences, Sentences]:
    """Tags without regard to any rule, so that most are illegal."""
    rng = np.random.default_rng(seed)
    gold = [rng.choice(tags, rng.integers(1, 9)).tolist() for _ in range(sentences)]
    predicted = [[tag if rng.random() < 0.7 else str(rng.choice(tags)) for tag in row] for row in gold]
    return gold, predicted


@pytest.mark.parametrize("tags", [BIO, BIOES, ["O", "I-PER", "B-PER", "I-A-B", "B-A-B"]], ids=["bio", "bioes", "dash"])
def test_entities_equal_seqeval(tags: list[str]) -> None:
    for seed in range(20):
        gold, predicted = random_tags(seed, tags)
        for row in gold:
            assert entities(row) == set(get_entities(row))
        found = values(tags_sample(gold, predicted))
        assert found == pytest.approx(
            {
                "accuracy": seqeval.accuracy_score(gold, predicted),
                "entity_f1": seqeval.f1_score(gold, predicted),
                "precision": seqeval.precision_score(gold, predicted),
                "recall": seqeval.recall_score(gold, predicted),
            }
        )


def test_resamples_draw_sentences() -> None:
    gold, predicted = random_tags(1, BIO, sentences=12)
    lengths = {len(row) for row in gold}
    assert len(lengths) > 1
    found = tags_sample(gold, predicted)
    assert found.counts.sum() == 12
    weights = next(resamples(found.counts, seed=0, samples=3))
    assert (weights.sum(axis=1) == 12).all()


def test_entities_by_hand() -> None:
    """The example of the CoNLL-2000 evaluation's kind: one right, one of the wrong kind, one of the wrong extent."""
    gold = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG", "I-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG", "O", "B-ORG", "O"]]
    found = measure("tag", gold, predicted)
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["recall"] == pytest.approx(1 / 3)
    assert found["entity_f1"] == pytest.approx(1 / 3)
    assert found["accuracy"] == pytest.approx(5 / 7)
    assert found["entity_f1_interval"] == [pytest.approx(1 / 3)] * 2  # one sentence


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["I-PER", "I-PER"], {("PER", 0, 1)}),  # IOB1
        (["I-PER", "B-PER"], {("PER", 0, 0), ("PER", 1, 1)}),
        (["B-PER", "I-LOC"], {("PER", 0, 0), ("LOC", 1, 1)}),
        (["B-X", "E-X", "I-X"], {("X", 0, 1), ("X", 2, 2)}),
        (["S-X", "E-X"], {("X", 0, 0), ("X", 1, 1)}),
        (["B-X", "O", "I-X"], {("X", 0, 0), ("X", 2, 2)}),
        (["O", "NOUN"], set()),
        ([], set()),
    ],
)
def test_illegal_tags_are_read_as_conlls_evaluation_reads_them(tags: list[str], expected: set[Any]) -> None:
    assert entities(tags) == expected


def test_tags_without_entities_have_accuracy_alone() -> None:
    found = measure("tag", [["NOUN", "VERB"], ["NOUN"]], [["NOUN", "NOUN"], ["NOUN"]])
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert "entity_f1" not in found
    assert not has_entities([["B", "I", "NOUN"]])
    assert "entity_f1" in measure("tag", [["O"]], [["B-X"]])


def test_words_by_hand() -> None:
    """计算机 | 科学 | 很 | 有趣 against 计算 | 机 | 科学 | 很 | 有趣: 3 right of 4, 5 said."""
    found = measure("segment", ["BIEBESBE"], ["BESBESBE"])
    assert found["recall"] == pytest.approx(3 / 4)
    assert found["precision"] == pytest.approx(3 / 5)
    assert found["word_f1"] == pytest.approx(2 / 3)
    assert found["accuracy"] == pytest.approx(6 / 8)


@pytest.mark.parametrize(
    ("tags", "cut"),
    [
        ("BMES", "BME|S"),
        ("BIIBI", "BII|BI"),  # without E and S
        ("IIE", "IIE"),
        ("EEI", "E|E|I"),
        ("BBE", "B|BE"),
        ("SIE", "S|IE"),
        ("", ""),
    ],
)
def test_every_character_is_in_one_word_whatever_the_tags(tags: str, cut: str) -> None:
    found = sorted((first, last) for _, first, last in words(tags))
    assert "|".join(tags[first : last + 1] for first, last in found) == cut


def test_word_f1_equals_the_overlap_of_character_ranges() -> None:
    rng = np.random.default_rng(6)
    gold, predicted = ([rng.choice(list("BIES"), 12).tolist() for _ in range(30)] for _ in range(2))
    both = sum(len(words(one) & words(two)) for one, two in zip(gold, predicted, strict=True))
    sizes = sum(len(words(one)) + len(words(two)) for one, two in zip(gold, predicted, strict=True))
    assert values(segments_sample(gold, predicted))["word_f1"] == pytest.approx(2 * both / sizes)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["conll2003_ner.dev.txt.gz", "msra_ner.dev.txt.gz"])
def test_real_entities_equal_seqeval(shared_data: Path, name: str) -> None:
    with gzip.open(shared_data / "tag" / name, "rt", encoding="utf-8") as lines:
        blocks = [block.split("\n") for block in lines.read(300_000).split("\n\n")[:-1]]
    gold = [[line.split()[-1] for line in block if line.strip()] for block in blocks]
    tags = sorted({tag for row in gold for tag in row})
    rng = np.random.default_rng(0)
    predicted = [[tag if rng.random() < 0.9 else str(rng.choice(tags)) for tag in row] for row in gold]
    found = values(tags_sample(gold, predicted))
    assert found["entity_f1"] == pytest.approx(seqeval.f1_score(gold, predicted))
    assert 0.3 < found["entity_f1"] < 0.9
