"""Singular vectors against dense algebra, hand-worked weights and the oracle."""

from __future__ import annotations

import gzip
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from firth.errors import ArtifactError, BudgetError, CorpusError, RecipeError
from firth.recipes.vectors import lsa, ppmi_svd
from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import svd
from firth.vectors.cooccurrence import count_pairs
from firth.vectors.job import VectorJob
from firth.vectors.recipe import SvdRecipe
from firth.vectors.svd import DocumentModel, entropy_weights, idf_weights, ppmi, restore_svd, train_svd, truncated_svd
from tests.command import firth
from tests.vectors.word_groups import class_words, job_of, nearness, oracle_job, text_of, topic_words

DOCUMENTS = [
    ["the cat sat", "the cat ran"],
    ["the dog ran", "a dog sat"],
    ["the cat and the dog"],
    ["a bird and a fish", "the bird"],
]


@pytest.fixture(scope="module")
def job() -> VectorJob:
    return job_of(read_corpus(DOCUMENTS, layout="lines"))


@pytest.fixture(scope="module")
def oracle() -> VectorJob:
    return oracle_job()


def random_matrix(rows: int, columns: int) -> sparse.csr_array:
    rng = np.random.default_rng(rows)
    dense = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.2) * 1.1 ** -np.arange(columns)
    return sparse.csr_array(dense.astype(np.float32))


@pytest.mark.parametrize(("rows", "columns"), [(30, 20), (20, 30), (400, 300)])
def test_the_factors_are_those_of_dense_algebra(rows: int, columns: int) -> None:
    matrix = random_matrix(rows, columns)
    with ThreadPoolExecutor(2) as pool:
        found = truncated_svd(matrix, 8, 0, pool)
    left, values, right = np.linalg.svd(matrix.toarray().astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(found.values, values[:8], rtol=2e-3)
    np.testing.assert_allclose(found.values[:3], values[:3], rtol=1e-4)
    for k in range(3):
        assert abs(found.left[:, k] @ left[:, k]) > 0.999
        assert abs(found.right[:, k] @ right[k]) > 0.999
        assert found.left[np.argmax(np.abs(found.left[:, k])), k] > 0
    np.testing.assert_allclose(found.left.T @ found.left, np.eye(8), atol=1e-4)
    explained = (found.left * found.values) @ found.right.T
    best = (left[:, :8] * values[:8]) @ right[:8]
    dense = matrix.toarray()
    assert np.linalg.norm(dense - explained) < 1.001 * np.linalg.norm(dense - best)


def test_a_basis_of_dependent_columns_is_still_made_orthonormal() -> None:
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(50, 6)).astype(np.float32)
    basis[:, 5] = basis[:, 4]
    for columns in (basis[:, :5], basis, basis * np.float32(1e-3) ** np.arange(6, dtype=np.float32)):
        found = svd._orthonormal(np.ascontiguousarray(columns))
        np.testing.assert_allclose(found.T @ found, np.eye(columns.shape[1]), atol=1e-4)
        residue = columns - found @ (found.T @ columns)
        np.testing.assert_allclose(residue, 0, atol=1e-5)


def test_the_product_is_that_of_the_twin() -> None:
    matrix = random_matrix(70, 40)
    dense = np.random.default_rng(0).normal(size=(40, 9)).astype(np.float32)
    with ThreadPoolExecutor(3) as pool:
        np.testing.assert_allclose(svd._multiply(matrix, dense, pool), matrix.toarray() @ dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shift", "smoothing"), [(1.0, 1.0), (1.0, 0.75), (3.0, 0.75)])
def test_mutual_information_is_that_of_the_formula(shift: float, smoothing: float) -> None:
    rng = np.random.default_rng(2)
    text = text_of([(FIRST_WORD + 12 * rng.random(9) ** 2).astype(int).tolist() for _ in range(60)], FIRST_WORD + 14)
    table = count_pairs(text, 2)
    counts = np.zeros((19, 19))
    for row in range(19):
        for column, weight in table.row(row).items():
            counts[row, column] = weight
    joint = counts / counts.sum()
    contexts = counts.sum(axis=0) ** smoothing / (counts.sum(axis=0) ** smoothing).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.log(joint / (joint.sum(axis=1)[:, None] * contexts)) - math.log(shift)
    expected[~(expected > 0)] = 0
    found = ppmi(table, shift=shift, smoothing=smoothing)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-4, atol=1e-5)
    assert found.nnz == np.count_nonzero(expected)


def test_weights_of_words_in_documents_by_hand() -> None:
    """One word is in all four documents equally, one in a single document, one twice in two."""
    counts = sparse.csr_array(np.array([[1, 5, 2], [1, 0, 2], [1, 0, 0], [1, 0, 0]], dtype=np.float32))
    assert idf_weights(counts) == pytest.approx([1.0, 1 + math.log(5 / 2), 1 + math.log(5 / 3)])
    assert entropy_weights(counts) == pytest.approx([1e-6, 1.0, 0.5])


def test_words_and_contexts_multiply_to_the_matrix(job: VectorJob) -> None:
    """With as many dimensions as the matrix has, and the root of the singular values on each side."""
    table = count_pairs(job.text, 5)
    matrix = ppmi(table, shift=1.0, smoothing=0.75).toarray()
    rank = int(np.linalg.matrix_rank(matrix, tol=1e-4))
    recipe = replace(ppmi_svd(), dimension=rank)
    model = train_svd(recipe, job).model
    np.testing.assert_allclose(model.vectors @ model.outputs.T, matrix, atol=1e-4)
    assert train_svd(recipe, job).metrics["explained"] == pytest.approx(1.0)
    again = restore_svd(recipe, model.arrays(), job.tokenizer, job.layout)
    assert np.array_equal(again.vectors, model.vectors)
    assert np.array_equal(again.outputs, model.outputs)


