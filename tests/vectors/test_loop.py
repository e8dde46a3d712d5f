"""The training loop: the same bytes for any number of threads, budgets, learning rates, losses, and resuming."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.errors import TrainingError
from firth.text.corpus import read_corpus
from firth.training import TrainingPlan, TrainingState
from firth.vectors import loop, word2vec
from firth.vectors._exact_kernels import (
    clear_counts,
    copy_rows,
    count_replicas,
    map_to_copies,
    merge_rows,
    merge_weight,
)
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.loop import REPLICAS, BlockPlan, SgdTrainer, train_blocks
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.tables import EmbeddingTable, table_from_matrix, zero_table
from firth.vectors.word2vec import Word2vecTrainer, train_word2vec
from tests.command import firth
from tests.memory_checkpointer import KilledError, MemoryCheckpointer
from tests.vectors.slow_word2vec import slow_block
from tests.vectors.word_groups import job_of

LR = 0.02
SEGMENT = 32  # blocks between checkpoints
KINDS: dict[str, dict[str, Any]] = {
    "skipgram": {"buckets": 0},
    "cbow": {"architecture": "cbow", "buckets": 0},
    "fasttext": {"min_n": 3, "max_n": 4, "buckets": 80},
}
LOSSES = ("negative", "hierarchical", "nce", "softmax")


class Recorder:
    """A trainer without updates that records its calls."""

    def __init__(self, blocks: int, flops_per_word: float = 1.0, seconds: float = 0.0, changing: float = 0.0) -> None:
        self.tables = (zero_table(3, 2, 3 * REPLICAS),)
        self.num_blocks, self.num_words = blocks, 100 * blocks
        self.flops_per_word, self.seconds = flops_per_word, seconds
        self.max_step = math.inf
        self.changing = changing  # additional seconds of a block with a learning rate
        self.calls: list[tuple[int, int, float]] = []

    def plan(self, epoch: int, block: int) -> BlockPlan:
        return BlockPlan((), (epoch, block))

    def train_block(self, plan: BlockPlan, lr: float) -> tuple[float, int]:
        epoch, block = plan.content
        time.sleep(self.seconds + (self.changing if lr else 0.0))
        self.calls.append((epoch, block, lr))
        return example_loss(epoch, block), block % 3

    def done(self) -> list[tuple[int, int, float]]:
        """The calls with a learning rate, in order: those without are calibration."""
        return sorted(calls for calls in self.calls if calls[2])


def example_loss(epoch: int, block: int) -> float:
    return 10 * epoch + block * (block % 3)


@pytest.fixture(scope="module")
def job() -> VectorJob:
    """About 5,000 words."""
    rng = np.random.default_rng(1)
    sentences = [" ".join(f"w{int(60 * rng.random() ** 2)}" for _ in range(rng.integers(2, 30))) for _ in range(330)]
    return job_of(read_corpus([sentences], layout="lines"), seed=3)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "block_size", lambda mode, words: 100)


def recipe_of(kind: str = "skipgram", **settings: Any) -> Word2vecRecipe:
    options: dict[str, Any] = {"dimension": 10, "negatives": 3, "epochs": 2, "subsample": 0.05, "window": 3}
    return Word2vecRecipe(**options | KINDS[kind] | settings)


def tables_of(result: VectorResult) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in result.model.arrays().items()}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing_in_exact_mode(job: VectorJob, kind: str, loss: str) -> None:
    recipe = recipe_of(kind, loss=loss)
    results = [train_word2vec(recipe, replace(job, threads=threads)) for threads in (1, 2, 3, 5, 2)]
    first = tables_of(results[0])
    assert {"vectors", "outputs"} <= set(first)
    for result in results[1:]:
        assert tables_of(result) == first
        assert result.metrics == results[0].metrics
    other = tables_of(train_word2vec(recipe, replace(job, seed=4)))
    assert other["vectors"] != first["vectors"]
    assert other["outputs"] != first["outputs"]


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_killed_run_resumes_to_the_same_bytes(job: VectorJob, kind: str, mode: str, times: int) -> None:
    recipe = recipe_of(kind, mode=mode, epochs=3)
    whole = train_word2vec(recipe, job)
    for checkpointer in (MemoryCheckpointer(dies_before=times), MemoryCheckpointer(dies_after=times)):
        with pytest.raises(KilledError):
            train_word2vec(recipe, replace(job, checkpointer=checkpointer))
        kept = len(checkpointer.states)
        assert kept == times - (1 if checkpointer.dies_before else 0)
        checkpointer.dies_before = checkpointer.dies_after = 0
        again = train_word2vec(recipe, replace(job, checkpointer=checkpointer, threads=2 if mode == "exact" else 1))
        assert tables_of(again) == tables_of(whole)
        assert again.metrics == whole.metrics
        assert again.tokens == whole.tokens
        assert len(checkpointer.states) > max(kept, 5)


def test_fast_mode_with_one_thread_gives_the_same_bytes_again(job: VectorJob) -> None:
    recipe = recipe_of(mode="fast")
    assert tables_of(train_word2vec(recipe, job)) == tables_of(train_word2vec(recipe, job))


def test_fast_mode_with_two_threads_learns_as_much(job: VectorJob) -> None:
    recipe = recipe_of(mode="fast", epochs=10)
    one, two = (train_word2vec(recipe, replace(job, threads=threads)).metrics["losses"] for threads in (1, 2))
    assert two == pytest.approx(one, rel=0.02)
    assert two[-1] < 0.98 * two[0]


def expected_weight(replicas: float, positions: float, lr: float) -> float:
    """The merge weight of a row from the number of replicas and of uses."""
    z = lr * positions / replicas if replicas else 0.0
    return (1 - math.exp(-replicas * z)) / (replicas * (1 - math.exp(-z))) if z else 1.0


def merge_weights(trainer: Word2vecTrainer, numbers: range, lr: float) -> list[Any]:
    """For each table, the merge weight of each row that these blocks use."""
    replicas = [np.zeros(table.rows) for table in trainer.tables]
    positions = [np.zeros(table.rows) for table in trainer.tables]
    for number in numbers:
        for table, rows in trainer.plan(*divmod(number, trainer.num_blocks)).accesses:
            replicas[table][np.unique(rows)] += 1
            np.add.at(positions[table], rows, 1)
    pairs = [zip(*sums, strict=True) for sums in zip(replicas, positions, strict=True)]
    lrs = [lr * table.gradient_scale for table in trainer.tables]
    return [np.array([expected_weight(k, n, one) for k, n in pair]) for pair, one in zip(pairs, lrs, strict=True)]


def test_merged_steps_count_as_if_in_sequence() -> None:
    """Each of n steps moves the fraction r of the rest; k replicas of n steps move as far as k n steps."""
    lr, steps, replicas = 0.001, 400, 4
    way = 1 - math.exp(-lr * steps)
    together = replicas * way * merge_weight(float(replicas), float(replicas * steps), lr)
    assert together == pytest.approx(1 - (1 - lr) ** (replicas * steps), rel=1e-3)
    assert merge_weight(3.0, 3.0, 1e-12) == 1
    assert merge_weight(4.0, 4e6, 0.05) == pytest.approx(0.25)
    assert merge_weight(4.0, 123.0, 0.05) == pytest.approx(expected_weight(4, 123, 0.05))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_run_equals_the_reference(job: VectorJob, kind: str, mode: str) -> None:
    """Fast: in sequence. Exact: four blocks at a time start from the same weights, then their changes are merged."""
    recipe = recipe_of(kind, mode=mode)
    trainer, slow = Word2vecTrainer(recipe, job.text, 3), Word2vecTrainer(recipe, job.text, 3)
    tables = [table.matrix().astype(np.float64) for table in slow.tables]
    state = train_blocks(trainer, recipe, 0.02, replace(job, threads=2 if mode == "exact" else 1)).state
    width, planned = REPLICAS if mode == "exact" else 1, 2 * trainer.num_blocks
    stops = [*range(0, planned, SEGMENT), trainer.num_blocks, planned]
    losses: list[list[float]] = [[0.0, 0], [0.0, 0]]
    for begin, end in itertools.pairwise(sorted(set(stops))):
        for first in range(begin, end, width):
            before = [table.copy() for table in tables]
            lr = 0.02 * (1 - first / planned)
            weights = merge_weights(slow, range(first, min(first + width, end)), lr)
            for number in range(first, min(first + width, end)):
                own = [table.copy() for table in before]
                epoch, block = divmod(number, trainer.num_blocks)
                found = slow_block(recipe, slow.plan(epoch, block).content, own[0], own[1], lr)
                losses[epoch] = [sum(pair) for pair in zip(losses[epoch], found, strict=True)]
                for table, old, new, expected_weight in zip(tables, before, own, weights, strict=True):
                    table += expected_weight[:, None] * (new - old)
    assert state.losses == pytest.approx([loss / examples for loss, examples in losses], rel=1e-5)
    for table, expected in zip(trainer.tables, tables, strict=True):
        np.testing.assert_allclose(table.matrix(), expected, atol=2e-5)


def test_copies_replace_the_rows_in_use() -> None:
    rng = np.random.default_rng(2)
    table = table_from_matrix(rng.normal(size=(40, 7)).astype(np.float32), spare=30)
    before, slots = table.flat.copy(), np.full(40, -1, dtype=np.int32)
    wanted = rng.integers(0, 20, 60).astype(np.int32)
    rows, rows_used, uses = wanted.copy(), np.empty(30, dtype=np.int32), np.empty(30, dtype=np.int32)
    count = map_to_copies(rows, 45, slots, rows_used, uses)
    assert uses[:count].tolist() == np.bincount(wanted)[rows_used[:count]].tolist()
    assert rows_used[:count].tolist() == list(dict.fromkeys(wanted.tolist())), "in the order in which they are met"
    assert np.array_equal(rows_used[rows - 45], wanted)
    assert np.all(slots == -1)
    copy_rows(table.flat, rows_used, count, table.stride, 45)
    spare = table.flat.reshape(70, -1)
    assert np.array_equal(spare[rows], spare[wanted])
    assert np.array_equal(table.weights, before[: table.weights.size])
    assert not spare[40:45].any()
    assert not spare[45 + count :].any()


def merged(table: EmbeddingTable, replicas: list[tuple[Any, int]], parts: int) -> Any:
    """The rows after all parts have been merged, one after the other; row r is used r times."""
    sums = np.zeros(table.rows, dtype=np.uint8), np.zeros(table.rows)
    for part in range(parts):
        for rows_used, _ in replicas:
            count_replicas(rows_used, rows_used, rows_used.size, part, parts, *sums)
        for rows_used, first in replicas:
            merge_rows(table.flat, rows_used, rows_used.size, table.stride, first, part, parts, *sums, LR)
        for rows_used, _ in replicas:
            clear_counts(rows_used, rows_used.size, part, parts, sums[1])
    assert not sums[0].any()
    assert not sums[1].any()
    return table.matrix().copy()


def test_merging_adds_the_changes_of_all_replicas() -> None:
    rng = np.random.default_rng(4)
    rows_used = [rng.permutation(30)[: rng.integers(5, 25)].astype(np.int32) for _ in range(REPLICAS)]
    rows_used = [np.append(rows[rows != 3], np.int32(3)) for rows in rows_used]  # all have changed this one
    replicas = [(rows, 30 + 30 * replica) for replica, rows in enumerate(rows_used)]
    start = rng.normal(size=(30, 9)).astype(np.float32)
    expected, found = start.astype(np.float64), []
    changes = [rng.normal(size=(rows.size, 9)).astype(np.float32) for rows in rows_used]
    replicas_of = np.bincount(np.concatenate(rows_used), minlength=30)
    for rows, change in zip(rows_used, changes, strict=True):
        weights = [expected_weight(replicas_of[row], replicas_of[row] * row, LR) for row in rows.tolist()]
        expected[rows] += np.array(weights)[:, None] * change
    assert np.bincount(np.concatenate(rows_used)).max() == REPLICAS
    for parts in (1, 2, 3, 5):
        table = table_from_matrix(start, spare=30 * REPLICAS)
        for (rows, first), change in zip(replicas, changes, strict=True):
            copy_rows(table.flat, rows, rows.size, table.stride, first)
            spare = table.flat.reshape(-1, table.stride)[first : first + rows.size]
            spare[:, :9] += change
        found.append(merged(table, replicas, parts))
        np.testing.assert_allclose(found[-1], expected, atol=3e-6)
        assert found[-1].tobytes() == found[0].tobytes()
    untouched = np.setdiff1d(np.arange(30), np.concatenate(rows_used))
    assert np.array_equal(found[0][untouched], start[untouched])
    alone = np.flatnonzero(np.bincount(np.concatenate(rows_used), minlength=30) == 1)
    assert alone.size
    one = np.concatenate([start[rows] + change for rows, change in zip(rows_used, changes, strict=True)])
    order = {int(row): position for position, row in enumerate(np.concatenate(rows_used))}
    assert all(np.array_equal(found[0][row], one[order[int(row)]]) for row in alone), "a row of one replica is its copy"


def run(recorder: Recorder, job: VectorJob, *, mode: str = "fast", epochs: int = 3, lr: float = 0.5) -> SgdTrainer:
    return train_blocks(recorder, Word2vecRecipe(mode=mode, epochs=epochs), lr, job)  # type: ignore[arg-type]


def test_the_learning_rate_decays_linearly(job: VectorJob) -> None:
    recorder = Recorder(50)
    run(recorder, replace(job, threads=2))
    assert [(epoch, block) for epoch, block, _ in recorder.done()] == list(itertools.product(range(3), range(50)))
    lrs = [lr for _, _, lr in recorder.done()]
    assert lrs == pytest.approx(0.5 * (1 - np.arange(150) / 150))


def test_large_norms_cap_the_learning_rate(job: VectorJob) -> None:
    recorder = Recorder(50)
    recorder.max_step = 1.2
    recorder.tables[0].matrix()[:] = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]  # a mean square of 2
    run(recorder, replace(job, threads=2), lr=0.8)
    lrs = [lr for _, _, lr in recorder.done()]
    assert lrs == pytest.approx(np.minimum(0.8 * (1 - np.arange(150) / 150), 0.6))


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_many_epochs_do_not_diverge(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms grow from epoch to epoch, until steps that were small at first overshoot."""
    rng = np.random.default_rng(1)
    topics = rng.integers(0, 20, 400)
    sentences = [" ".join(f"w{topic}_{int(40 * rng.random() ** 2)}" for _ in range(12)) for topic in topics]
    job = job_of(read_corpus([sentences], layout="lines"), seed=3)
    recipe = recipe_of(mode=mode, epochs=60, lr=0.3, subsample=0.0, dimension=50)
    losses = train_word2vec(recipe, job).metrics["losses"]
    assert losses[-1] < losses[20] < losses[0]
    with pytest.raises(TrainingError, match="diverged"):
        train_word2vec(replace(recipe, lr=0.6), job)
    monkeypatch.setattr(Word2vecTrainer, "max_step", math.inf)
    try:  # whether the loss is infinite in the end depends on the last bits, and so on the processor
        without_cap = train_word2vec(recipe, job).metrics["losses"][-1]
    except TrainingError:
        without_cap = math.inf
    assert without_cap > losses[0]


