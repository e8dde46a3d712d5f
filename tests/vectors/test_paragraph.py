"""Paragraph vectors against plain twins, finite differences, themselves and the oracle."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from firth.errors import AbilityError, ArtifactError, CorpusError, RecipeError, TrainingError
from firth.text.corpus import read_corpus
from firth.text.oracle import oracle_source
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _paragraph_kernels as kernels
from firth.vectors import paragraph
from firth.vectors.job import VectorJob
from firth.vectors.neighbours import unit
from firth.vectors.paragraph import (
    ParagraphModel,
    ParagraphTrainer,
    resolve_defaults,
    restore_paragraphs,
    train_paragraphs,
)
from firth.vectors.recipe import ParagraphRecipe
from firth.vectors.sampling import noise_distribution
from firth.vectors.tables import table_from_matrix
from firth.vectors.text import TrainingText
from tests.command import firth
from tests.memory_checkpointer import KilledError, MemoryCheckpointer
from tests.vectors.slow_paragraph import SHAPES, SMALL, example, slow_loss, slow_plan, slow_train
from tests.vectors.word_groups import WORDS, job_of, oracle_job

shapes = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(scope="module")
def job() -> VectorJob:
    """Some documents of random words, one of them long, one empty of known words."""
    rng = np.random.default_rng(1)
    sizes = [*rng.integers(1, 30, size=200), 3000, 1700]
    texts = [[" ".join(f"w{int(60 * rng.random() ** 2)}" for _ in range(size))] for size in sizes]
    return job_of(read_corpus(texts, layout="lines"), seed=3)


@pytest.fixture(scope="module")
def oracle() -> tuple[ParagraphModel, list[str], npt.NDArray[np.str_]]:
    """A model of the oracle's documents, the documents, and their topics."""
    source = oracle_source("english")
    found = [source.sample_document(0, number, 10) for number in range(2000)]
    recipe = ParagraphRecipe(tokenizer=WORDS, architecture="dbow", dimension=30, epochs=5, subsample=1e-3)
    model = train_paragraphs(recipe, oracle_job(threads=2)).model
    texts = [" ".join(sentence.text for sentence in document) for document in found]
    return model, texts, np.array([document[0].topic for document in found])


@shapes
def test_plan_is_that_of_a_plain_twin(shape: str) -> None:
    updater, texts, segments, states, pool, _ = example(shape)
    words, window_sizes, targets = slow_plan(updater, texts, states, pool)
    assert segments.words.tolist() == [word for kept in words for word in kept]
    assert np.diff(segments.begins).tolist() == [len(kept) for kept in words]
    assert segments.window_sizes.tolist() == window_sizes
    assert segments.targets.tolist() == [word for some in targets for word in some]
    assert 0 < len(segments.words) < sum(word >= FIRST_WORD for text in texts for word in text)


@shapes
def test_learning_is_that_of_a_plain_twin(shape: str) -> None:
    updater, texts, segments, states, pool, tables = example(shape)
    planned = slow_plan(updater, texts, states, pool)
    before = [table.matrix().astype(np.float64) for table in tables]
    wanted = [matrix.copy() for matrix in before]
    lr = 2e-4
    loss = slow_train(updater, planned, wanted, segments, lr)
    assert updater.train(segments, tables, lr) == pytest.approx(loss, rel=1e-4)
    for table, old, new in zip(tables, before, wanted, strict=True):
        assert np.abs(new - old).max() > 3e-4
        # Targets are moved three at a time, so that later ones use an updated row: squares of the learning rate.
        np.testing.assert_allclose(table.matrix() - old, new - old, atol=4e-6)
        assert not table.flat.reshape(-1, table.stride)[:, table.dimension :].any()


