"""GloVe against a plain NumPy twin, finite differences, itself and the oracle."""

from __future__ import annotations

import gzip
import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.restore import restore
from firth.errors import ArtifactError, CorpusError, TrainingError
from firth.text.corpus import read_corpus
from firth.vectors import _glove_kernels as kernels
from firth.vectors import glove
from firth.vectors.cooccurrence import count_pairs
from firth.vectors.glove import GloveTrainer, TileGrid, Tiles, open_trainer, split_tiles, train_glove
from firth.vectors.job import VectorJob
from firth.vectors.recipe import GloveRecipe
from tests.command import firth
from tests.memory_checkpointer import KilledError, MemoryCheckpointer
from tests.vectors.word_groups import class_words, job_of, nearness, no_special_rows, oracle_job, text_of

SMALL = GloveRecipe(dimension=5, window=3, epochs=4)


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(f"w{int(60 * rng.random() ** 2)}" for _ in range(rng.integers(2, 12))) for _ in range(300)]


@pytest.fixture(scope="module")
def job(sentences: list[str]) -> VectorJob:
    return job_of(read_corpus([sentences], layout="lines"), seed=3)


def with_options(job: VectorJob, **options: object) -> VectorJob:
    return VectorJob(**{name: getattr(job, name) for name in VectorJob.__dataclass_fields__} | options)  # type: ignore[arg-type]


