"""Contiguous streams, and the memory that training keeps from one row of a stream to the next."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.fit.batches import Batches, Cursor
from firth.fit.loop import TrainingModule, make_training_module, measure_losses
from firth.fit.memory_bank import MemoryBank
from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.recipe import MemoryRecipe, NetRecipe, OutputRecipe, SequenceRecipe
from firth.objectives.heads.clm import positions_with_next
from tests.command import firth as command
from tests.fit.reading_batches import one_epoch, some_text, stream_of
from tests.fit.small_nets import make_run, open_small, parameters, same, sentences, small, trained, valid_batches
from tests.fit.test_resume_nets import BUDGET, interrupted
from tests.objectives.small_stores import store_of


def recalling(memory: int = 20, length: int = 12, **learning: Any) -> NetRecipe:
    """A small Transformer with relative positions and a memory."""
    base = small(**{"optimiser": "adam"} | learning)
    return replace(
        base,
        embedding=replace(base.embedding, positions="none", scaled=True),
        encoder=replace(base.encoder, layers=2, positions="relative"),
        output=OutputRecipe(kind="adaptive-tied"),
        sequence=SequenceRecipe(format="contiguous", length=length),
        memory=MemoryRecipe(length=memory),
    )


def bare(recipe: NetRecipe, store: Any, seed: int = 0) -> Batches:
    return Batches(recipe, store, [], seed)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 7])
def test_rows_continue_those_of_the_step_before(rows: int, parts: int, tmp_path: Path) -> None:
    recipe = recalling(batch=12 * rows, grad_accumulation=parts)
    batches = bare(recipe, some_text(tmp_path))
    ends: dict[int, tuple[int, int, int]] = {}
    for step in one_epoch(batches):
        assert [tuple(batch.shape) for batch in step]
        seen = []
        for batch in step:
            assert batch.offsets is not None
            for row, (stream, begin, length) in enumerate(
                zip(*(one.tolist() for one in batch.offsets[:3]), strict=True)
            ):
                ids = batch.ids[row]
                document = int(batch.offsets.documents[row, 0])
                if stream in ends:
                    assert ends[stream] == (begin, int(ids[0]), document), "a row does not continue its stream"
                ends[stream] = (begin + length, int(ids[length]), int(batch.offsets.documents[row, length]))
                seen.append(stream)
        assert seen == list(range(len(seen))), "the rows are shuffled"
    assert len(ends) == rows


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("epoch", [0, 3])
def test_every_token_is_predicted_once_an_epoch(rows: int, epoch: int, tmp_path: Path) -> None:
    store = some_text(tmp_path)
    batches = bare(recalling(batch=12 * rows), store)
    found = []
    for step in one_epoch(batches, epoch):
        for batch in step:
            positions = positions_with_next(batch)
            found += batch.ids.flatten()[positions + 1].tolist()
    expected = [token for document in stream_of(store) for token in document[1:]]
    assert sorted(found) == sorted(expected)
    assert sum(batch.tokens for step in one_epoch(batches, epoch) for batch in step) == len(store)


def test_steps_depend_on_seed_and_epoch_alone(tmp_path: Path) -> None:
    store = some_text(tmp_path)
    cursor, seen = Cursor(), []
    batches = bare(recalling(batch=48), store)
    for _ in range(5):
        (batch,), cursor = batches.step(cursor)
        seen.append(batch.ids)
    (again,), _ = bare(recalling(batch=48), store).step(Cursor(0, 12))
    assert torch.equal(again.ids, seen[3])
    assert not torch.equal(bare(recalling(batch=48), store).step(Cursor(1, 0))[0][0].ids, seen[0])


@pytest.mark.parametrize("words", [1, 3, 9, 30])
def test_short_texts_have_fewer_streams(words: int, tmp_path: Path) -> None:
    store = store_of([[[5 + number % 4 for number in range(words)]]], tmp_path, vocabulary=40)
    batches = bare(recalling(batch=120), store)
    found = [batch for step in one_epoch(batches) for batch in step]
    predicted = sum(len(positions_with_next(batch)) for batch in found)
    assert predicted == words + 1
    assert batches.rows == max(1, (words + 2) // 12)


def test_documents_that_come_again_are_others(tmp_path: Path) -> None:
    """A single document has another number after the end of the text."""
    store = store_of([[[5, 6, 7, 8, 9, 10, 11, 12, 13, 14]]], tmp_path, vocabulary=40)
    documents = []
    for epoch in range(5):
        for (batch,) in one_epoch(bare(recalling(length=8, batch=8), store), epoch):
            assert batch.offsets is not None
            sequence_ids = torch.zeros_like(batch.ids) if batch.sequence_ids is None else batch.sequence_ids
            for row in range(batch.shape[0]):
                used = sequence_ids[row] >= 0
                numbers = batch.offsets.documents[row]
                assert torch.equal(numbers[used] - numbers[0], sequence_ids[row][used])
                assert (numbers[~used] == -1).all()
                documents += numbers[used].tolist()
    assert set(documents) == {0, 1}


def make_module(recipe: NetRecipe, tokens: int) -> TrainingModule:
    vocabulary = Vocabulary([f"w{number}" for number in range(tokens)], np.arange(tokens, 0, -1))
    return make_training_module(recipe, vocabulary, 0).double()


def small_text(folder: Path) -> Any:
    rng = np.random.default_rng(2)
    documents = [[rng.integers(5, 40, rng.integers(3, 30)).tolist() for _ in range(4)] for _ in range(6)]
    return store_of(documents, folder, vocabulary=40)


@pytest.mark.parametrize("parts", [1, 2])
def test_losses_with_enough_memory_are_those_of_whole_documents(parts: int, tmp_path: Path) -> None:
    """The sum over an epoch of one stream that begins with the text is that of each document by itself."""
    store = small_text(tmp_path)
    streams = parts
    recipe = recalling(memory=1000, length=9, batch=9 * streams, grad_accumulation=parts)
    module, batches = make_module(recipe, 40), bare(recipe, store)
    steps = one_epoch(batches)
    total = 0.0
    with torch.no_grad():
        for step in steps:
            for batch in step:
                total += float(module.losses(batch, None)["clm"].total)
    # By hand: each stream is cut into the documents that it has, and these are read at once.
    expected = 0.0
    for stream in range(streams):
        tokens, documents = [], []
        for step in steps:
            for batch in step:
                offsets = batch.offsets
                assert offsets is not None
                for row in (offsets.streams == stream).nonzero()[:, 0].tolist():
                    size = int(offsets.lengths[row])
                    tokens += batch.ids[row, :size].tolist()
                    documents += offsets.documents[row, :size].tolist()
                    after = (int(batch.ids[row, size]), int(offsets.documents[row, size]))
        tokens.append(after[0])
        documents.append(after[1])
        for document in dict.fromkeys(documents):
            ids = torch.tensor([[token for token, one in zip(tokens, documents, strict=True) if one == document]])
            alone = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
            if ids.shape[1] > 1:
                with torch.no_grad():
                    expected += float(module.losses(alone, None)["clm"].total)
    assert total == pytest.approx(expected, rel=1e-9)


def test_training_keeps_the_memory_and_validation_has_its_own(tmp_path: Path) -> None:
    store = small_text(tmp_path)
    recipe = recalling(batch=48)
    module, batches = make_module(recipe, 40), bare(recipe, store)
    (first,), cursor = batches.step(Cursor())
    (second,), _ = batches.step(cursor)
    alone = measure_losses(module, [second])
    assert not module.memory.rows
    with torch.no_grad():
        module.losses(first, None)
        kept = module.memory.arrays()
        assert measure_losses(module, [second]) == alone, "validation reads the memory of the training"
        assert same(module.memory.arrays(), kept), "validation changes the memory of the training"
        after = float(module.losses(second, None)["clm"].total) / len(positions_with_next(second))
    assert after != pytest.approx(alone["clm"], rel=1e-6), "training does not use its memory"
    together = measure_losses(module, [first, second])
    separate = [measure_losses(module, [one])["clm"] for one in (first, second)]
    assert together["clm"] != pytest.approx(np.mean(separate), rel=1e-6), "validation does not carry its memory"


def test_the_memory_has_no_gradient_and_is_of_the_row_before(tmp_path: Path) -> None:
    store = small_text(tmp_path)
    recipe = recalling(memory=30, batch=48)
    module, batches = make_module(recipe, 40), bare(recipe, store)
    cursor = Cursor()
    for _ in range(4):
        (batch,), cursor = batches.step(cursor)
        module.losses(batch, None)
    assert all(not one.layers.requires_grad for one in module.memory.rows.values())
    assert all(one.layers.shape == (2, 30, 16) for one in module.memory.rows.values())
    (other,), _ = batches.step(Cursor(5, 0))
    assert other.offsets is not None
    assert module.memory.recall(other.offsets) is None, "another epoch begins elsewhere"
    (following,), _ = batches.step(cursor)
    assert following.offsets is not None
    found = module.memory.recall(following.offsets)
    assert found is not None
    again = MemoryBank(30)
    again.restore(module.memory.arrays())
    restored = again.recall(following.offsets)
    assert restored is not None
    assert torch.equal(torch.stack(restored.layers), torch.stack(found.layers))
    assert torch.equal(restored.visible, found.visible)


@pytest.mark.parametrize("parts", [1, 2])
def test_resuming_restores_the_memory(parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    recipe = recalling(grad_accumulation=parts)
    whole = trained(open_small(recipe, make_run(budget=BUDGET, valid=True)))
    again = interrupted(recipe, tmp_path / "m", [5, 1, 9], valid=True)
    assert again.state.step == whole.state.step > 20
    assert any(name.startswith("memory.") for name in parameters(again))
    assert same(parameters(again), parameters(whole))


def test_measuring_leaves_no_memory() -> None:
    trainer = open_small(recalling(), make_run(budget="8s", valid=True))
    assert not trainer.module.memory.rows
    assert all(batch.offsets is not None for batch in valid_batches(trainer))


def test_killed_and_resumed_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The artifact has the bits of an uninterrupted run, and no memory."""
    (tmp_path / "t.txt").write_text("\n".join(sentences(600)))
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    given = [
        "train",
        "transformer-xl",
        str(tmp_path / "t.txt"),
        "--size",
        "tiny",
        "--budget",
        "30ktok",
        "--threads",
        "1",
    ]
    given += ["--set", "memory.length=24", "--set", "sequence.length=16", "--set", "learning.batch=256"]
    command(*given, "-o", str(tmp_path / "whole"))
    process = subprocess.Popen(
        [sys.executable, "-m", "firth", *given, "-o", str(tmp_path / "killed")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics = tmp_path / "killed" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") > 8):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "model.safetensors").exists(), "it was done before it was killed"
    command(*given, "-o", str(tmp_path / "killed"), "--resume")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == two
    assert b'"memory.' not in one
