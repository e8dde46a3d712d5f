"""A network that reads both ways gets the same special tokens in pre-training, in use and in tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from firth.fit.batches import Cursor
from firth.nets.special_tokens import start_token, task_special_tokens
from firth.tokens.tokenizer import EOS
from tests.contracts.small_networks import NETS
from tests.contracts.test_masks import OWNERS, texts, trained_recipe, training_batches

BIDIRECTIONAL = [name for name, recipe in NETS.items() if recipe.visibility == "bidirectional"]


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_sequences_begin_and_end_alike_everywhere(name: str, tmp_path: Path) -> None:
    recipe = trained_recipe(name)
    special = task_special_tokens(recipe)
    for batches in training_batches(recipe, texts(tmp_path), {}):
        (batch,), _ = batches.step(Cursor())
        batch = batch.source or batch  # what the encoder reads
        sequence_ids = batch.sequence_ids if batch.sequence_ids is not None else batch.ids.new_zeros(batch.shape)
        sequences = [
            row[ids == number].tolist()
            for row, ids in zip(batch.ids, sequence_ids, strict=True)
            for number in range(int(ids.max()) + 1)
        ]
        if recipe.ends_with_class:
            assert all(tuple(one[-2:]) == special.end for one in sequences)
            continue
        assert special.before == (start_token(recipe),)
        if recipe.sequence.format == "stream":  # a row may begin in the middle of a document
            assert {one[0] for one in sequences if OWNERS[one[0]] < 0} == {start_token(recipe)}
            continue
        assert {one[0] for one in sequences} == {start_token(recipe)}
        assert {one[-1] for one in sequences} == {EOS} == set(special.end)
