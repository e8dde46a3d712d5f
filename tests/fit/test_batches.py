"""Batches: order, noise, random access, and texts of all kinds."""

from __future__ import annotations

import gzip
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firth.errors import CorpusError, RecipeError
from firth.fit.batches import Batches, Cursor, vocabulary_of
from firth.nets.batch import Batch
from firth.nets.network import build_network
from firth.nets.recipe import Format
from firth.objectives.heads.build import make_heads
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import PAD
from tests.fit.reading_batches import (
    FORMATS,
    batches_of,
    one_epoch,
    parts_of,
    some_text,
    words,
)
from tests.objectives.small_stores import (
    FakeTokenizer,
    numbered,
    small_recipe,
    store_of,
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return some_text(tmp_path_factory.mktemp("text"))


# Order, noise and random access


def same(one: list[Batch], other: list[Batch]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        torch.equal(a.ids, b.ids) and a.labels.keys() == b.labels.keys()
        and all(torch.equal(a.labels[key], b.labels[key]) for key in a.labels)
        for a, b in pairs
    )  # fmt: skip


CASES = [("clm", "stream"), ("mlm+nsp", "segment-pair"), ("mlm", "full-sentences"), ("autoencoding", "sentences")]


@pytest.mark.parametrize(("objectives", "form"), CASES)
def test_a_step_does_not_depend_on_those_before(text: TokenStore, objectives: str, form: Format) -> None:
    recipe = small_recipe(objectives, form=form, length=32, batch=128)
    walked, cursor, seen = batches_of(recipe, text), Cursor(), []
    while cursor.epoch < 2:
        step, after = walked.step(cursor)
        seen.append((cursor, step))
        cursor = after
    for cursor, step in (seen[-1], seen[0], seen[len(seen) // 3]):
        again, _ = batches_of(recipe, text).step(cursor)
        assert same(step, again)
    other, _ = batches_of(recipe, text, seed=1).step(Cursor())
    assert not same(other, seen[0][1])
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda one: walked.step(one[0])[0], seen[::7]))
    assert all(same(step, one) for (_, step), one in zip(seen[::7], found, strict=True))


@pytest.mark.parametrize("form", ["stream", "full-sentences", "segment-pair"])
def test_masks_are_the_same_or_not_as_the_recipe_says(text: TokenStore, form: Format) -> None:
    def rows(masks: str, epoch: int) -> dict[tuple[int, ...], int]:
        recipe = small_recipe("mlm", form=form, length=32, batch=128, mode=masks)
        steps = one_epoch(batches_of(recipe, text), epoch)
        rows = [row[row != PAD].tolist() for step in steps for row in step[0].ids.numpy()]
        return {tuple(row): place for place, row in enumerate(rows)}

    static = [rows("static", epoch) for epoch in (0, 1)]
    assert static[0].keys() == static[1].keys()
    assert list(static[0]) != list(static[1])  # in another order
    duplicated = [rows("duplicated", epoch) for epoch in (0, 1, 10, 11)]
    assert duplicated[0].keys() == duplicated[2].keys()
    assert duplicated[1].keys() == duplicated[3].keys()
    dynamic = [rows("dynamic", epoch) for epoch in (0, 1, 10)]
    for one, other in ((duplicated[0], duplicated[1]), (dynamic[0], dynamic[1]), (dynamic[0], dynamic[2])):
        assert len(one.keys() & other.keys()) < 0.1 * len(one)


@pytest.mark.parametrize(("objectives", "form"), CASES)
def test_accumulation_changes_nothing_but_the_cut(text: TokenStore, objectives: str, form: Format) -> None:
    whole = one_epoch(batches_of(small_recipe(objectives, form=form, length=32, batch=256), text))
    parted = one_epoch(batches_of(small_recipe(objectives, form=form, length=32, batch=256, grad_accumulation=3), text))
    assert len(whole) == len(parted)
    for (one,), several in zip(whole, parted, strict=True):
        assert len(several) == min(3, len(one.ids))
        rows = [row for batch in several for row in batch.ids.tolist()]
        assert [[token for token in row if token != PAD] for row in rows] == [
            [token for token in row if token != PAD] for row in one.ids.tolist()
        ]
        assert sum(batch.tokens for batch in several) == one.tokens
        for name, labels in one.labels.items():
            if name.endswith(("targets", "labels")):
                assert torch.equal(torch.cat([batch.labels[name] for batch in several]), labels)


def test_a_step_has_the_tokens_of_the_recipe(text: TokenStore) -> None:
    for batch, rows in ((1, 1), (31, 1), (64, 2), (100, 3), (10**6, None)):
        batches = batches_of(small_recipe("clm", length=32, batch=batch), text, corrupt=False)
        (first, *_), _ = batches.step(Cursor())
        total = -(-(len(text) + text.info.sentences + text.info.documents) // 31)
        assert first.shape == (total if rows is None else rows, 32)
        assert batches.steps() == -(-total // batches.rows) == len(one_epoch(batches))


@pytest.mark.parametrize("form", ["stream", "sentences", "segment-pair"])
def test_shorter_rows_at_first(text: TokenStore, form: Format) -> None:
    """An epoch of shorter rows has as many steps, all the text, and about as many tokens a step."""
    recipe = small_recipe("mlm", form=form, length=64, batch=1024)
    batches = batches_of(recipe, text)
    long, short = one_epoch(batches), one_epoch(batches, length=16)
    assert len(long) == len(short)
    assert all(batch.shape[1] <= 16 for step in short for batch in step)
    sizes = [[sum(batch.tokens for batch in step) for step in steps] for steps in (long, short)]
    assert sum(sizes[0]) == sum(sizes[1]) == len(text)
    assert np.allclose(sizes[0][:-1], sizes[1][:-1], rtol=0.2)
    assert same(batches.step(Cursor(), 64)[0], long[0])
    assert batches.step(Cursor(), 1)[0][0].shape[1] == 16


def test_validation_is_always_the_same(text: TokenStore) -> None:
    recipe = small_recipe("mlm", form="doc-sentences", length=32, batch=256, grad_accumulation=2)
    one, other = batches_of(recipe, text, seed=1).fixed(1000), batches_of(recipe, text, seed=2).fixed(1000)
    assert same(one, other)
    assert all("mlm.positions" in batch.labels and batch.shape[0] <= 4 for batch in one)
    assert 900 < sum(batch.tokens for batch in one) < 1200
    assert sum(batch.tokens for batch in batches_of(recipe, text).fixed(10**9)) == len(text)
    assert len(batches_of(recipe, text).fixed(1)) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    sizes=st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=4), min_size=1, max_size=5),
    form=st.sampled_from(FORMATS),
    length=st.integers(5, 40),
    epoch=st.integers(0, 2),
    every=st.integers(1, 4),
)
def test_any_small_text(
    sizes: list[list[int]], form: Format, length: int, epoch: int, every: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(numbered(sizes), tmp_path_factory.mktemp("any"), every=every)
    pairs = form.endswith("pair")
    recipe = small_recipe("mlm+sop" if pairs else "mlm", form=form, length=length, batch=2 * length)
    steps = one_epoch(batches_of(recipe, store), epoch)
    read: list[int] = []
    for step in steps:
        for batch in step:
            restored = batch.ids.flatten().clone()
            restored[batch.labels["mlm.positions"]] = batch.labels["mlm.targets"]
            read += words(restored.tolist())
            list(parts_of(batch))
    assert sorted(read) == sorted(store.ids.tolist())


# Bad input, and the rest


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no token"):
        batches_of(small_recipe("clm"), store_of([], tmp_path), corrupt=False)


def test_rows_without_room_and_streams_to_be_repeated_are_refused(text: TokenStore) -> None:
    with pytest.raises(RecipeError, match=r"sequence\.length=4"):
        batches_of(small_recipe("nsp", form="segment-pair", length=4), text)
    with pytest.raises(RecipeError, match=r"sequence\.format=sentences"):
        batches_of(small_recipe("autoencoding", form="stream"), text)


def test_one_token_is_enough(tmp_path: Path) -> None:
    store = store_of([[[7]]], tmp_path)
    for form in FORMATS:
        objectives = "mlm+nsp" if form.endswith("pair") else "mlm"
        (batch,), after = batches_of(small_recipe(objectives, form=form), store).step(Cursor())
        assert (batch.tokens, after) == (1, Cursor(1, 0))


def test_the_vocabulary_counts_tokens_and_ends(tmp_path: Path) -> None:
    store = store_of([[[5, 7, 7], [1]], [[5]]], tmp_path, vocabulary=9)
    vocabulary = vocabulary_of(FakeTokenizer(9), store)  # type: ignore[arg-type]
    assert vocabulary.counts.tolist() == [0, 1, 0, 3, 0, 2, 0, 2, 0]
    assert len(vocabulary) == 9


def test_batches_are_built_much_faster_than_a_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = [(1 + rng.geometric(0.04, 30)).tolist() for _ in range(200)]
    store = store_of([[[7] * size for size in document] for document in sizes], tmp_path)
    recipe = small_recipe("mlm+nsp", form="segment-pair", length=128, batch=4096)
    batches = batches_of(recipe, store)
    one_epoch(batches)  # compiles
    started = time.perf_counter()
    tokens = sum(batch.tokens for step in one_epoch(batches, 1) for batch in step)
    assert tokens / (time.perf_counter() - started) > 500_000


@pytest.mark.shared
@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_of_a_real_text_is_read_in_full_rows(shared_data: Path, language: str) -> None:
    with gzip.open(shared_data / "lm" / f"wiki_{language}.txt.gz", "rt", encoding="utf-8") as file:
        documents = file.read(400_000).split("\n\n")
    tokenizer, store = open_tokens(TokenizerRecipe(model="wordpiece", vocab_size=4000), read_corpus(documents))
    vocabulary = vocabulary_of(tokenizer, store)
    assert vocabulary.counts.sum() == len(store) + store.info.sentences
    for form in FORMATS:
        recipe = small_recipe("mlm+sop" if form.endswith("pair") else "mlm", form=form, length=128, batch=4096)
        objectives = list(make_heads(recipe, build_network(recipe, vocabulary, 0)).values())
        batches = Batches(recipe, store, objectives, 0)
        made = [batch for step in one_epoch(batches) for batch in step]
        assert batches.fill > (0.96 if form == "sentence-pair" else 0.97)  # many are longer than half a row
        assert sum(batch.tokens for batch in made) == len(store)
        chosen = sum(len(batch.labels["mlm.positions"]) for batch in made)
        assert abs(chosen - 0.15 * len(store)) < 4 * np.sqrt(len(store) * 0.15 * 0.85)
