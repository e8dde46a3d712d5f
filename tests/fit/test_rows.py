"""Rows of every format, on texts of distinct ids, so that rows identify their text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firth.fit.batches import Cursor
from firth.nets.packing import pack_rows
from firth.nets.recipe import Format
from firth.objectives.mlm import MaskedLM
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD
from tests.fit.reading_batches import (
    FORMATS,
    SEQUENCES,
    VOCABULARY,
    batches_of,
    one_epoch,
    parts_in,
    parts_of,
    some_text,
    stream_of,
    words,
)
from tests.objectives.small_stores import (
    numbered,
    small_recipe,
    store_of,
)

SIZES = [[3, 4, 2], [5], [1, 30], [6, 2, 2, 7, 9], [2, 2], [11, 3]]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return some_text(tmp_path_factory.mktemp("text"))


def test_a_stream_by_hand(tmp_path: Path) -> None:
    store = store_of(numbered([[2, 1], [3]]), tmp_path)
    recipe = small_recipe("clm", length=4, batch=8)
    steps = one_epoch(batches_of(recipe, store, corrupt=False))
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
        steps = one_epoch(batches, epoch)
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
    for ids, _ in parts_in(one_epoch(batches_of(small_recipe("clm", length=32), text, corrupt=False))):
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
    assert batch.sequence_ids is None
    assert batch.position_ids is None


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
    steps = one_epoch(batches)
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
        steps = one_epoch(batches)
        assert all(batch.shape[1] <= length for step in steps for batch in step)
        read = [token for ids, _ in parts_in(steps) for token in words(ids)]
        times = 2 if objective == "autoencoding" else 1
        assert sorted(read) == sorted(text.ids.tolist() * times)
        assert sum(batch.tokens for step in steps for batch in step) == len(text)
        opening = EOS if objective == "autoencoding" else BOS
        assert all(ids[0] == opening and ids[-1] == EOS for ids, _ in parts_in(steps))


def test_sequences_are_contiguous_and_keep_to_documents(text: TokenStore) -> None:
    documents = [[token for ids in text.document(number) for token in ids] for number in range(text.info.documents)]
    number = {token: index for index, ids in enumerate(documents) for token in ids}
    firsts = {ids[0] for ids in documents}
    over = 0
    for form in ("full-sentences", "doc-sentences", "segment-pair", "sentence-pair"):
        recipe = small_recipe("mlm", form=form, length=48)
        for ids, _ in parts_in(one_epoch(batches_of(recipe, text, corrupt=False))):
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
    starts = {token for token, start in zip(text.ids.tolist(), text.word_starts.tolist(), strict=True) if start}
    for form in ("full-sentences", "segment-pair", "sentences"):
        parts = parts_in(one_epoch(batches_of(small_recipe("mlm", form=form, length=48), text, corrupt=False)))
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
        for index in range(text.info.documents)
        for sentence in text.document(index)
        for token in sentence.tolist()
    }
    counts, read = [0, 0, 0], []
    for step in one_epoch(batches):
        for batch in step:
            labels = batch.labels["nsp.labels"].tolist()
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
    for step in one_epoch(batches_of(recipe, text)):
        for batch in step:
            for (ids, segments), label in zip(parts_of(batch), batch.labels["sop.labels"].tolist(), strict=True):
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
    lengths = np.array([len(ids) for ids, _ in parts_in(one_epoch(batches_of(recipe, store, corrupt=False)))])
    full = int((lengths >= 61).sum())  # a sentence may end one before the room does
    assert abs(full - 0.9 * len(lengths)) < 5 * np.sqrt(0.09 * len(lengths))
    assert lengths.min() < 20


def test_segments_are_given_only_to_recipes_with_segments(text: TokenStore) -> None:
    recipe = small_recipe("nsp", form="segment-pair")
    (batch,), _ = batches_of(recipe, text).step(Cursor())
    assert batch.segment_ids is not None
    without = replace(recipe, embedding=replace(recipe.embedding, segments=0))
    (batch,), _ = batches_of(without, text).step(Cursor())
    assert batch.segment_ids is None


# Packing


@given(st.lists(st.integers(1, 20), min_size=1, max_size=200), st.sampled_from([20, 64, 65, 200]))
def test_packing_loses_nothing(lengths: list[int], capacity: int) -> None:
    packed = pack_rows(np.array(lengths), capacity)
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
    with pytest.raises(ValueError, match="21 tokens"):
        pack_rows(np.array([3, 21, 4]), 20)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("length", [128, 512])
def test_rows_are_full(form: Format, length: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sizes = [np.minimum(1 + rng.geometric(0.04, int(rng.integers(5, 60))), 150).tolist() for _ in range(250)]
    store = store_of([[[7] * size for size in document] for document in sizes], tmp_path)
    recipe = small_recipe("mlm", form=form, length=length)
    batches = batches_of(recipe, store, corrupt=False)
    assert batches.fill > 0.97
    shown = [batch for step in one_epoch(batches) for batch in step]
    used = sum(int((batch.ids != PAD).sum()) for batch in shown)
    rows = sum(batch.shape[0] for batch in shown)
    assert used / (rows * length) == pytest.approx(batches.fill, abs=1e-9)


class _Marked(MaskedLM):
    """An objective that asks for the begins of sentences."""

    needs_sentences: ClassVar[bool] = True


@pytest.mark.parametrize("form", ["sentences", "doc-sentences", "full-sentences", "segment-pair"])
def test_begins_of_sentences_are_marked_if_an_objective_asks(form: Format, text: TokenStore) -> None:
    recipe = small_recipe("mlm", form, length=24)
    (plain,), _ = batches_of(recipe, text, corrupt=False).step(Cursor())
    assert plain.sentence_starts is None
    (batch,), _ = batches_of(replace(recipe, objectives=(_Marked(),)), text, corrupt=False).step(Cursor())
    assert batch.sentence_starts is not None
    assert torch.equal(batch.ids, plain.ids)
    begins = set(text.ids[text.sentences[:-1].astype(np.int64)].tolist())
    ids, marks = batch.ids, batch.sentence_starts
    after_special = torch.zeros_like(marks)
    after_special[:, 1:] = (ids[:, :-1] <= MASK) & (ids[:, 1:] > MASK)
    expected = torch.tensor([[one in begins for one in row] for row in ids.tolist()]) | after_special
    assert torch.equal(marks, expected)
    assert int(marks.sum()) >= len({*begins} & {*ids.flatten().tolist()}) > 0
