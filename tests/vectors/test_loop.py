"""The loop over blocks of text: the same bytes for any number of threads, budgets, rates, losses, and going on."""

from __future__ import annotations

import copy
import itertools
import math
import os
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from firth.errors import TrainingError
from firth.text.corpus import read_corpus
from firth.vectors import loop, word2vec
from firth.vectors._exact_kernels import clear_places, copy_rows, count_lanes, localise, merge_rows, share_of_changes
from firth.vectors.job import Job, Result
from firth.vectors.loop import LANES, Plan, Progress, run_loop
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.tables import Table, from_matrix, zeros
from firth.vectors.word2vec import WordBlocks, train_word2vec
from tests.command import firth
from tests.vectors.slow_word2vec import slow_block
from tests.vectors.word_groups import job_of

RATE = 0.02
SEGMENT = 32  # blocks after which the state may be kept
KINDS: dict[str, dict[str, Any]] = {
    "skipgram": {"buckets": 0},
    "cbow": {"architecture": "cbow", "buckets": 0},
    "fasttext": {"min_n": 3, "max_n": 4, "buckets": 80},
}
LOSSES = ("negative", "hierarchical", "nce", "softmax")


class Memory:
    """A keeper that keeps in memory, and can die before or after it has kept the state for the n-th time."""

    def __init__(self, dies_before: int = 0, dies_after: int = 0) -> None:
        self.states: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.dies_before, self.dies_after = dies_before, dies_after

    def due(self) -> bool:
        return True

    def keep(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        if len(self.states) + 1 == self.dies_before:
            raise OSError("killed before it was written")
        self.states.append((copy.deepcopy(dict(arrays)), copy.deepcopy(dict(state))))
        if len(self.states) == self.dies_after:
            raise OSError("killed after it was written")

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        return copy.deepcopy(self.states[-1]) if self.states else None


class Recorder:
    """Blocks that learn nothing, but write down what they are asked."""

    def __init__(self, blocks: int, work: float = 1.0, seconds: float = 0.0, changing: float = 0.0) -> None:
        self.tables = (zeros(3, 2, 3 * LANES),)
        self.blocks, self.words, self.work, self.seconds = blocks, 100 * blocks, work, seconds
        self.calm = math.inf
        self.changing = changing  # seconds more that a block takes with a rate
        self.asked: list[tuple[int, int, float]] = []

    def plan(self, epoch: int, block: int) -> Plan:
        return Plan((), (epoch, block))

    def learn(self, plan: Plan, rate: float) -> tuple[float, int]:
        epoch, block = plan.content
        time.sleep(self.seconds + (self.changing if rate else 0.0))
        self.asked.append((epoch, block, rate))
        return example_loss(epoch, block), block % 3

    def done(self) -> list[tuple[int, int, float]]:
        """What was asked with a rate, in order: without one it was only to see how long it takes."""
        return sorted(asked for asked in self.asked if asked[2])


def example_loss(epoch: int, block: int) -> float:
    return 10 * epoch + block * (block % 3)


@pytest.fixture(scope="module")
def job() -> Job:
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


def tables_of(result: Result) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in result.model.arrays().items()}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing_in_exact_mode(job: Job, kind: str, loss: str) -> None:
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
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(job: Job, kind: str, mode: str, times: int) -> None:
    recipe = recipe_of(kind, mode=mode, epochs=3)
    whole = train_word2vec(recipe, job)
    for keeper in (Memory(dies_before=times), Memory(dies_after=times)):
        with pytest.raises(OSError, match="killed"):
            train_word2vec(recipe, replace(job, keeper=keeper))
        kept = len(keeper.states)
        assert kept == times - (1 if keeper.dies_before else 0)
        keeper.dies_before = keeper.dies_after = 0
        again = train_word2vec(recipe, replace(job, keeper=keeper, threads=2 if mode == "exact" else 1))
        assert tables_of(again) == tables_of(whole)
        assert again.metrics == whole.metrics
        assert again.tokens == whole.tokens
        assert len(keeper.states) > max(kept, 5)


def test_fast_mode_with_one_thread_gives_the_same_bytes_again(job: Job) -> None:
    recipe = recipe_of(mode="fast")
    assert tables_of(train_word2vec(recipe, job)) == tables_of(train_word2vec(recipe, job))


