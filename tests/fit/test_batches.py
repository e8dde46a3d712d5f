"""Batches: every format on texts whose ids are all different, so that what is read can be told from the rows."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firth.errors import CorpusError, RecipeError
from firth.fit.batches import Batches, Cursor, vocabulary_of
from firth.fit.packing import pack
from firth.nets.batch import Batch
from firth.nets.recipe import Format, NetRecipe
from firth.objectives.objective import make_objectives
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD
from tests.objectives.small_stores import (
    FakeTokenizer,
    numbered,
    random_documents,
    small_recipe,
    small_vocabulary,
    store_of,
)

SEQUENCES: tuple[Format, ...] = ("sentences", "full-sentences", "doc-sentences", "segment-pair", "sentence-pair")
FORMATS: tuple[Format, ...] = ("stream", *SEQUENCES)
VOCABULARY = 60_000
SIZES = [[3, 4, 2], [5], [1, 30], [6, 2, 2, 7, 9], [2, 2], [11, 3]]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A text of some thousand tokens in documents and sentences of all sizes; words are of two tokens."""
    documents = random_documents(np.random.default_rng(0), 40, longest=40)
    return store_of(documents, tmp_path_factory.mktemp("text"), every=2, vocabulary=VOCABULARY)


def batches_of(recipe: NetRecipe, store: TokenStore, seed: int = 0, corrupt: bool = True) -> Batches:
    objectives = make_objectives(recipe, small_vocabulary(VOCABULARY if corrupt else 40))
    return Batches(recipe, store, list(objectives.values()) if corrupt else [], seed)


def one_pass(batches: Batches, epoch: int = 0, length: int | None = None) -> list[list[Batch]]:
    """The batches of each step of a pass."""
    steps, cursor = [], Cursor(epoch, 0)
    while cursor.epoch == epoch:
        step, cursor = batches.step(cursor, length)
        steps.append(step)
    assert cursor == Cursor(epoch + 1, 0)
    return steps


def parts_of(batch: Batch) -> Iterator[tuple[list[int], list[int]]]:
    """The ids and segments of each part of each row; checks what must hold for all parts."""
    rows, width = batch.shape
    ids, zeros = batch.ids.tolist(), [[0] * width] * rows
    parts = zeros if batch.parts is None else batch.parts.tolist()
    positions = [[*range(width)]] * rows if batch.positions is None else batch.positions.tolist()
    segments = zeros if batch.segments is None else batch.segments.tolist()
    for row in range(rows):
        begin = 0
        for part, group in enumerate(groupby(parts[row])):
            number, end = group[0], begin + len(list(group[1]))
            if number < 0:
                assert (ids[row][begin:], end) == ([PAD] * (width - begin), width)
                break
            assert number == part
            assert positions[row][begin:end] == list(range(end - begin))
            yield ids[row][begin:end], segments[row][begin:end]
            begin = end


def parts_in(steps: list[list[Batch]]) -> list[tuple[list[int], list[int]]]:
    return [part for step in steps for batch in step for part in parts_of(batch)]


def words(ids: list[int]) -> list[int]:
    return [token for token in ids if token > MASK]


def stream_of(store: TokenStore) -> list[list[int]]:
    """Each document as `EOS s1 EOS s2 EOS`."""
    documents = []
    for number in range(store.facts.documents):
        documents.append([EOS])
        for sentence in store.document(number):
            documents[-1] += [*sentence.tolist(), EOS]
    return documents


# What rows hold


def test_a_stream_by_hand(tmp_path: Path) -> None:
    store = store_of(numbered([[2, 1], [3]]), tmp_path)
    recipe = small_recipe("clm", length=4, batch=8)
    steps = one_pass(batches_of(recipe, store, corrupt=False))
    circle = [EOS, 5, 6, EOS, 7, EOS, EOS, 8, 9, 10, EOS]
    rows = [row.tolist() for step in steps for batch in step for row in batch.ids]
    assert [len(step[0].ids) for step in steps] == [2, 2]
    seen = []
    for row in rows:
        kept = [token for token in row if token != PAD]
        where = [place for place in range(11) if [circle[(place + n) % 11] for n in range(len(kept))] == kept]
        assert len(where) == 1
        seen += [(where[0] + n) % 11 for n in range(1, len(kept))]  # the first is not predicted
    assert sorted(seen) == list(range(11))
    assert sum(batch.tokens for step in steps for batch in step) == 6