@pytest.mark.parametrize("weighting", ["tfidf", "entropy"])
def test_a_document_that_is_folded_in_lands_on_itself(job: VectorJob, weighting: str) -> None:
    """q U S^-1 of a column of A is its row of V, whatever the power of the word vectors."""
    bags = []
    for power in (0.0, 1.0):
        recipe = replace(lsa(), dimension=3, weighting=weighting, power=power)
        model = train_svd(recipe, job).model
        assert isinstance(model, DocumentModel)
        found = model.embed([" ".join(document) for document in DOCUMENTS])
        np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-4)  # part of V, all of it for rank 3
        bags.append(found)
        again = restore_svd(recipe, model.arrays(), job.tokenizer, job.layout)
        assert np.array_equal(again.embed(["the cat"]), model.embed(["the cat"]))
        assert np.all(model.embed(["zebra", ""]) == 0)
        assert model.embed([]).shape == (0, 3)
    np.testing.assert_allclose(bags[0], bags[1], atol=1e-4)


@pytest.mark.parametrize("recipe", [lsa(), ppmi_svd(), replace(lsa(), weighting="entropy")])
def test_threads_change_nothing(oracle: VectorJob, recipe: SvdRecipe) -> None:
    fields = {name: getattr(oracle, name) for name in VectorJob.__dataclass_fields__}
    one, three = (train_svd(recipe, VectorJob(**fields | {"threads": threads})).model for threads in (1, 3))
    for name, array in one.arrays().items():
        assert np.array_equal(array, three.arrays()[name]), name


def test_words_of_a_class_are_nearer_to_each_other(oracle: VectorJob) -> None:
    same, other = nearness(train_svd(replace(ppmi_svd(), dimension=20), oracle).model, class_words())
    assert same > other + 0.5


def test_documents_tell_topics_and_classes(oracle: VectorJob) -> None:
    """Every document has one topic and all classes, so that topics are separated better."""
    model = train_svd(replace(lsa(), dimension=20), oracle).model
    for groups, margin in ((topic_words(), 0.4), (class_words(), 0.1)):
        same, other = nearness(model, groups)
        assert same > other + margin


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (ppmi_svd(), "9 different words, fewer than dimension=100"),
        (lsa(), "9 different words, fewer than dimension=100"),
        (replace(lsa(), dimension=5), "4 documents, fewer than dimension=5"),
        (replace(lsa(), dimension=4), None),
    ],
)
def test_more_dimensions_than_there_are_is_refused(job: VectorJob, recipe: SvdRecipe, message: str | None) -> None:
    if message is None:
        assert train_svd(recipe, job).model.vectors.shape == (14, 4)
        return
    with pytest.raises(RecipeError, match=message):
        train_svd(recipe, job)


def test_more_dimensions_than_the_rank_is_refused(job: VectorJob) -> None:
    """Equal documents have a matrix of rank 1."""
    same = job_of(read_corpus([["a b c"]] * 5, layout="lines"))
    with pytest.raises(RecipeError, match="rank 1: set dimension=1"):
        train_svd(replace(lsa(), dimension=3), same)


def test_bad_input_is_refused(job: VectorJob) -> None:
    fields = {name: getattr(job, name) for name in VectorJob.__dataclass_fields__}
    with pytest.raises(BudgetError, match="leave budget out"):
        train_svd(lsa(), VectorJob(**fields | {"tokens": 5}))
    with pytest.raises(CorpusError, match="min_count"):
        train_svd(lsa(), VectorJob(**fields | {"text": text_of([[7, 7]], 9)}))
    with pytest.raises(CorpusError, match="longer sentences"):
        train_svd(replace(ppmi_svd(), dimension=1, window=1), VectorJob(**fields | {"text": text_of([[7], [8]], 9)}))
    model = train_svd(replace(lsa(), dimension=2), job).model
    for damage in ({"values": np.zeros(2, np.float32)}, {"weights": np.full(14, np.nan)}, {"values": np.ones(3)}):
        with pytest.raises(ArtifactError):
            restore_svd(model.recipe, model.arrays() | damage, job.tokenizer, job.layout)


@pytest.mark.parametrize("name", ["lsa", "ppmi-svd"])
def test_it_trains_from_the_command_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(" ".join(document) for document in DOCUMENTS * 5))
    settings = ("--set", "dimension=3", "--layout", "lines", "--json")
    for out, threads in (("one", 1), ("two", 2)):
        outcome = firth("train", name, tmp_path / "text.txt", "-o", tmp_path / out, "--threads", threads, *settings)
        assert outcome.code == 0, outcome.err
    infos = [firth("info", tmp_path / out, "--json").json for out in ("one", "two")]
    assert infos[0]["files"] == infos[1]["files"]
    assert 0 < infos[0]["metrics"]["explained"] < 1


@pytest.mark.shared
def test_football_is_a_sport(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "lm" / "wiki_en.txt.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "wiki.txt").write_text("".join(itertools.islice(file, 25_000)), encoding="utf-8")
    job = job_of(read_corpus(tmp_path / "wiki.txt"), lsa().tokenizer, threads=2)
    for recipe in (lsa(), ppmi_svd()):
        model = train_svd(recipe, job).model
        sports = [model.similarity("football", word) for word in ("team", "league", "club", "season")]
        others = [model.similarity("football", word) for word in ("river", "parliament", "album", "species")]
        assert min(sports) > max(others), recipe.matrix