def test_fast_mode_with_two_threads_learns_as_much(job: Job) -> None:
    recipe = recipe_of(mode="fast", epochs=10)
    one, two = (train_word2vec(recipe, replace(job, threads=threads)).metrics["losses"] for threads in (1, 2))
    assert two == pytest.approx(one, rel=0.02)
    assert two[-1] < 0.98 * two[0]


def share(lanes: float, places: float, rate: float) -> float:
    """What counts of the changes of lanes that have touched a row at so many places in all."""
    pull = rate * places / lanes if lanes else 0.0
    return (1 - math.exp(-lanes * pull)) / (lanes * (1 - math.exp(-pull))) if pull else 1.0


def shares_of(blocks: WordBlocks, numbers: range, rate: float) -> list[Any]:
    """For each table, what counts of the changes of each row that these blocks touch together."""
    lanes = [np.zeros(table.rows) for table in blocks.tables]
    places = [np.zeros(table.rows) for table in blocks.tables]
    for number in numbers:
        for table, rows in blocks.plan(*divmod(number, blocks.blocks)).touches:
            lanes[table][np.unique(rows)] += 1
            np.add.at(places[table], rows, 1)
    pairs = [zip(*sums, strict=True) for sums in zip(lanes, places, strict=True)]
    rates = [rate * table.pull for table in blocks.tables]
    return [np.array([share(k, n, one) for k, n in pair]) for pair, one in zip(pairs, rates, strict=True)]


def test_many_steps_together_count_as_if_they_came_after_each_other() -> None:
    """Each of n steps goes the share r of the way that is left; k lanes of n steps go as far as k n steps."""
    rate, steps, lanes = 0.001, 400, 4
    way = 1 - math.exp(-rate * steps)
    together = lanes * way * share_of_changes(float(lanes), float(lanes * steps), rate)
    assert together == pytest.approx(1 - (1 - rate) ** (lanes * steps), rel=1e-3)
    assert share_of_changes(3.0, 3.0, 1e-12) == 1
    assert share_of_changes(4.0, 4e6, 0.05) == pytest.approx(0.25)
    assert share_of_changes(4.0, 123.0, 0.05) == pytest.approx(share(4, 123, 0.05))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_run_is_that_of_the_twin(job: Job, kind: str, mode: str) -> None:
    """Fast: block after block. Exact: four blocks at a time start alike, then what they have changed is added."""
    recipe = recipe_of(kind, mode=mode)
    blocks, slow = WordBlocks(recipe, job.text, 3), WordBlocks(recipe, job.text, 3)
    tables = [table.matrix().astype(np.float64) for table in slow.tables]
    state = run_loop(blocks, recipe, 0.02, replace(job, threads=2 if mode == "exact" else 1))
    width, planned = LANES if mode == "exact" else 1, 2 * blocks.blocks
    stops = [*range(0, planned, SEGMENT), blocks.blocks, planned]
    losses: list[list[float]] = [[0.0, 0], [0.0, 0]]
    for begin, end in itertools.pairwise(sorted(set(stops))):
        for first in range(begin, end, width):
            before = [table.copy() for table in tables]
            rate = 0.02 * (1 - first / planned)
            shares = shares_of(slow, range(first, min(first + width, end)), rate)
            for number in range(first, min(first + width, end)):
                mine = [table.copy() for table in before]
                epoch, block = divmod(number, blocks.blocks)
                found = slow_block(recipe, slow.plan(epoch, block).content, mine[0], mine[1], rate)
                losses[epoch] = [sum(pair) for pair in zip(losses[epoch], found, strict=True)]
                for table, old, new, share in zip(tables, before, mine, shares, strict=True):
                    table += share[:, None] * (new - old)
    assert state.losses == pytest.approx([loss / examples for loss, examples in losses], rel=1e-5)
    for table, expected in zip(blocks.tables, tables, strict=True):
        np.testing.assert_allclose(table.matrix(), expected, atol=2e-5)


def test_copies_stand_for_the_rows_that_are_touched() -> None:
    rng = np.random.default_rng(2)
    table = from_matrix(rng.normal(size=(40, 7)).astype(np.float32), spare=30)
    before, slots = table.flat.copy(), np.full(40, -1, dtype=np.int32)
    wanted = rng.integers(0, 20, 60).astype(np.int32)
    rows, touched, often = wanted.copy(), np.empty(30, dtype=np.int32), np.empty(30, dtype=np.int32)
    met = localise(rows, 45, slots, touched, often)
    assert often[:met].tolist() == np.bincount(wanted)[touched[:met]].tolist()
    assert touched[:met].tolist() == list(dict.fromkeys(wanted.tolist())), "in the order in which they are met"
    assert np.array_equal(touched[rows - 45], wanted)
    assert np.all(slots == -1)
    copy_rows(table.flat, touched, met, table.stride, 45)
    spare = table.flat.reshape(70, -1)
    assert np.array_equal(spare[rows], spare[wanted])
    assert np.array_equal(table.used, before[: table.used.size])
    assert not spare[40:45].any()
    assert not spare[45 + met :].any()