@pytest.mark.parametrize("objective", ["clm", "bilm", "mlm"])
@pytest.mark.parametrize("length", [7, 16, 64])
def test_a_stream_is_read_once(text: TokenStore, objective: str, length: int) -> None:
    recipe = small_recipe(objective, length=length, batch=4 * length)
    batches = batches_of(recipe, text, corrupt=False)
    overlap = 0 if objective == "mlm" else 1
    for epoch in (0, 1):
        steps = one_pass(batches, epoch)
        circle = [(token, number) for number, ids in enumerate(stream_of(text)) for token in ids]
        where = {token: place for place, (token, _) in enumerate(circle) if token > MASK}
        counts = np.zeros(len(circle), dtype=int)
        for step in steps:
            for batch in step:
                for row in batch.ids.tolist():
                    row = row if PAD not in row else row[: row.index(PAD)]
                    begins = [where[token] - place for place, token in enumerate(row) if token > MASK]
                    begin = begins[0] if begins else None
                    if begin is None:  # nothing but ends: too short to be found
                        continue
                    assert [circle[(begin + n) % len(circle)][0] for n in range(len(row))] == row
                    for n in range(overlap, len(row)):
                        counts[(begin + n) % len(circle)] += 1
        assert counts.max() == 1
        assert all(counts[place] == 1 for place in where.values())
        assert sum(batch.tokens for step in steps for batch in step) == len(text) == batches.tokens
    assert batches.fill > 0.99


def test_parts_of_a_stream_are_documents(text: TokenStore) -> None:
    documents = stream_of(text)
    number = {token: index for index, ids in enumerate(documents) for token in ids if token > MASK}
    found = 0
    for ids, _ in parts_in(one_pass(batches_of(small_recipe("clm", length=32), text, corrupt=False))):
        inside = {number[token] for token in words(ids)}
        assert len(inside) <= 1
        if inside:
            whole = documents[inside.pop()]
            assert any(whole[place : place + len(ids)] == ids for place in range(len(whole)))
            found += 1
    assert found > 40


def test_a_text_shorter_than_a_row_is_one_row_from_its_beginning(tmp_path: Path) -> None:
    store = store_of(numbered([[2, 1]]), tmp_path)
    (batch,), after = batches_of(small_recipe("clm"), store, corrupt=False).step(Cursor())
    assert batch.ids.tolist() == [[EOS, 5, 6, EOS, 7, EOS]]
    assert after == Cursor(1, 0)
    assert batch.parts is None
    assert batch.positions is None


EXPECTED: dict[tuple[str, str], list[list[int]]] = {
    ("sentences", "mlm"): [[BOS, 5, 6, 7, EOS], [BOS, 8, EOS], [BOS, 9, 10, EOS]],
    ("sentences", "clm"): [[EOS, 5, 6, 7, EOS], [EOS, 8, EOS], [EOS, 9, 10, EOS]],
    ("sentences", "autoencoding"): [
        [EOS, 5, 6, 7, EOS, 5, 6, 7, EOS],
        [EOS, 8, EOS, 8, EOS],
        [EOS, 9, 10, EOS, 9, 10, EOS],
    ],
    ("full-sentences", "mlm"): [[BOS, 5, 6, 7, 8, EOS, 9, 10, EOS]],
    ("doc-sentences", "mlm"): [[BOS, 5, 6, 7, 8, EOS], [BOS, 9, 10, EOS]],
    ("sentence-pair", "mlm"): [[BOS, 5, 6, 7, EOS, 8, EOS], [BOS, 9, EOS, 10, EOS]],
}