def cells_of(tiles: Tiles, grid: TileGrid) -> list[tuple[int, int, int, float]]:
    """(tile, row id, column id, log) of every cell in order."""
    found = []
    for tile, (begin, end) in enumerate(itertools.pairwise(tiles.starts.tolist())):
        for cell in range(begin, end):
            row, column = divmod(int(tiles.cells[2 * cell]), 1 << 16)
            log = float(tiles.cells.view(np.float32)[2 * cell + 1])
            row_id = grid.ids[row * grid.groups + tile // grid.groups]
            column_id = grid.ids[column * grid.groups + tile % grid.groups]
            found.append((tile, int(row_id), int(column_id), log))
    return found


def weight_of(log: float, x_max: float, alpha: float) -> float:
    return min(1.0, (math.exp(log) / x_max) ** alpha)


def test_every_cell_is_in_the_tile_of_its_row_and_column(job: VectorJob) -> None:
    table = count_pairs(job.text, 3, weighting="harmonic")
    grid = TileGrid.of(np.diff(table.starts), 5)
    with ThreadPoolExecutor(2) as pool:
        found = cells_of(split_tiles(table, grid, 0, pool), grid)
    logs = {(row, column): log for _, row, column, log in found}
    expected = {(row, c): math.log(x) for row in range(len(job.text.words)) for c, x in table.row(row).items()}
    assert len(found) == len(expected)
    assert logs == pytest.approx(expected, rel=1e-5, abs=1e-6)
    sizes = np.bincount([tile // grid.groups for tile, *_ in found], minlength=grid.groups)
    assert sizes.max() < 2 * sizes.mean()
    rows = [row for tile, row, *_ in found if tile == 0]
    assert rows != sorted(rows), "the cells of a tile are shuffled"


def test_large_vocabularies_have_more_groups_of_rows_that_fit_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TileGrid.of(np.ones(300_000, dtype=np.int64), 100)
    assert grid.slots * 2 * 4 * grid.width <= 4 << 20
    assert grid.groups * grid.slots >= 300_000
    assert grid.width % 8 == 0
    monkeypatch.setattr(glove, "_MAX_SLOTS", 100)
    with pytest.raises(CorpusError, match="min_count"):
        TileGrid.of(np.ones(3000, dtype=np.int64), 100)


def twin_step(rows: list[Any], log: float, weight: float, lr: float) -> tuple[float, list[Any]]:
    """The loss of a cell and its new word, squares, context and squares, in plain NumPy."""
    word, word_squares, context, context_squares = rows
    error = word @ context - log
    slope = lr * np.clip(weight * error, -100, 100)
    for_word, for_context = slope * context, slope * word
    return weight * error**2, [
        word - for_word / np.sqrt(word_squares),
        word_squares + for_word**2,
        context - for_context / np.sqrt(context_squares),
        context_squares + for_context**2,
    ]


@pytest.mark.parametrize("width", [8, 104])
def test_a_step_is_that_of_the_twin(width: int) -> None:
    rng = np.random.default_rng(width)
    for log in (0.3, 500.0):  # the second is clipped
        rows = [rng.normal(size=width), 1 + rng.random(width), rng.normal(size=width), 1 + rng.random(width)]
        loss, expected = twin_step(rows, log, 0.7, 0.05)
        found = [row.astype(np.float32) for row in rows]
        found_loss = kernels.step(*found, np.float32(log), np.float32(0.7), np.float32(0.05))
        assert found_loss == pytest.approx(loss, rel=1e-4)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_step_goes_down_the_gradient_of_the_loss() -> None:
    """Finite differences of weight * error ** 2 / 2, where the squares of all gradients before are 1."""
    rng = np.random.default_rng(5)
    word, context, lr, h = rng.normal(size=8), rng.normal(size=8), 1e-6, 1e-5

    def half_loss(word: Any, context: Any) -> float:
        return 0.5 * 0.6 * float(word @ context - 0.4) ** 2

    gradients = [
        [(half_loss(word + h * e, context) - half_loss(word - h * e, context)) / (2 * h) for e in np.eye(8)],
        [(half_loss(word, context + h * e) - half_loss(word, context - h * e)) / (2 * h) for e in np.eye(8)],
    ]
    moved = [word.copy(), np.ones(8), context.copy(), np.ones(8)]
    kernels.step(*moved, 0.4, 0.6, lr)
    np.testing.assert_allclose((word - moved[0]) / lr, gradients[0], rtol=1e-4)
    np.testing.assert_allclose((context - moved[2]) / lr, gradients[1], rtol=1e-4)


def fit_of(recipe: GloveRecipe, job: VectorJob, pool: ThreadPoolExecutor) -> GloveTrainer:
    table = count_pairs(job.text, recipe.window, weighting="harmonic")
    grid = TileGrid.of(np.diff(table.starts), recipe.dimension)
    return open_trainer(recipe, job, grid, split_tiles(table, grid, job.seed, pool), pool, time.monotonic())


def test_epochs_equal_the_reference(job: VectorJob) -> None:
    """Tile by tile, diagonal by diagonal, with separate biases."""
    with ThreadPoolExecutor(2) as pool:
        fit = fit_of(replace(SMALL, epochs=2), with_options(job, threads=2), pool)
        grid, d = fit.grid, SMALL.dimension
        rows = [table.reshape(grid.groups, grid.slots, 2, -1).astype(np.float64) for table in (fit.words, fit.contexts)]
        losses = [twin_epoch(fit.tiles, grid, rows, job.seed, epoch) for epoch in (1, 2)]
        fit.train()
    assert fit.state.losses == pytest.approx(losses, rel=1e-4)
    for one, other in zip((fit.words, fit.contexts), rows, strict=True):
        values = one.reshape(other.shape)
        np.testing.assert_allclose(values[:, :, 0], other[:, :, 0], atol=2e-4)
        np.testing.assert_allclose(values[:, :, 1, :d], other[:, :, 1, :d], rtol=1e-3)


def twin_epoch(tiles: Tiles, grid: TileGrid, rows: list[Any], seed: int, epoch: int) -> float:
    """Goes through all cells in plain Python; the mean loss."""
    d = SMALL.dimension
    rng = np.random.default_rng((seed, epoch))
    turns = (rng.random(grid.groups**2) * np.diff(tiles.starts)).astype(int)
    cells = cells_of(tiles, grid)
    total = 0.0
    for diagonal, group in itertools.product(rng.permutation(grid.groups), range(grid.groups)):
        tile = group * grid.groups + (group + diagonal) % grid.groups
        mine = [cell for cell in cells if cell[0] == tile]
        for _, row, column, log in mine[turns[tile] :] + mine[: turns[tile]]:
            word = rows[0][group, grid.slot_of[row]]
            context = rows[1][tile % grid.groups, grid.slot_of[column]]
            assert word[0, d + 1] == context[0, d] == 1.0
            old = [word[0].copy(), word[1].copy(), context[0].copy(), context[1].copy()]
            loss, (word[0], word[1], context[0], context[1]) = twin_step(old, log, weight_of(log, 10, 0.75), 0.05)
            word[0, d + 1] = context[0, d] = 1.0
            total += loss
    return total / len(cells)


def test_the_loss_is_the_mean_weighted_squared_error(job: VectorJob) -> None:
    """With steps of next to nothing it is that of the first vectors, which is computed here from the table."""
    with ThreadPoolExecutor(1) as pool:
        fit = fit_of(replace(SMALL, epochs=1), job, pool)
        for rows_of in (fit.words, fit.contexts):
            rows_of.reshape(-1, 2, fit.grid.width)[:, 1] = 1e30
        table = count_pairs(job.text, 3, weighting="harmonic")
        rows = {name: np.zeros((len(job.text.words), fit.grid.width)) for name in ("words", "contexts")}
        for name, values in rows.items():
            values[fit.grid.ids] = getattr(fit, name).reshape(-1, 2, fit.grid.width)[fit.grid.rows(), 0]
        expected = [
            weight_of(math.log(x), 10, 0.75) * (rows["words"][row] @ rows["contexts"][column] - math.log(x)) ** 2
            for row in range(len(job.text.words))
            for column, x in table.row(row).items()
        ]
        fit.train()
    assert fit.state.losses == [pytest.approx(np.mean(expected), rel=1e-4)]


def test_enough_dimensions_fit_the_table(job: VectorJob) -> None:
    result = train_glove(GloveRecipe(dimension=60, window=3, epochs=600), job)
    losses = result.metrics["losses"]
    assert all(later < sooner for sooner, later in itertools.pairwise(losses[::60]))
    assert losses[-1] < 0.05 * losses[0]
    assert no_special_rows(result.model)
    assert result.tokens == 600 * job.text.total


def test_threads_change_nothing_and_seeds_do(job: VectorJob) -> None:
    models = [train_glove(SMALL, with_options(job, threads=threads)).model for threads in (1, 2, 5)]
    other = train_glove(SMALL, with_options(job, seed=4)).model
    for name in ("vectors", "outputs"):
        assert all(np.array_equal(getattr(models[0], name), getattr(model, name)) for model in models[1:])
        assert not np.array_equal(getattr(models[0], name), getattr(other, name))


def test_the_smallest_lr_is_no_division_by_zero(job: VectorJob) -> None:
    assert np.all(np.isfinite(train_glove(GloveRecipe(dimension=5, lr=1e-300), job).model.vectors))


@pytest.mark.parametrize("dies_after", [1, 7, 16, 17, 63])
def test_a_killed_run_resumes_to_the_same_vectors(job: VectorJob, dies_after: int) -> None:
    """In the middle of an epoch of sixteen diagonals, at its end, and in the last one."""
    whole = train_glove(SMALL, job)
    checkpointer = MemoryCheckpointer(dies_after=dies_after)
    with pytest.raises(KilledError):
        train_glove(SMALL, with_options(job, checkpointer=checkpointer))
    again = train_glove(SMALL, with_options(job, checkpointer=checkpointer, threads=2))
    assert np.array_equal(whole.model.vectors, again.model.vectors)
    assert whole.metrics == again.metrics
    assert len(checkpointer.saved) == 4 * 16 - 1, "after every diagonal but the last"


def test_a_state_of_another_run_is_refused(job: VectorJob) -> None:
    checkpointer = MemoryCheckpointer()
    train_glove(SMALL, with_options(job, checkpointer=checkpointer))
    with pytest.raises(ArtifactError, match="words is missing or has another shape"):
        train_glove(GloveRecipe(dimension=50, window=3), with_options(job, checkpointer=checkpointer))


def test_divergence_stops_the_run_and_leaves_the_last_checkpoint(job: VectorJob) -> None:
    checkpointer = MemoryCheckpointer(dies_after=16)
    with pytest.raises(KilledError):
        train_glove(SMALL, with_options(job, checkpointer=checkpointer))
    checkpointer.saved[-1][0]["words"][:] = np.float32(1e38)
    with pytest.raises(TrainingError, match=r"diverged: .* resume=True settings={'lr': 0.025}, say"):
        train_glove(SMALL, with_options(job, checkpointer=checkpointer))
    assert len(checkpointer.saved) == 16


def test_an_epoch_has_the_mean_loss_of_its_pairs(job: VectorJob) -> None:
    result = train_glove(SMALL, job)
    steps = [record["losses"]["glove"] for record in result.records]
    assert len(steps) == 4 * 16
    for epoch, loss in enumerate(result.metrics["losses"]):
        assert min(steps[16 * epoch :][:16]) < loss < max(steps[16 * epoch :][:16])
    assert result.records[-1]["epochs"] == 4
    assert result.records[-1]["tokens"] == result.tokens == 4 * job.text.total


def test_budgets_decide_the_epochs(job: VectorJob) -> None:
    def epochs(**budget: float) -> int:
        return len(train_glove(SMALL, with_options(job, **budget)).metrics["losses"])

    assert epochs(tokens=7 * job.text.total + 1) == 7
    assert epochs(tokens=1) == 1
    assert epochs(flops=1.0) == 1
    assert epochs(seconds=1e-9) == 1
    assert epochs(seconds=1e9) == SMALL.epochs
    pairs = train_glove(SMALL, job).metrics["pairs"]
    assert epochs(flops=14.0 * 5 * pairs * 2.5) == 2


def test_a_saved_model_is_restored(job: VectorJob) -> None:
    model = train_glove(SMALL, job).model
    again = restore(SMALL, model.arrays(), job.tokenizer, job.layout)
    assert np.array_equal(again.vectors, model.vectors)
    assert np.array_equal(again.outputs, model.outputs)
    with pytest.raises(ArtifactError):
        restore(SMALL, {"vectors": model.vectors[1:]}, job.tokenizer, job.layout)


def test_texts_without_pairs_are_refused(job: VectorJob) -> None:
    with pytest.raises(CorpusError, match="longer sentences"):
        train_glove(GloveRecipe(window=1), with_options(job, text=text_of([[7], [8]], 9)))
    with pytest.raises(CorpusError, match="windows of 10"):
        train_glove(GloveRecipe(), with_options(job, text=text_of([[7, 8]], 9)))
    with pytest.raises(CorpusError, match="min_count"):
        train_glove(GloveRecipe(), with_options(job, text=text_of([[7, 7, 7]], 9)))


def test_words_of_a_class_are_nearer_to_each_other() -> None:
    model = train_glove(GloveRecipe(dimension=20, window=3), oracle_job()).model
    same, other = nearness(model, class_words())
    assert same > other + 0.3


def test_it_trains_from_the_command_line(sentences: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(sentences))
    settings = ("--set", "dimension=5", "--set", "epochs=2", "--json")
    for out, threads in (("one", 1), ("two", 2)):
        outcome = firth("train", "glove", tmp_path / "text.txt", "-o", tmp_path / out, "--threads", threads, *settings)
        assert outcome.code == 0, outcome.err
    infos = [firth("info", tmp_path / out, "--json").json for out in ("one", "two")]
    one, two = ({k: v for k, v in info["files"].items() if k != "metrics.jsonl"} for info in infos)  # it has times
    assert one == two
    assert len(infos[0]["metrics"]["losses"]) == 2


@pytest.mark.shared
def test_football_is_a_sport(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "lm" / "wiki_en.txt.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "wiki.txt").write_text("".join(itertools.islice(file, 25_000)), encoding="utf-8")
    recipe = GloveRecipe(dimension=50, epochs=8)
    model = train_glove(recipe, job_of(read_corpus(tmp_path / "wiki.txt"), recipe.tokenizer, threads=2)).model
    sports = [model.similarity("football", word) for word in ("team", "league", "club", "season")]
    others = [model.similarity("football", word) for word in ("river", "parliament", "album", "species")]
    assert np.mean(sports) > np.mean(others) + 0.2, (sports, others)
