"""Batches of parallel text, and training on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.errors import CorpusError
from firth.fit.batches import Cursor
from firth.fit.parallel import ParallelBatches, make_batches
from firth.nets.batch import Batch
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import resize, transformer
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS
from tests.fit.small_nets import parameters, same, sentences, trained
from tests.fit.test_resume_nets import BUDGET, stop_after


def pairs(count: int = 60, seed: int = 0) -> list[list[str]]:
    """Sentences and their translation: other words in reverse order, and one more."""
    return [[one, " ".join([*one.replace("w", "v").split()[::-1], "v0"])] for one in sentences(count, seed)]


def small(length: int = 32, **learning: Any) -> NetRecipe:
    """A Transformer of width 16."""
    tiny = resize(transformer(), "tiny")
    part = replace(tiny.encoder, layers=1, width=16, ffn_width=32)
    return replace(
        tiny,
        tokenizer=TokenizerRecipe(model="words"),
        embedding=replace(tiny.embedding, width=16),
        encoder=part,
        decoder=part,
        sequence=replace(tiny.sequence, length=length),
        learning=replace(tiny.learning, **{"batch": 64, "lr": 0.01} | learning),
    )


def store_of(texts: list[list[str]]) -> TokenStore:
    return open_tokens(TokenizerRecipe(model="words"), read_corpus(texts, layout="lines"), 1)[1]


def batches_of(texts: list[list[str]], length: int = 32, seed: int = 0) -> ParallelBatches:
    made = make_batches(small(length), store_of(texts), [], seed)
    assert isinstance(made, ParallelBatches)
    return made


def epoch(batches: ParallelBatches, number: int = 0) -> list[Batch]:
    found, cursor = [], Cursor(number)
    while cursor.epoch == number:
        some, cursor = batches.step(cursor)
        found += some
    return found


def packed_sequences(batch: Batch) -> list[list[int]]:
    """The ids of each sequence of a batch, row by row."""
    found = []
    for row, ids in enumerate(batch.ids.tolist()):
        numbers = [0] * len(ids) if batch.sequence_ids is None else batch.sequence_ids[row].tolist()
        for sequence in range(max(numbers) + 1):
            at = [place for place, number in enumerate(numbers) if number == sequence]
            assert at == list(range(at[0], at[-1] + 1)), "a sequence is in pieces"
            if batch.position_ids is not None:
                assert batch.position_ids[row, at].tolist() == list(range(len(at)))
            found.append([ids[place] for place in at])
    return found


def test_every_pair_is_once_in_an_epoch_and_corresponds() -> None:
    texts = pairs()
    texts += [[one, f"{two} {two}"] for one, two in pairs(20, seed=2)]  # sides of different lengths
    texts += [[f"{one} {one}", two] for one, two in pairs(20, seed=3)]
    batches, store = batches_of(texts), store_of(texts)
    wanted = sorted(
        ([BOS, *source.tolist(), EOS], [EOS, *target.tolist()])
        for source, target in (store.document(number) for number in range(len(texts)))
    )
    for number in (0, 1):
        found = []
        for batch in epoch(batches, number):
            assert batch.source is not None
            assert batch.shape[0] == batch.source.shape[0]
            assert max(batch.shape[1], batch.source.shape[1]) <= 32
            found += list(zip(packed_sequences(batch.source), packed_sequences(batch), strict=True))
        assert sorted(found) == wanted
        assert sum(batch.tokens for batch in epoch(batches, number)) == batches.tokens == len(store)
    assert batches.left_out == batches.split == 0


def test_batches_are_a_function_of_seed_epoch_and_position() -> None:
    one, two = batches_of(pairs()), batches_of(pairs())
    _, after = one.step(Cursor(1))
    for first, second in zip(one.step(after)[0], two.step(after)[0], strict=True):  # without those before
        assert first.source is not None
        assert second.source is not None
        assert np.array_equal(first.ids, second.ids)
        assert np.array_equal(first.source.ids, second.source.ids)
    other = batches_of(pairs(), seed=1)
    assert not np.array_equal(epoch(one)[0].ids, epoch(other)[0].ids)
    assert packed_sequences(epoch(one)[0]) != packed_sequences(epoch(one, 1)[0])


def test_rows_have_little_padding() -> None:
    assert batches_of(pairs(3000), length=64).fill > 0.95


def test_long_pairs_are_left_out_and_counted() -> None:
    texts = [*pairs(20), [" ".join(["w1"] * 31), "v1"], ["w1", " ".join(["v1"] * 32)], ["w1", " ".join(["v1"] * 31)]]
    batches = batches_of(texts)
    assert batches.left_out == 2
    assert sum(len(packed_sequences(batch)) for batch in epoch(batches)) == 21
    assert batches.tokens == sum(batch.tokens for batch in epoch(batches))
    with pytest.raises(CorpusError, match="no pair of two texts within 32 tokens"):
        batches_of([["w1", " ".join(["v1"] * 32)]]).step(Cursor())


def test_documents_of_other_numbers_of_sentences_are_left_out() -> None:
    assert batches_of([*pairs(5), ["w1"], ["w1", "v1", "w1"]]).left_out == 2


def test_training_learns_the_translation_and_reports_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [*pairs(40), ["w1", " ".join(["v1"] * 40)]]
    recipe = replace(small(lr=0.02), embedding=replace(small().embedding, dropout=0.0))
    recipe = replace(recipe, encoder=replace(recipe.encoder, dropout=0.0), decoder=replace(recipe.encoder, dropout=0.0))
    model: Any = firth.train(recipe, texts, out=tmp_path / "m", budget="40ktok", threads=1, valid=pairs(20, seed=1))
    assert "1 of 41 pairs are left out" in capsys.readouterr().err
    info = firth.info(tmp_path / "m")
    assert info["metrics"]["left_out_pairs"] == 1
    assert {"valid_loss", "valid_bits_per_byte", "valid_perplexity"} <= info["metrics"].keys()
    right = firth.score(model, texts[:20])
    wrong = firth.score(model, [(source, other) for (source, _), (_, other) in pairwise(texts[:21])])
    assert right.bits_per_byte < 0.8 * wrong.bits_per_byte, "the source makes no difference"


def test_resuming_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firth.fit.nets import open_trainer, torch_settings
    from firth.fit.run import Budget, TrainingRun

    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")

    def run(out: Path | None, resume: bool = False) -> TrainingRun:
        corpus = read_corpus(pairs(), layout="lines")
        return TrainingRun(corpus, None, None, Budget.parse(BUDGET), 0, 1, out=out, resume=resume)

    def trainer(given: TrainingRun) -> Any:
        tokenizer, store = open_tokens(small().tokenizer, given.corpus, 1)
        with torch_settings(1):
            return open_trainer(small().with_tokenizer(tokenizer.recipe), given, tokenizer, store, None)

    whole = trained(trainer(run(None)))
    stop_after(trainer(run(tmp_path / "m")), 4)
    again = trained(trainer(run(tmp_path / "m", resume=True)))
    assert again.state.step == whole.state.step > 8
    assert same(parameters(again), parameters(whole))