def test_a_round_of_exact_mode_has_the_learning_rate_of_its_first_block(job: VectorJob) -> None:
    recorder = Recorder(50)
    run(recorder, replace(job, threads=2), mode="exact")
    assert [(epoch, block) for epoch, block, _ in recorder.done()] == list(itertools.product(range(3), range(50)))
    # Segments of 32 blocks, also ended by an epoch; rounds restart in each.
    segments = itertools.pairwise([0, 32, 50, 64, 96, 100, 128, 150])
    firsts = [begin + (n - begin) // REPLICAS * REPLICAS for begin, end in segments for n in range(begin, end)]
    assert [lr for _, _, lr in recorder.done()] == pytest.approx(0.5 * (1 - np.array(firsts) / 150))


def test_the_learning_rate_is_never_zero(job: VectorJob) -> None:
    recorder = Recorder(1000)
    run(recorder, job, epochs=12)
    assert recorder.done()[-1][2] == pytest.approx(0.5e-4)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_losses_are_means_over_each_epoch(job: VectorJob, mode: str) -> None:
    trainer = run(Recorder(50), replace(job, tokens=100 * 120, threads=2), mode=mode)
    epochs = [[(epoch, block) for block in range(50)] for epoch in range(2)] + [[(2, block) for block in range(20)]]
    expected = [sum(example_loss(*p) for p in positions) / sum(b % 3 for _, b in positions) for positions in epochs]
    assert trainer.state.losses == pytest.approx(expected)
    assert trainer.state.step == trainer.plan.total == 120


def test_budgets_decide_how_many_blocks_there_are(job: VectorJob) -> None:
    assert run(Recorder(50), job).state.step == 150
    assert run(Recorder(50), replace(job, tokens=7_000)).state.step == 70
    assert run(Recorder(50), replace(job, tokens=1)).state.step == 1
    assert run(Recorder(50, flops_per_word=20.0), replace(job, flops=20.0 * 100 * 66)).state.step == 66
    assert run(Recorder(50, flops_per_word=20.0), replace(job, flops=1.0)).state.step == 1
    assert run(Recorder(50), replace(job, seconds=1e-9)).state.step >= 1


def test_flops_are_counted(job: VectorJob) -> None:
    """Six for each number of each pair of vectors: a product, and a step for both."""
    recipe = recipe_of(subsample=0.0, dynamic_window=False)
    trainer = Word2vecTrainer(recipe, job.text, 0)
    content = [trainer.plan(0, block).content for block in range(trainer.num_blocks)]
    pairs = sum(trainer.train_block(BlockPlan((), part), 0.0)[1] for part in content)
    real = 6 * pairs * (1 + 3) * 10
    assert 0.4 * real < trainer.flops_per_word * trainer.num_words < 1.5 * real
    result = train_word2vec(recipe, replace(job, flops=trainer.flops_per_word * trainer.num_words * 1.5))
    assert result.tokens == pytest.approx(1.5 * trainer.num_words, rel=0.02)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_time_budget_is_met(job: VectorJob, mode: str) -> None:
    recorder = Recorder(50, seconds=0.002)
    started = time.monotonic()
    trainer = run(recorder, replace(job, seconds=1.0), mode=mode)
    assert 0.65 < time.monotonic() - started < 1.5
    assert trainer.state.step == len(recorder.done()) > 100


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_the_plan_follows_the_throughput(job: VectorJob, mode: str) -> None:
    """Updates take longer than the calibration without them."""
    recorder = Recorder(50, seconds=0.001, changing=0.003)
    started = time.monotonic()
    trainer = run(recorder, replace(job, seconds=2.0), mode=mode)
    assert 1.3 < time.monotonic() - started < 2.6
    assert trainer.state.step == math.ceil(trainer.plan.total) == len(recorder.done())
    lrs = [lr for _, _, lr in recorder.done()]
    assert lrs[-1] < 0.2 * lrs[0], "the learning rate has decayed as if the plan had been known"


def test_calibration_changes_no_bit(job: VectorJob) -> None:
    recipe = recipe_of()
    trainer = Word2vecTrainer(recipe, job.text, 3)
    for table in trainer.tables:
        table.weights[:] = np.random.default_rng(5).normal(size=table.weights.size)
    before = [table.weights.tobytes() for table in trainer.tables]
    with ThreadPoolExecutor(2) as threads:
        loop._Exact(trainer, threads, 2)(range(20), lambda number: 0.0)
    assert [table.weights.tobytes() for table in trainer.tables] == before


def test_a_resumed_run_has_the_rest_of_its_time(job: VectorJob) -> None:
    checkpointer, state = MemoryCheckpointer(), TrainingState(step=64, tokens=6400, seconds=1.9)
    plan = TrainingPlan("step", 500, 50_000, seconds=2.0)
    checkpointer.save({"table0": Recorder(50).tables[0].weights}, {"plan": asdict(plan), "state": asdict(state)})
    started = time.monotonic()
    run(Recorder(50, seconds=0.002), replace(job, seconds=2.0, checkpointer=checkpointer))
    assert time.monotonic() - started < 0.6


def test_a_time_budget_is_met_by_real_blocks(job: VectorJob) -> None:
    """Roughly: what else the machine does may change between the first tenth and the rest."""
    started = time.monotonic()
    result = train_word2vec(recipe_of(), replace(job, seconds=1.5))
    assert 0.5 * 1.5 < time.monotonic() - started < 2.5 * 1.5
    assert result.tokens > 5 * len(job.text.ids)
    assert result.metrics["losses"][-1] < result.metrics["losses"][0]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_divergence_stops_the_run(job: VectorJob, mode: str) -> None:
    checkpointer = MemoryCheckpointer()
    recipe = recipe_of(lr=10.0, dimension=200, window=8, subsample=0.0, epochs=30, mode=mode)
    with pytest.raises(TrainingError, match=r"resume=True settings={'lr': 5"):
        train_word2vec(recipe, replace(job, checkpointer=checkpointer))
    for arrays, _ in checkpointer.states:
        assert all(np.all(np.isfinite(array)) for array in arrays.values())
    with pytest.raises(TrainingError, match=r"train with settings={'lr': 5"):
        train_word2vec(recipe, job)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("table", ["table0", "table1"])
def test_a_weight_that_is_not_finite_stops_the_run(job: VectorJob, table: str, value: float) -> None:
    checkpointer = MemoryCheckpointer(dies_after=1)
    with pytest.raises(KilledError):
        train_word2vec(recipe_of(), replace(job, checkpointer=checkpointer))
    checkpointer.states[0][0][table][7 * 16] = value
    with pytest.raises(TrainingError, match=r"diverged: .* resume=True"):
        train_word2vec(recipe_of(), replace(job, checkpointer=checkpointer))
    assert len(checkpointer.states) == 1, "the last good checkpoint remains"


def test_a_loss_that_is_nan_stops_the_run(job: VectorJob) -> None:
    recorder = Recorder(50)
    recorder.train_block = lambda plan, lr: (float("nan"), 1)  # type: ignore[method-assign]
    with pytest.raises(TrainingError):
        run(recorder, job)


def test_a_table_with_a_nan_stops_the_run_whatever_the_loss_is(job: VectorJob) -> None:
    recorder = Recorder(50)
    recorder.tables[0].matrix()[2, 1] = np.nan
    with pytest.raises(TrainingError):
        run(recorder, job)


def test_an_interrupt_saves_a_checkpoint_first(job: VectorJob) -> None:
    """Even if none is due; the resumed run ends with the same bytes."""
    checkpointer, trainer = MemoryCheckpointer(due=False), Word2vecTrainer(recipe_of(), job.text, 3)
    train_block, calls = trainer.train_block, itertools.count()

    def interrupted(plan: BlockPlan, lr: float) -> tuple[float, int]:
        if next(calls) == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return train_block(plan, lr)

    trainer.train_block = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train_blocks(trainer, recipe_of(), 0.05, replace(job, checkpointer=checkpointer))
    assert [state["state"]["step"] for _, state in checkpointer.states] == [SEGMENT]
    tables = []
    for how in (checkpointer, None):
        again = Word2vecTrainer(recipe_of(), job.text, 3)
        train_blocks(again, recipe_of(), 0.05, replace(job, checkpointer=how))
        tables.append([table.weights.tobytes() for table in again.tables])
    assert tables[0] == tables[1]


def test_the_same_bytes_from_the_command_line(job: VectorJob, tmp_path: Path) -> None:
    words = [job.text.words[word] for word in job.text.ids.tolist()]
    lines = [" ".join(words[begin : begin + 12]) for begin in range(0, len(words), 12)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    settings = [part for setting in ("dimension=5", "epochs=2", "mode=exact") for part in ("--set", setting)]
    infos = []
    for threads in (1, 2):
        out = tmp_path / str(threads)
        outcome = firth("train", "skipgram", tmp_path / "text.txt", "-o", out, "--threads", threads, *settings)
        assert outcome.code == 0, outcome.err
        infos.append(firth("info", out, "--json").json)
    one, two = ({k: v for k, v in info["files"].items() if k != "metrics.jsonl"} for info in infos)  # it has times
    assert one == two
    assert len(infos[0]["metrics"]["losses"]) == 2
    records = [json.loads(line) for line in (tmp_path / "2" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["tokens"] == infos[1]["budget"]["spent"]["tokens"] == 2 * len(job.text.ids)
    assert records[-1]["epochs"] == 2
    assert [one["losses"]["negative"] for one in records] == [one["loss"] for one in records]
    assert all(earlier["rate"] > later["rate"] for earlier, later in itertools.pairwise(records[:-1]))
