"""Rows of a contiguous part and two segments: what they hold, and that they go on from step to step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from firth.errors import RecipeError
from firth.fit.batches import Batches, Cursor
from firth.fit.reuse import ContiguousPairRows, reused_tokens
from firth.fit.rows import stream_size
from firth.nets.recipe import LearningRecipe, NetRecipe, SequenceRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS
from tests.fit.reading_batches import one_epoch, some_text
from tests.fit.reading_batches import stream_of as documents_of
from tests.objectives.small_stores import store_of

LENGTH = 40


def stream_of(store: TokenStore) -> list[int]:
    return [token for document in documents_of(store) for token in document]


def make_rows(store: TokenStore, streams: int, both_ways: bool = False, key: int = 12_345) -> ContiguousPairRows:
    sequence = SequenceRecipe(format="contiguous-pair", length=LENGTH, reversed=both_ways)
    return ContiguousPairRows(store, sequence, LENGTH, key, streams)


@pytest.mark.parametrize("both_ways", [False, True])
def test_rows_have_a_reused_part_and_two_segments(both_ways: bool, tmp_path: Path) -> None:
    store = some_text(tmp_path)
    stream = stream_of(store)
    rows = make_rows(store, 4, both_ways)
    follows, cuts, ends_of_sentences = [], set(), 0
    batch = rows.batch(np.arange(rows.count))
    assert batch.segment_ids is not None
    assert batch.is_function is not None
    assert batch.offsets is not None
    assert (batch.is_reversed is not None) == both_ways
    for row in range(rows.count):
        ids, segments = batch.ids[row].tolist(), batch.segment_ids[row].tolist()
        begin, number = int(batch.offsets.begins[row]), int(batch.offsets.streams[row])
        read = [stream[(begin + offset) % len(stream)] for offset in range(LENGTH)]
        if both_ways and number % 2:
            first = begin - row // 4 * 20  # of the stream
            last = first + len(stream) // 4 - 1 - row // 4 * 20
            read = [stream[(last - offset) % len(stream)] for offset in range(LENGTH)]
        assert ids[:20] == read[:20]
        first_end = segments.index(1) - 1
        assert ids[20:first_end] == read[20:first_end], "the first segment follows the reused part"
        assert ids[first_end] == EOS
        assert (ids[-2], ids[-1], segments[-1]) == (EOS, BOS, 2)
        assert segments[:-1] == sorted(segments[:-1])
        assert batch.is_function[row].nonzero()[:, 0].tolist() == [first_end, LENGTH - 2, LENGTH - 1]
        ends_of_sentences += read[first_end] == EOS
        after = first_end + (read[first_end] == EOS)
        size = LENGTH - 3 - first_end
        follows.append(ids[first_end + 1 : first_end + 1 + size] == (read + read)[after : after + size])
        cuts.add(first_end)
    assert 0.35 < np.mean(follows) < 0.65
    assert len(cuts) > 5
    assert 0.5 * rows.count < ends_of_sentences < rows.count, "long sentences are cut, others are not"
    assert batch.sequence_ids is None


def test_every_token_is_once_in_a_reused_part(tmp_path: Path) -> None:
    store = some_text(tmp_path)
    for both_ways in (False, True):
        rows = make_rows(store, 3, both_ways)
        batch = rows.batch(np.arange(rows.count))
        reused = batch.ids[:, :20]
        size = stream_size(store)
        assert size <= reused.numel() < size + 3 * 20
        assert batch.tokens == int((reused != EOS).sum())
        kept = np.bincount(reused.numpy().ravel(), minlength=60_000)
        assert (kept >= np.bincount(stream_of(store), minlength=60_000)).all()


def recipe_of(rows: int, **learning: int) -> NetRecipe:
    return NetRecipe(
        visibility="bidirectional",
        sequence=SequenceRecipe(format="contiguous-pair", length=LENGTH, reversed=True),
        learning=LearningRecipe(batch=LENGTH * rows, **learning),  # type: ignore[arg-type]
    )


def test_streams_go_on_and_depend_on_seed_and_epoch_alone(tmp_path: Path) -> None:
    store = some_text(tmp_path)
    batches = Batches(recipe_of(4, grad_accumulation=2), store, [], 0)
    ends: dict[int, int] = {}
    for step in one_epoch(batches):
        for batch in step:
            assert batch.offsets is not None
            for stream, begin, length in zip(*(one.tolist() for one in batch.offsets[:3]), strict=True):
                assert ends.get(stream, begin) == begin
                ends[stream] = begin + length
    assert len(ends) == 4
    steps = one_epoch(batches)
    again = Batches(recipe_of(4, grad_accumulation=2), store, [], 0)
    (alone, *_), _ = again.step(Cursor(0, 3 * batches.rows))
    assert alone.ids.tolist() == steps[3][0].ids.tolist()
    other = Batches(recipe_of(4, grad_accumulation=2), store, [], 1).step(Cursor())[0][0]
    assert other.ids.tolist() != steps[0][0].ids.tolist()


@pytest.mark.parametrize("sizes", [[[3]], [[1], [1]], [[50]], [[2, 1], [30, 1, 1]]])
def test_short_and_odd_texts(sizes: list[list[int]], tmp_path: Path) -> None:
    numbers = iter(range(10, 1000))
    store = store_of([[[next(numbers) for _ in range(size)] for size in one] for one in sizes], tmp_path)
    batches = Batches(recipe_of(4), store, [], 0)
    for epoch in range(3):
        for (batch,) in one_epoch(batches, epoch):
            assert batch.shape[1] == LENGTH
            assert (batch.ids[:, -1] == BOS).all()


def test_rows_too_short_for_segments_are_refused(tmp_path: Path) -> None:
    sequence = SequenceRecipe(format="contiguous-pair", length=8)
    assert reused_tokens(sequence, 8) == 4
    with pytest.raises(RecipeError, match=r"sequence\.length=8"):
        Batches(NetRecipe(visibility="bidirectional", sequence=sequence), some_text(tmp_path), [], 0)