@pytest.mark.parametrize(("form", "objective"), EXPECTED)
def test_sequences_by_hand(form: Format, objective: str, tmp_path: Path) -> None:
    store = store_of(numbered([[3, 1], [2]]), tmp_path)
    recipe = small_recipe(objective, form=form, length=16)
    batches = batches_of(recipe, store, corrupt=objective == "autoencoding")
    steps = one_pass(batches)
    parts = parts_in(steps)
    assert sorted(ids for ids, _ in parts) == sorted(EXPECTED[form, objective])
    assert sum(batch.tokens for step in steps for batch in step) == 6
    if form == "sentence-pair":
        segments = {tuple(ids): kinds for ids, kinds in parts}
        assert segments[tuple(EXPECTED[form, objective][0])] == [0, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("form", SEQUENCES)
@pytest.mark.parametrize("length", [8, 16, 64])
def test_every_token_is_read_once(text: TokenStore, form: Format, length: int) -> None:
    for objective in ("mlm", "mlm+sop", "autoencoding"):
        pairs = form.endswith("pair")
        if (objective == "autoencoding") == pairs or (objective == "mlm+sop") > pairs:
            continue
        recipe = small_recipe(objective, form=form, length=length, batch=4 * length)
        batches = batches_of(recipe, text, corrupt=objective == "autoencoding")
        steps = one_pass(batches)
        assert all(batch.shape[1] <= length for step in steps for batch in step)
        read = [token for ids, _ in parts_in(steps) for token in words(ids)]
        times = 2 if objective == "autoencoding" else 1
        assert sorted(read) == sorted(text.ids.tolist() * times)
        assert sum(batch.tokens for step in steps for batch in step) == len(text)
        opening = EOS if objective == "autoencoding" else BOS
        assert all(ids[0] == opening and ids[-1] == EOS for ids, _ in parts_in(steps))


def test_sequences_are_contiguous_and_keep_to_documents(text: TokenStore) -> None:
    documents = [[token for ids in text.document(number) for token in ids] for number in range(text.facts.documents)]
    number = {token: index for index, ids in enumerate(documents) for token in ids}
    firsts = {ids[0] for ids in documents}
    over = 0
    for form in ("full-sentences", "doc-sentences", "segment-pair", "sentence-pair"):
        recipe = small_recipe("mlm", form=form, length=48)
        for ids, _ in parts_in(one_pass(batches_of(recipe, text, corrupt=False))):
            here = words(ids)
            assert here == list(range(here[0], here[-1] + 1))  # ids were given in the order of the text
            crossed = {number[token] for token in here}
            if form == "full-sentences":
                ends = {ids[place + 1] for place in range(1, len(ids) - 1) if ids[place] == EOS}
                assert ends == firsts & set(here[1:])  # a separator before each document that begins inside
                over += len(crossed) > 1
            else:
                assert len(crossed) == 1
    assert over > 0


def test_sequences_end_with_sentences_or_words(text: TokenStore) -> None:
    """Words of the text have two tokens: no sequence ends within one, though all are nearly as long as they may be."""
    starts = {token for token, start in zip(text.ids.tolist(), text.starts.tolist(), strict=True) if start}
    for form in ("full-sentences", "segment-pair", "sentences"):
        parts = parts_in(one_pass(batches_of(small_recipe("mlm", form=form, length=48), text, corrupt=False)))
        assert all(words(ids)[0] in starts for ids, _ in parts)
        if form == "full-sentences":
            assert sorted(len(ids) for ids, _ in parts)[1] > 40  # but for the last of the text


def test_long_sentences_are_split_and_counted(tmp_path: Path) -> None:
    store = store_of(numbered(SIZES), tmp_path)
    for form, most, split in (
        ("sentences", 14, 1),
        ("full-sentences", 14, 1),
        ("segment-pair", 13, 1),
        ("sentence-pair", 6, 4),
    ):
        batches = batches_of(small_recipe("mlm", form=form), store, corrupt=False)  # type: ignore[arg-type]
        assert batches.split == split == sum(size > most for sizes in SIZES for size in sizes)
    assert batches_of(small_recipe("autoencoding", form="sentences"), store).split == 4  # more than (16 - 3) / 2
    assert batches_of(small_recipe("clm"), store, corrupt=False).split == 1


# Pairs


@pytest.mark.parametrize("form", ["segment-pair", "sentence-pair"])
@pytest.mark.parametrize("length", [16, 64])
def test_labels_of_next_sentences_are_true(text: TokenStore, form: Format, length: int) -> None:
    recipe = small_recipe("nsp", form=form, length=length, batch=8 * length)
    batches = batches_of(recipe, text)
    number = {
        token: index
        for index in range(text.facts.documents)
        for sentence in text.document(index)
        for token in sentence.tolist()
    }
    counts, read = [0, 0, 0], []
    for step in one_pass(batches):
        for batch in step:
            labels = batch.marks["nsp.labels"].tolist()
            parts = list(parts_of(batch))
            assert len(labels) == len(parts)
            for (ids, segments), label in zip(parts, labels, strict=True):
                kinds = np.array(segments)
                first, second = (
                    words([token for token, k in zip(ids, kinds, strict=True) if k == kind]) for kind in (0, 1)
                )
                assert kinds.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + (len(second) > 0))
                assert ids[len(first) + 1] == EOS
                read += first + second
                counts[label] += 1
                if label < 0:
                    assert not second
                elif label == 0:
                    assert second[0] == first[-1] + 1
                    assert number[second[0]] == number[first[0]]
                else:
                    assert number[second[0]] != number[first[0]]
    assert counts[2] < 0.05 * sum(counts)
    assert abs(counts[0] - counts[1]) < 5 * np.sqrt(counts[0] + counts[1])
    assert len(set(read)) == len(read) > 0.98 * len(text)