@shapes
def test_only_documents_change_when_all_else_is_frozen(shape: str) -> None:
    updater, _, segments, _, _, tables = example(shape)
    others = [table.flat.copy() for table in tables]
    loss = updater.train(segments, tables, 0.05, frozen=True)
    assert all(np.array_equal(table.flat, old) for table, old in zip(tables[1:], others[1:], strict=True))
    assert not np.array_equal(tables[0].flat, others[0])
    assert updater.train(segments, tables, 0.0, frozen=True) < loss


@pytest.mark.parametrize("frozen", [False, True])
def test_a_step_follows_the_gradient(frozen: bool) -> None:
    """The change of a row over the rate is the derivative of the loss, by finite differences; targets repeat."""
    rng = np.random.default_rng(2)
    outputs, row = rng.normal(size=(9, 8)), rng.normal(size=8)
    targets, lr = np.array([1, 3, 1, 4, 4, 4, 5, 6, 7, 8, 0], dtype=np.int32), 1e-3
    table, moved = table_from_matrix(outputs.astype(np.float32)), row.astype(np.float32)
    scores, losses = np.empty(targets.size + 8, dtype=np.float32), np.array([2.0, 0.5])
    kernels.step(
        moved, table.flat, targets, 0, targets.size, table.stride, table.width, np.float32(lr), frozen, scores, losses
    )
    assert losses[0] - np.log(losses[1]) == pytest.approx(2 - np.log(0.5) + slow_loss(row, outputs, targets), rel=1e-5)

    def slope(position: tuple[int, ...]) -> float:
        values = []
        for sign in (1e-5, -1e-5):
            matrix = np.vstack([row, outputs])
            matrix[position] += sign
            values.append(slow_loss(matrix[0], matrix[1:], targets))
        return (values[0] - values[1]) / 2e-5

    np.testing.assert_allclose((moved - row) / lr, [-slope((0, position)) for position in range(8)], atol=0.1)
    gradients = [[-slope((1 + number, position)) for position in range(8)] for number in range(9)]
    change = (table.matrix() - outputs) / lr
    np.testing.assert_allclose(change, np.zeros_like(change) if frozen else gradients, atol=0.1)


# Training.


@shapes
def test_exact_mode_is_the_same_for_any_number_of_threads(job: VectorJob, shape: str) -> None:
    assert ParagraphTrainer(SHAPES[shape], job.text, 3).num_blocks > 10
    found = [train_paragraphs(SHAPES[shape], replace(job, threads=threads)) for threads in (1, 2, 3)]
    for other in found[1:]:
        assert other.metrics == found[0].metrics
        for name, array in found[0].model.arrays().items():
            assert array.tobytes() == other.model.arrays()[name].tobytes()
    another = train_paragraphs(SHAPES[shape], replace(job, seed=4)).model
    assert not np.array_equal(another.documents, found[0].model.documents)


@shapes
def test_a_killed_run_resumes_to_the_same_bytes(job: VectorJob, shape: str) -> None:
    checkpointer = MemoryCheckpointer(dies_after=2)
    with pytest.raises(KilledError):
        train_paragraphs(SHAPES[shape], replace(job, checkpointer=checkpointer))
    resumed = train_paragraphs(SHAPES[shape], replace(job, checkpointer=checkpointer))
    whole = train_paragraphs(SHAPES[shape], job)
    assert resumed.metrics == whole.metrics
    assert resumed.model.documents.tobytes() == whole.model.documents.tobytes()
    assert resumed.model.vectors.tobytes() == whole.model.vectors.tobytes()


@shapes
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_losses_are_those_of_the_objective(job: VectorJob, shape: str, mode: Any) -> None:
    """Documents and words are initially zero, where every probability is a half; training improves it."""
    recipe = replace(SHAPES[shape], mode=mode, epochs=1, lr=1e-9)
    assert train_paragraphs(recipe, job).metrics["loss"] == pytest.approx(4 * np.log(2), rel=1e-5)
    losses = train_paragraphs(replace(recipe, epochs=6, lr=0.05), job).metrics["losses"]
    assert len(losses) == 6
    assert losses[-1] < losses[0] < 4 * np.log(2)


