"""Sentence vectors: datasets by their names and columns, transfer, similarity and its remedies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr  # type: ignore[import-untyped]

import firth
from firth.errors import AbilityError, ArgumentError, CorpusError
from firth.report.sentences import (
    cosines,
    evaluate_sentences,
    fit_predict,
    group_files,
    whitened,
    without_first_component,
)
from tests.command import firth as command

GOOD, BAD = (
    ("fine lovely great film", "great fine work", "lovely film"),
    ("dull awful weak film", "weak dull work", "awful film"),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    text = [list(GOOD), list(BAD)] * 30
    settings = {"tokenizer.min_count": 1, "base.dimension": 8, "base.epochs": 20}
    return firth.train("sif", text, out=tmp_path_factory.mktemp("sif") / "m", settings=settings)


def write(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def labelled(path: Path, count: int = 20) -> Path:
    return write(
        path,
        "label\ttext_a",
        [f"{name}\t{text}" for name, texts in (("1", GOOD), ("0", BAD)) for text in texts] * count,
    )


def test_files_of_one_dataset_belong_together(tmp_path: Path) -> None:
    names = ("trec.train.tsv", "trec.test.tsv", "mr.tsv")
    sets = group_files([labelled(tmp_path / name) for name in names])
    assert [(one.name, set(one.parts), one.tested) for one in sets] == [
        ("trec", {"train", "test"}, "test"),
        ("mr", {"all"}, None),
    ]
    with pytest.raises(ArgumentError, match="part all"):
        group_files([labelled(tmp_path / "mr.tsv"), labelled(tmp_path / "mr.csv")])


def test_separable_texts_are_classified(model: Any, tmp_path: Path) -> None:
    found = evaluate_sentences(model, [labelled(tmp_path / "mr.tsv")])["sets"]["mr"]
    assert found["accuracy"] == 1.0
    assert found["folds"] == 10
    assert found["examples"] == 120
    assert found["majority"] == 0.5
    split = evaluate_sentences(model, [labelled(tmp_path / "a.train.tsv"), labelled(tmp_path / "a.test.tsv", 1)])
    assert split["sets"]["a"]["accuracy"] == 1.0
    assert split["sets"]["a"]["examples"] == 6


def test_random_labels_are_at_chance(model: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(2)}\t{text}" for text in (*GOOD, *BAD) * 100]
    found = evaluate_sentences(model, [write(tmp_path / "r.tsv", "label\ttext_a", rows)])["sets"]["r"]
    low, high = found["accuracy_interval"]
    assert low - 0.05 < 0.5 < high + 0.05


def test_correlations_are_those_of_scipy(model: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    texts = [*GOOD, *BAD]
    pairs = [(texts[a], texts[b]) for a, b in rng.integers(0, 6, (60, 2))]
    scores = rng.random(60).round(3)
    rows = [f"{score}\t{one}\t{two}" for score, (one, two) in zip(scores, pairs, strict=True)]
    report = evaluate_sentences(model, [write(tmp_path / "sts.tsv", "score\ttext_a\ttext_b", rows)])
    found = report["sets"]["sts"]
    one, two = (model.embed([pair[side] for pair in pairs]) for side in (0, 1))
    similarity = cosines(one, two)
    assert found["spearman"] == pytest.approx(spearmanr(similarity, scores).statistic, abs=1e-6)
    assert found["pearson"] == pytest.approx(pearsonr(similarity, scores).statistic, abs=1e-6)
    assert set(found["remedies"]) == {"first_component_off", "whitened"}
    assert "accuracy" not in found
    assert report["mean_spearman"] == found["spearman"]
    assert -1 <= report["mean_cosine"] <= 1


def test_sets_with_labels_and_scores_give_both(model: Any, tmp_path: Path) -> None:
    rows = [
        f"{label}\t{score}\t{one}\t{two}"
        for label, score, one, two in (
            ("same", 5, GOOD[0], GOOD[1]),
            ("other", 1, GOOD[0], BAD[0]),
            ("same", 4, BAD[0], BAD[1]),
        )
    ] * 15
    found = evaluate_sentences(model, [write(tmp_path / "sick.tsv", "label\tscore\ttext_a\ttext_b", rows)])["sets"][
        "sick"
    ]
    assert found["accuracy"] == 1.0
    assert found["spearman"] > 0.5


def test_remedies_by_their_definitions() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 5)) * [5, 1, 1, 0.5, 2] + 3
    one, two = rows[:100], rows[100:]
    white = np.vstack(whitened(one, two))
    np.testing.assert_allclose(np.cov(white, rowvar=False), np.eye(5), atol=1e-9)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-9)
    off = np.vstack(without_first_component(one, two))
    values = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    np.testing.assert_allclose(np.linalg.svd(off, compute_uv=False)[:4], values[1:], rtol=1e-9)


def test_sparse_and_dense_vectors_give_the_same_cosines() -> None:
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    one, two = rng.random((2, 6, 4))
    one[0] = 0
    np.testing.assert_allclose(cosines(one, two), cosines(csr_matrix(one), csr_matrix(two)), atol=1e-12)


def test_predictions_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    vectors, tested = rng.normal(size=(80, 4)), rng.normal(size=(30, 4))
    labels = (vectors[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(str)
    scaler = StandardScaler().fit(vectors)
    expected = LogisticRegression(C=0.1, max_iter=300).fit(scaler.transform(vectors), labels)
    assert (fit_predict(vectors, labels, tested, 0.1) == expected.predict(scaler.transform(tested))).all()


def test_bags_are_measured_and_the_command_line_prints_all(tmp_path: Path) -> None:
    firth.train("tfidf", [list(GOOD), list(BAD)] * 5, out=tmp_path / "m", settings={"tokenizer.min_count": 1})
    rows = [f"1.5\t{one}\t{two}" for one in GOOD for two in BAD] + [f"4\t{one}\t{one} work" for one in GOOD]
    files = [labelled(tmp_path / "mr.tsv"), write(tmp_path / "sts.tsv", "score\ttext_a\ttext_b", rows)]
    printed = command("evaluate", tmp_path / "m", "sentences", *files)
    assert printed.code == 0, printed.err
    assert "mr            accuracy  1.000" in printed.out
    assert "sts           spearman" in printed.out
    assert command("evaluate", tmp_path / "m", "sentences", *files, "--json").json["sets"]["mr"]["accuracy"] == 1.0


def test_what_cannot_be_measured_is_refused(model: Any, tmp_path: Path) -> None:
    one_label = write(tmp_path / "one.tsv", "label\ttext_a", ["1\ta", "1\tb"])
    with pytest.raises(CorpusError, match="one label"):
        evaluate_sentences(model, [one_label])
    few = write(tmp_path / "few.tsv", "label\ttext_a", ["1\ta", "0\tb", "1\tc"])
    with pytest.raises(CorpusError, match="fewer than 10"):
        evaluate_sentences(model, [few])
    counts = firth.train("unigram", [["a b"]], out=tmp_path / "u")
    with pytest.raises(AbilityError):
        firth.evaluate(counts, "sentences", few)