def test_labels_of_order_are_true(text: TokenStore) -> None:
    recipe = small_recipe("sop", form="segment-pair", length=32)
    counts = [0, 0, 0]
    for step in one_pass(batches_of(recipe, text)):
        for batch in step:
            for (ids, segments), label in zip(parts_of(batch), batch.marks["sop.labels"].tolist(), strict=True):
                second = words([token for token, kind in zip(ids, segments, strict=True) if kind == 1])
                counts[label] += 1
                if label >= 0:
                    assert (second[0] > ids[1]) == (label == 0)
                    assert words(ids) == (sorted(words(ids)) if label == 0 else second_first(ids, segments))
    assert abs(counts[0] - counts[1]) < 5 * np.sqrt(counts[0] + counts[1])


def second_first(ids: list[int], segments: list[int]) -> list[int]:
    """The words of a part whose segments were exchanged: those of segment 1 come first in the text."""
    late, early = (
        [token for token, k in zip(ids, segments, strict=True) if k == kind and token > MASK] for kind in (0, 1)
    )
    assert [*early, *late] == list(range(early[0], late[-1] + 1))
    return [*late, *early]


def test_a_tenth_of_the_pairs_is_short_and_the_rest_is_full(tmp_path: Path) -> None:
    store = store_of(numbered([[9] * 2000]), tmp_path, vocabulary=VOCABULARY)
    recipe = small_recipe("mlm", form="segment-pair", length=64)
    lengths = np.array([len(ids) for ids, _ in parts_in(one_pass(batches_of(recipe, store, corrupt=False)))])
    full = int((lengths >= 61).sum())  # a sentence may end one before the room does
    assert abs(full - 0.9 * len(lengths)) < 5 * np.sqrt(0.09 * len(lengths))
    assert lengths.min() < 20


def test_segments_are_told_only_to_who_asks(text: TokenStore) -> None:
    recipe = small_recipe("nsp", form="segment-pair")
    (batch,), _ = batches_of(recipe, text).step(Cursor())
    assert batch.segments is not None
    without = replace(recipe, embedding=replace(recipe.embedding, segments=0))
    (batch,), _ = batches_of(without, text).step(Cursor())
    assert batch.segments is None