def test_losses_are_the_mean_over_words(job: VectorJob) -> None:
    """With full vectors and a rate of nothing, the loss is recomputed from the plans alone."""
    recipe = replace(SHAPES["dbow"], lr=1e-12, epochs=1)
    blocks = ParagraphTrainer(recipe, job.text, 3)
    rng = np.random.default_rng(4)
    blocks.tables[0].matrix()[:] = rng.normal(size=(blocks.documents, 5))
    documents, outputs = (table.matrix().astype(np.float64) for table in blocks.tables)
    total, words = 0.0, 0
    for block in range(blocks.num_blocks):
        plan = blocks.plan(0, block)
        found, examples = blocks.train_block(plan, 1e-12)
        segments = plan.content
        owners = np.repeat(segments.documents_of, np.diff(segments.begins))
        each = zip(owners, segments.targets.reshape(-1, 4), strict=True)
        again = sum(slow_loss(documents[document], outputs, targets) for document, targets in each)
        assert found == pytest.approx(again, rel=1e-5)
        assert examples == segments.begins[-1]
        total, words = total + found, words + examples
    assert words > 0.1 * job.text.total


def test_negatives_follow_their_distribution(job: VectorJob) -> None:
    """Chi-squared: noise over many blocks, which draw each from a pool of their own."""
    blocks = ParagraphTrainer(replace(SHAPES["mean"], subsample=0), job.text, 3)
    noise = noise_distribution(job.text.counts, 0.75)
    found = np.zeros(noise.size)
    for epoch, block in itertools.product(range(20), range(blocks.num_blocks)):
        pool = blocks.updater.pool(blocks.pool, np.uint64(1000 * epoch + block))
        found += np.bincount(pool, minlength=noise.size)
    expected = noise * found.sum()
    seen = expected > 0
    statistic = ((found - expected)[seen] ** 2 / expected[seen]).sum()
    freedom = int(seen.sum()) - 1
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)
    assert not found[~seen].any()
    noise = blocks.plan(0, 0).content.targets.reshape(-1, 4)[:, 1:]
    assert set(noise.reshape(-1)) <= set(np.flatnonzero(seen))


def test_blocks_end_where_documents_do(job: VectorJob) -> None:
    blocks = ParagraphTrainer(SMALL, job.text, 3)
    bounds = job.text.sentences[job.text.documents.astype(np.int64)].tolist()
    lengths = np.diff(blocks.segments)
    assert blocks.segments[-1] == len(job.text.ids)
    assert lengths.max() <= 500
    for number, (document, begin) in enumerate(zip(blocks.documents_of, blocks.segments[:-1], strict=True)):
        assert bounds[document] <= begin < bounds[document + 1]
        assert begin == bounds[document] or lengths[number - 1] == 500
    assert np.bincount(blocks.documents_of)[-2:].tolist() == [6, 4]
    assert blocks.weights[blocks.documents_of == 200].tolist() == [0.25] * 6  # as many as are trained in parallel
    assert blocks.weights[0] == 1


@shapes
def test_long_documents_do_not_leap(shape: str) -> None:
    """Two long documents over words of their own: blocks of one document are trained in parallel."""
    rng = np.random.default_rng(3)
    texts = [[" ".join(f"{name}{int(w)}" for w in rng.integers(0, 40, size=12_000))] for name in "ab"]
    recipe = replace(SHAPES[shape], dimension=8, epochs=6)
    result = train_paragraphs(recipe, job_of(read_corpus(texts, layout="lines"), seed=1))
    assert np.linalg.norm(result.model.documents, axis=1).max() < 20
    assert result.metrics["losses"][-1] < 0.9 * result.metrics["losses"][0]
    assert unit(result.model.documents[0]) @ unit(result.model.documents[1]) < 0.5