def merged(table: Table, lanes: list[tuple[Any, int]], parts: int) -> Any:
    """The rows after all parts have been merged, one after the other; each was at as many places as its number."""
    sums = np.zeros(table.rows, dtype=np.uint8), np.zeros(table.rows)
    for part in range(parts):
        for touched, _ in lanes:
            count_lanes(touched, touched, touched.size, part, parts, *sums)
        for touched, first in lanes:
            merge_rows(table.flat, touched, touched.size, table.stride, first, part, parts, *sums, RATE)
        for touched, _ in lanes:
            clear_places(touched, touched.size, part, parts, sums[1])
    assert not sums[0].any()
    assert not sums[1].any()
    return table.matrix().copy()


def test_merging_adds_what_all_lanes_have_changed() -> None:
    rng = np.random.default_rng(4)
    touched = [rng.permutation(30)[: rng.integers(5, 25)].astype(np.int32) for _ in range(LANES)]
    touched = [np.append(rows[rows != 3], np.int32(3)) for rows in touched]  # all have changed this one
    lanes = [(rows, 30 + 30 * lane) for lane, rows in enumerate(touched)]
    start = rng.normal(size=(30, 9)).astype(np.float32)
    expected, found = start.astype(np.float64), []
    changes = [rng.normal(size=(rows.size, 9)).astype(np.float32) for rows in touched]
    lanes_of = np.bincount(np.concatenate(touched), minlength=30)
    for rows, change in zip(touched, changes, strict=True):
        shares = [share(lanes_of[row], lanes_of[row] * row, RATE) for row in rows.tolist()]
        expected[rows] += np.array(shares)[:, None] * change
    assert np.bincount(np.concatenate(touched)).max() == LANES
    for parts in (1, 2, 3, 5):
        table = from_matrix(start, spare=30 * LANES)
        for (rows, first), change in zip(lanes, changes, strict=True):
            copy_rows(table.flat, rows, rows.size, table.stride, first)
            spare = table.flat.reshape(-1, table.stride)[first : first + rows.size]
            spare[:, :9] += change
        found.append(merged(table, lanes, parts))
        np.testing.assert_allclose(found[-1], expected, atol=3e-6)
        assert found[-1].tobytes() == found[0].tobytes()
    untouched = np.setdiff1d(np.arange(30), np.concatenate(touched))
    assert np.array_equal(found[0][untouched], start[untouched])
    alone = np.flatnonzero(np.bincount(np.concatenate(touched), minlength=30) == 1)
    assert alone.size
    one = np.concatenate([start[rows] + change for rows, change in zip(touched, changes, strict=True)])
    order = {int(row): place for place, row in enumerate(np.concatenate(touched))}
    assert all(np.array_equal(found[0][row], one[order[int(row)]]) for row in alone), "a row of one lane is its copy"


def run(recorder: Recorder, job: Job, *, mode: str = "fast", epochs: int = 3, rate: float = 0.5) -> Progress:
    return run_loop(recorder, Word2vecRecipe(mode=mode, epochs=epochs), rate, job)  # type: ignore[arg-type]


def test_the_rate_falls_in_a_straight_line(job: Job) -> None:
    recorder = Recorder(50)
    run(recorder, replace(job, threads=2))
    assert [(epoch, block) for epoch, block, _ in recorder.done()] == list(itertools.product(range(3), range(50)))
    rates = [rate for _, _, rate in recorder.done()]
    assert rates == pytest.approx(0.5 * (1 - np.arange(150) / 150))