# Packing


@given(st.lists(st.integers(1, 20), min_size=1, max_size=200), st.sampled_from([20, 64, 65, 200]))
def test_packing_loses_nothing(lengths: list[int], capacity: int) -> None:
    packed = pack(np.array(lengths), capacity)
    assert sorted(packed.members.tolist()) == list(range(len(lengths)))
    held = [packed.members[a:b] for a, b in zip(packed.bounds, packed.bounds[1:], strict=False)]
    assert [int(np.array(lengths)[each].sum()) for each in held] == packed.used.tolist()
    assert packed.used.max() <= capacity
    assert all((each[1:] > each[:-1]).all() for each in held)
    turn = {index: place for place, index in enumerate(sorted(range(len(lengths)), key=lambda index: -lengths[index]))}
    for row, each in enumerate(held):  # no sequence opened a row though an older one had room for it
        opener = min(each.tolist(), key=lambda index: turn[index])
        before = [sum(lengths[index] for index in other if turn[index] < turn[opener]) for other in held[:row]]
        assert all(total + lengths[opener] > capacity for total in before)


def test_what_does_not_fit_is_not_written_beside_the_row() -> None:
    with pytest.raises(ValueError, match="21 places"):
        pack(np.array([3, 21, 4]), 20)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("length", [128, 512])