def test_a_single_document_is_cut_into_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    sentences = ["a b c a", "b c a b", "c c b"]
    model = train_paragraphs(SMALL, job_of(read_corpus([sentences], layout="lines"))).model
    assert model.documents.shape == (3, 5)
    assert "single document" in capsys.readouterr().err


def test_documents_without_known_words_stay_at_zero() -> None:
    words = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "a", "b", "c"]
    ids = np.array([1, 1, 5, 6, 7, 5, 6, 7, 5, 6], dtype=np.uint16)
    sentences = np.array([0, 2, 2, 6, 10, 10], dtype=np.uint64)
    text = TrainingText(ids, sentences, np.arange(6, dtype=np.uint64), words)
    recipe = replace(SHAPES["dbow"], subsample=0)
    blocks = ParagraphTrainer(recipe, text, 0)
    for block in range(blocks.num_blocks):
        blocks.train_block(blocks.plan(0, block), 0.05)
    assert blocks.tables[0].matrix().any(axis=1).tolist() == [False, False, True, True, False]


@pytest.mark.parametrize("option", [{"tokens": 20_000}, {"seconds": 0.3}, {"flops": 1e7}])
def test_budgets(job: VectorJob, option: dict[str, Any]) -> None:
    result = train_paragraphs(SHAPES["dbow"], replace(job, **option))
    assert result.tokens > 0
    assert np.isfinite(result.metrics["loss"])
    if "tokens" in option:
        assert result.tokens == pytest.approx(20_000, rel=0.1)


# New documents.


def test_documents_of_a_topic_are_near(oracle: tuple[ParagraphModel, list[str], npt.NDArray[np.str_]]) -> None:
    model, _, topics = oracle
    units = model.documents / np.linalg.norm(model.documents, axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -1)
    assert np.mean(topics[cosines.argmax(axis=1)] == topics) > 0.8  # one in six randomly


@pytest.mark.parametrize("shape", ["dbow", "mean"])
def test_inferred_documents_are_near_their_own(shape: str) -> None:
    rng = np.random.default_rng(7)
    kinds = [rng.choice(400, size=15) for _ in range(200)]
    texts = [" ".join(f"w{word}" for word in rng.choice(kind, size=80)) for kind in kinds]
    recipe = replace(SHAPES[shape], dimension=20, epochs=10, subsample=0)
    model = train_paragraphs(recipe, job_of(read_corpus([[text] for text in texts], layout="lines"))).model
    found = [model.similar_documents(text, 5) for text in texts]
    assert np.mean([near[0][0] == number for number, near in enumerate(found)]) > 0.9
    assert all(near == sorted(near, key=lambda pair: -pair[1]) and len(near) == 5 for near in found)