def test_long_rows_learn_at_a_lower_rate(job: Job) -> None:
    recorder = Recorder(50)
    recorder.calm = 1.2
    recorder.tables[0].matrix()[:] = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]  # a mean square of 2
    run(recorder, replace(job, threads=2), rate=0.8)
    rates = [rate for _, _, rate in recorder.done()]
    assert rates == pytest.approx(np.minimum(0.8 * (1 - np.arange(150) / 150), 0.6))


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_many_passes_do_not_end_in_noise(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows grow from pass to pass, until steps that were small at first throw them about."""
    rng = np.random.default_rng(1)
    topics = rng.integers(0, 20, 400)
    sentences = [" ".join(f"w{topic}_{int(40 * rng.random() ** 2)}" for _ in range(12)) for topic in topics]
    job = job_of(read_corpus([sentences], layout="lines"), seed=3)
    recipe = recipe_of(mode=mode, epochs=60, learning_rate=0.3, subsample=0.0, dimension=50)
    losses = train_word2vec(recipe, job).metrics["losses"]
    assert losses[-1] < losses[20] < losses[0]
    with pytest.raises(TrainingError, match="without bound"):
        train_word2vec(replace(recipe, learning_rate=0.6), job)
    monkeypatch.setattr(WordBlocks, "calm", math.inf)
    with pytest.raises(TrainingError, match="without bound"):
        train_word2vec(recipe, job)


def test_a_round_of_exact_mode_has_the_rate_of_its_first_block(job: Job) -> None:
    recorder = Recorder(50)
    run(recorder, replace(job, threads=2), mode="exact")
    assert [(epoch, block) for epoch, block, _ in recorder.done()] == list(itertools.product(range(3), range(50)))
    # Segments of 32 blocks, ended also by a pass; rounds begin anew in each.
    segments = itertools.pairwise([0, 32, 50, 64, 96, 100, 128, 150])
    firsts = [begin + (n - begin) // LANES * LANES for begin, end in segments for n in range(begin, end)]
    assert [rate for _, _, rate in recorder.done()] == pytest.approx(0.5 * (1 - np.array(firsts) / 150))


def test_the_rate_is_never_nothing(job: Job) -> None:
    recorder = Recorder(1000)
    run(recorder, job, epochs=12)
    assert recorder.done()[-1][2] == pytest.approx(0.5e-4)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_losses_are_means_over_each_pass(job: Job, mode: str) -> None:
    state = run(Recorder(50), replace(job, tokens=100 * 120, threads=2), mode=mode)
    passes = [[(epoch, block) for block in range(50)] for epoch in range(2)] + [[(2, block) for block in range(20)]]
    expected = [sum(example_loss(*p) for p in places) / sum(b % 3 for _, b in places) for places in passes]
    assert state.losses == pytest.approx(expected)
    assert state.done == state.planned == 120


def test_budgets_decide_how_many_blocks_there_are(job: Job) -> None:
    assert run(Recorder(50), job).done == 150
    assert run(Recorder(50), replace(job, tokens=7_000)).done == 70
    assert run(Recorder(50), replace(job, tokens=1)).done == 1
    assert run(Recorder(50, work=20.0), replace(job, flops=20.0 * 100 * 66)).done == 66
    assert run(Recorder(50, work=20.0), replace(job, flops=1.0)).done == 1
    assert run(Recorder(50), replace(job, seconds=1e-9)).done >= 1


def test_operations_are_counted(job: Job) -> None:
    """Six for each number of each pair of vectors: a product, and a step for both."""
    recipe = recipe_of(subsample=0.0, shrink=False)
    blocks = WordBlocks(recipe, job.text, 0)
    content = [blocks.plan(0, block).content for block in range(blocks.blocks)]
    pairs = sum(blocks.learn(Plan((), part), 0.0)[1] for part in content)
    real = 6 * pairs * (1 + 3) * 10
    assert 0.4 * real < blocks.work * blocks.words < 1.5 * real
    result = train_word2vec(recipe, replace(job, flops=blocks.work * blocks.words * 1.5))
    assert result.tokens == pytest.approx(1.5 * blocks.words, rel=0.02)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_budget_of_time_is_kept(job: Job, mode: str) -> None:
    recorder = Recorder(50, seconds=0.002)
    started = time.monotonic()
    state = run(recorder, replace(job, seconds=1.0), mode=mode)
    assert 0.65 < time.monotonic() - started < 1.5
    assert state.done == len(recorder.done()) > 100


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_the_plan_follows_the_pace(job: Job, mode: str) -> None:
    """Changing tables takes longer than looking at them, which is all that is measured before."""
    recorder = Recorder(50, seconds=0.001, changing=0.003)
    started = time.monotonic()
    state = run(recorder, replace(job, seconds=2.0), mode=mode)
    assert 1.3 < time.monotonic() - started < 2.6
    assert state.done == state.planned == len(recorder.done())
    rates = [rate for _, _, rate in recorder.done()]
    assert rates[-1] < 0.2 * rates[0], "the rate has fallen as if the plan had been known"


def test_measuring_the_pace_changes_no_bit(job: Job) -> None:
    recipe = recipe_of()
    blocks = WordBlocks(recipe, job.text, 3)
    for table in blocks.tables:
        table.used[:] = np.random.default_rng(5).normal(size=table.used.size)
    before = [table.used.tobytes() for table in blocks.tables]
    with ThreadPoolExecutor(2) as threads:
        loop._Exact(blocks, threads, 2)(range(20), lambda number: 0.0)
    assert [table.used.tobytes() for table in blocks.tables] == before


def test_a_run_that_goes_on_has_what_is_left_of_its_time(job: Job) -> None:
    keeper = Memory()
    keeper.states = [({"table0": Recorder(50).tables[0].used}, vars(Progress(done=64, planned=500, seconds=1.9)))]
    started = time.monotonic()
    run(Recorder(50, seconds=0.002), replace(job, seconds=2.0, keeper=keeper))
    assert time.monotonic() - started < 0.6


def test_a_budget_of_time_is_kept_by_real_blocks(job: Job) -> None:
    """Roughly: what else the machine does may change between the first tenth and the rest."""
    started = time.monotonic()
    result = train_word2vec(recipe_of(), replace(job, seconds=1.5))
    assert 0.5 * 1.5 < time.monotonic() - started < 2.5 * 1.5
    assert result.tokens > 5 * len(job.text.ids)
    assert result.metrics["losses"][-1] < result.metrics["losses"][0]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_numbers_that_grow_without_bound_stop_the_run(job: Job, mode: str) -> None:
    keeper = Memory()
    recipe = recipe_of(learning_rate=10.0, dimension=200, window=8, subsample=0.0, epochs=30, mode=mode)
    with pytest.raises(TrainingError, match="--resume and a smaller learning_rate"):
        train_word2vec(recipe, replace(job, keeper=keeper))
    for arrays, _ in keeper.states:
        assert all(np.all(np.isfinite(array)) for array in arrays.values())
    with pytest.raises(TrainingError, match="train with a smaller learning_rate"):
        train_word2vec(recipe, job)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("table", ["table0", "table1"])
def test_a_number_that_is_none_stops_the_run(job: Job, table: str, value: float) -> None:
    keeper = Memory(dies_after=1)
    with pytest.raises(OSError, match="killed"):
        train_word2vec(recipe_of(), replace(job, keeper=keeper))
    keeper.states[0][0][table][7 * 16] = value
    with pytest.raises(TrainingError, match="smaller learning_rate"):
        train_word2vec(recipe_of(), replace(job, keeper=keeper))
    assert len(keeper.states) == 1, "the last good state is the one that is kept"


def test_a_loss_that_is_none_stops_the_run(job: Job) -> None:
    recorder = Recorder(50)
    recorder.learn = lambda plan, rate: (float("nan"), 1)  # type: ignore[method-assign]
    with pytest.raises(TrainingError):
        run(recorder, job)


def test_a_table_with_a_number_that_is_none_stops_the_run_whatever_the_loss_is(job: Job) -> None:
    recorder = Recorder(50)
    recorder.tables[0].matrix()[2, 1] = np.nan
    with pytest.raises(TrainingError):
        run(recorder, job)


def test_an_interrupt_keeps_the_state_first(job: Job) -> None:
    """Even where it would not be time to; what goes on ends with the same bytes."""
    keeper, blocks = Memory(), WordBlocks(recipe_of(), job.text, 3)
    keeper.due = lambda: False  # type: ignore[method-assign]
    learn, asked = blocks.learn, itertools.count()

    def interrupted(plan: Plan, rate: float) -> tuple[float, int]:
        if next(asked) == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return learn(plan, rate)

    blocks.learn = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run_loop(blocks, recipe_of(), 0.05, replace(job, keeper=keeper))
    assert [state["done"] for _, state in keeper.states] == [SEGMENT]
    tables = []
    for how in (keeper, None):
        again = WordBlocks(recipe_of(), job.text, 3)
        run_loop(again, recipe_of(), 0.05, replace(job, keeper=how))
        tables.append([table.used.tobytes() for table in again.tables])
    assert tables[0] == tables[1]


def test_the_same_bytes_from_the_command_line(job: Job, tmp_path: Path) -> None:
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
    assert infos[0]["files"] == infos[1]["files"]
    assert len(infos[0]["metrics"]["losses"]) == 2