def test_rows_are_full(form: Format, length: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sizes = [np.minimum(1 + rng.geometric(0.04, int(rng.integers(5, 60))), 150).tolist() for _ in range(250)]
    store = store_of([[[7] * size for size in document] for document in sizes], tmp_path)
    recipe = small_recipe("mlm", form=form, length=length)
    batches = batches_of(recipe, store, corrupt=False)
    assert batches.fill > 0.97
    shown = [batch for step in one_pass(batches) for batch in step]
    used = sum(int((batch.ids != PAD).sum()) for batch in shown)
    rows = sum(batch.shape[0] for batch in shown)
    assert used / (rows * length) == pytest.approx(batches.fill, abs=1e-9)


# Order, noise and random access


def same(one: list[Batch], other: list[Batch]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        torch.equal(a.ids, b.ids) and a.marks.keys() == b.marks.keys()
        and all(torch.equal(a.marks[key], b.marks[key]) for key in a.marks)
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
        recipe = small_recipe("mlm", form=form, length=32, batch=128, masks=masks)
        steps = one_pass(batches_of(recipe, text), epoch)
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
    whole = one_pass(batches_of(small_recipe(objectives, form=form, length=32, batch=256), text))
    parted = one_pass(batches_of(small_recipe(objectives, form=form, length=32, batch=256, accumulate=3), text))
    assert len(whole) == len(parted)
    for (one,), several in zip(whole, parted, strict=True):
        assert len(several) == min(3, len(one.ids))
        rows = [row for batch in several for row in batch.ids.tolist()]
        assert [[token for token in row if token != PAD] for row in rows] == [
            [token for token in row if token != PAD] for row in one.ids.tolist()
        ]
        assert sum(batch.tokens for batch in several) == one.tokens
        for name, marks in one.marks.items():
            if name.endswith(("targets", "labels")):
                assert torch.equal(torch.cat([batch.marks[name] for batch in several]), marks)


def test_a_step_has_the_tokens_that_were_asked_for(text: TokenStore) -> None:
    for batch, rows in ((1, 1), (31, 1), (64, 2), (100, 3), (10**6, None)):
        batches = batches_of(small_recipe("clm", length=32, batch=batch), text, corrupt=False)
        (first, *_), _ = batches.step(Cursor())
        total = -(-(len(text) + text.facts.sentences + text.facts.documents) // 31)
        assert first.shape == (total if rows is None else rows, 32)
        assert batches.steps() == -(-total // batches.rows) == len(one_pass(batches))


@pytest.mark.parametrize("form", ["stream", "sentences", "segment-pair"])
def test_shorter_rows_at_first(text: TokenStore, form: Format) -> None:
    """A pass of shorter rows has as many steps and reads everything, and each step has about as many tokens."""
    recipe = small_recipe("mlm", form=form, length=64, batch=1024)
    batches = batches_of(recipe, text)
    long, short = one_pass(batches), one_pass(batches, length=16)
    assert len(long) == len(short)
    assert all(batch.shape[1] <= 16 for step in short for batch in step)
    sizes = [[sum(batch.tokens for batch in step) for step in steps] for steps in (long, short)]
    assert sum(sizes[0]) == sum(sizes[1]) == len(text)
    assert np.allclose(sizes[0][:-1], sizes[1][:-1], rtol=0.2)
    assert same(batches.step(Cursor(), 64)[0], long[0])
    assert batches.step(Cursor(), 1)[0][0].shape[1] == 16


def test_validation_is_always_the_same(text: TokenStore) -> None:
    recipe = small_recipe("mlm", form="doc-sentences", length=32, batch=256, accumulate=2)
    one, other = batches_of(recipe, text, seed=1).fixed(1000), batches_of(recipe, text, seed=2).fixed(1000)
    assert same(one, other)
    assert all("mlm.places" in batch.marks and batch.shape[0] <= 4 for batch in one)
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
    steps = one_pass(batches_of(recipe, store), epoch)
    read: list[int] = []
    for step in steps:
        for batch in step:
            restored = batch.ids.flatten().clone()
            restored[batch.marks["mlm.places"]] = batch.marks["mlm.targets"]
            read += words(restored.tolist())
            list(parts_of(batch))
    assert sorted(read) == sorted(store.ids.tolist())


# Bad input, and the rest


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no token"):
        batches_of(small_recipe("clm"), store_of([], tmp_path), corrupt=False)


def test_rows_without_room_and_streams_to_be_repeated_are_refused(text: TokenStore) -> None:
    with pytest.raises(RecipeError, match=r"rows\.length=4"):
        batches_of(small_recipe("nsp", form="segment-pair", length=4), text)
    with pytest.raises(RecipeError, match=r"rows\.format=sentences"):
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


def test_batches_are_made_much_faster_than_they_are_learnt_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = [(1 + rng.geometric(0.04, 30)).tolist() for _ in range(200)]
    store = store_of([[[7] * size for size in document] for document in sizes], tmp_path)
    recipe = small_recipe("mlm+nsp", form="segment-pair", length=128, batch=4096)
    batches = batches_of(recipe, store)
    one_pass(batches)  # compiles
    started = time.perf_counter()
    tokens = sum(batch.tokens for step in one_pass(batches, 1) for batch in step)
    assert tokens / (time.perf_counter() - started) > 500_000


@pytest.mark.shared
@pytest.mark.parametrize("language", ["en", "zh"])
def test_real_text_is_read_whole_in_full_rows(shared_data: Path, language: str) -> None:
    with gzip.open(shared_data / "lm" / f"wiki_{language}.txt.gz", "rt", encoding="utf-8") as file:
        documents = file.read(400_000).split("\n\n")
    tokenizer, store = open_tokens(TokenizerRecipe(model="wordpiece", vocab_size=4000), read_corpus(documents))
    vocabulary = vocabulary_of(tokenizer, store)
    assert vocabulary.counts.sum() == len(store) + store.facts.sentences
    for form in FORMATS:
        recipe = small_recipe("mlm+sop" if form.endswith("pair") else "mlm", form=form, length=128, batch=4096)
        objectives = list(make_objectives(recipe, vocabulary).values())
        batches = Batches(recipe, store, objectives, 0)
        made = [batch for step in one_pass(batches) for batch in step]
        assert batches.fill > (0.96 if form == "sentence-pair" else 0.97)  # many are longer than half a row
        assert sum(batch.tokens for batch in made) == len(store)
        chosen = sum(len(batch.marks["mlm.places"]) for batch in made)
        assert abs(chosen - 0.15 * len(store)) < 4 * np.sqrt(len(store) * 0.15 * 0.85)