def test_new_documents_have_the_same_vector_every_time(
    oracle: tuple[ParagraphModel, list[str], npt.NDArray[np.str_]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, texts, _ = oracle
    some = texts[:40]
    vectors = model.infer(some)
    assert vectors.dtype == np.float32
    assert np.array_equal(model.embed(some), vectors)
    assert np.array_equal(model.infer(some[::-1])[::-1], vectors)
    assert np.array_equal(np.vstack([model.infer([text]) for text in some]), vectors)
    monkeypatch.setattr(paragraph, "_BATCH", 3)
    monkeypatch.setattr(paragraph, "_TEXTS", 7)
    assert np.array_equal(model.infer(some), vectors)
    assert not np.array_equal(model.infer(some, epochs=2), vectors)
    again = restore_paragraphs(model.recipe, model.arrays(), model.tokenizer, model.layout)
    assert np.array_equal(again.infer(some), vectors)
    assert len(np.unique(vectors, axis=0)) == len(set(some))


@shapes
def test_inference_of_each_kind(job: VectorJob, shape: str) -> None:
    result = train_paragraphs(SHAPES[shape], job)
    model = result.model
    text = " ".join(model.words[int(word)] for word in job.text.ids[:12])
    before = {name: array.copy() for name, array in model.arrays().items()}
    vector = model.infer([text, "", "nothing that is known"])
    assert vector[0].any()
    assert not vector[1:].any()
    assert model.infer([]).shape == (0, 5)
    assert all(np.array_equal(array, model.arrays()[name]) for name, array in before.items())
    with pytest.raises(AbilityError, match="no word of the text"):
        model.similar_documents("nothing that is known")
    with pytest.raises(AbilityError, match="epochs=0"):
        model.infer([text], epochs=0)


# Bad input.


def test_texts_that_are_too_small() -> None:
    with pytest.raises(CorpusError, match="frequent enough"):
        train_paragraphs(SMALL, job_of(read_corpus([["a a a"]], layout="lines")))


def test_a_rate_that_is_too_high(job: VectorJob) -> None:
    with np.errstate(all="ignore"), pytest.raises(TrainingError, match=r"diverged: .* settings={'lr': 5}, say"):
        train_paragraphs(replace(SHAPES["dbow"], lr=10.0, epochs=500), job)


def test_tables_larger_than_the_machine_are_refused(job: VectorJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paragraph, "zero_table", None)
    monkeypatch.setattr(paragraph, "random_table", None)
    with pytest.raises(RecipeError, match="lower dimension or window"):
        train_paragraphs(ParagraphRecipe(tokenizer=WORDS, combine="concat", dimension=10_000, window=1000), job)


@shapes
def test_damaged_arrays_are_refused(job: VectorJob, shape: str) -> None:
    model = train_paragraphs(SHAPES[shape], job).model
    sound = model.arrays()
    assert np.array_equal(
        restore_paragraphs(model.recipe, sound, model.tokenizer, model.layout).documents, model.documents
    )
    damages: list[dict[str, Any]] = [
        {"documents": None},
        {"documents": sound["documents"][:, :3]},
        {"documents": sound["documents"].astype(np.float64)},
        {"seed": None},
        {"counts": None},
        {"counts": -sound["counts"]},
        {"counts": np.zeros_like(sound["counts"])},
        {"outputs": None if shape != "dbow" else sound["vectors"]},
        {"vectors": sound["vectors"][:-1]},
    ]
    for damage in damages:
        arrays = {name: array for name, array in (sound | damage).items() if array is not None}
        with pytest.raises(ArtifactError, match="train the model again"):
            restore_paragraphs(model.recipe, arrays, model.tokenizer, model.layout)


def test_defaults_are_resolved() -> None:
    small, large = (resolve_defaults(ParagraphRecipe(), words) for words in (1000, 10**8))
    assert (small.negatives, large.negatives, small.lr) == (15, 5, 0.05)
    assert resolve_defaults(SMALL, 1000) == SMALL
    with pytest.raises(RecipeError, match="no context words"):
        ParagraphRecipe(architecture="dbow", combine="concat")


@pytest.mark.parametrize("name", ["pv-dm", "pv-dm-concat", "pv-dbow"])
def test_the_command_line(name: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\nthe dog ran\n\na cat ran far\nthe dog sat\n\nthe cat and the dog\n\n" * 8)
    out = tmp_path / "model"
    settings = ("--set", "dimension=6", "--set", "epochs=2", "--set", "tokenizer.min_count=1")
    trained = firth("train", name, text, "-o", out, *settings, "--json")
    assert trained.code == 0, trained.err
    assert trained.json["metrics"]["documents"] == 24
    assert firth("similar", out, "cat", "--json").json["neighbours"]
    (tmp_path / "new.txt").write_text("the cat\n\nthe dog\n")
    assert firth("embed", out, tmp_path / "new.txt", "-o", tmp_path / "new.npy", "--json").json["rows"] == 3
    vectors = np.load(tmp_path / "new.npy")
    assert vectors.shape == (3, 6)
    assert not vectors[1].any()
