"""Task heads and input sequences against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.nets.batch import Batch
from firth.nets.groups import pad_groups, pool
from firth.tasks.head import HeadEncoder, ScalarMix
from firth.tasks.sequences import (
    InputSequence,
    SequenceBuilder,
    pack,
    truncated_lengths,
)
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.offsets import original_offsets, without_leading_spaces
from firth.tokens.recipe import TokenizerRecipe
from tests.fit.small_nets import small


def test_scalar_mix_is_the_papers_formula() -> None:
    mix = ScalarMix(2)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, np.log(3.0)]))
        mix.scale.fill_(2.0)
    layers = [torch.tensor([4.0, 8.0]), torch.tensor([0.0, 4.0])]
    # softmax(0, log 3) = 1/4, 3/4: 2 * (4/4 + 0) and 2 * (8/4 + 3 * 4/4)
    assert mix(layers).tolist() == pytest.approx([2.0, 10.0])


def test_pooling_over_groups() -> None:
    states = torch.tensor([[1.0, 5.0], [3.0, -1.0], [-2.0, -7.0]])
    groups = torch.tensor([0, 0, 2])
    assert pool(states, groups, 3, "mean").tolist() == [[2.0, 2.0], [0.0, 0.0], [-2.0, -7.0]]
    assert pool(states, groups, 3, "max").tolist() == [[3.0, 5.0], [0.0, 0.0], [-2.0, -7.0]]
    one = torch.tensor([0, 1, 2])
    assert torch.equal(pool(states, one, 3, "first"), states)


def test_values_of_groups_stand_side_by_side() -> None:
    rows, held = pad_groups(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2]), 3)
    assert rows.tolist() == [[7, 0], [0, 0], [8, 9]]
    assert held.tolist() == [[True, False], [False, False], [True, True]]


def test_an_encoder_of_both_directions_sees_its_own_part_alone() -> None:
    torch.manual_seed(0)
    reading = HeadEncoder("lstm", 4, 6, 0.0).eval()
    entered = torch.randn(1, 5, 4)
    parts = torch.tensor([[0, 0, 0, 1, 1]])
    batch = Batch(parts, parts == 0, sequence_ids=parts)
    whole = reading(entered, batch, None)
    changed = entered.clone()
    changed[0, 3:] = 0
    again = reading(changed, batch, None)
    assert torch.equal(whole[0, :3], again[0, :3])
    assert not torch.equal(whole[0, 3:], again[0, 3:])
    changed = entered.clone()
    changed[0, 2] = 0
    assert not torch.equal(reading(changed, batch, None)[0, 0], whole[0, 0]), "the backward half reads what follows"


def test_packing_keeps_labels_in_order() -> None:
    rows = [
        InputSequence(np.array([2] + [9] * length + [3]), labels={"positions": np.array([length])})
        for length in (1, 5, 2)
    ]
    batch = pack(rows, 5)
    assert batch.shape == (2, 7)
    assert [int(batch.ids.flatten()[place]) for place in batch.labels["positions"]] == [9, 9, 9]
    assert batch.position_ids is not None
    assert [int(batch.position_ids.flatten()[place]) for place in batch.labels["positions"]] == [1, 5, 2]
    assert batch.labels["groups"].tolist() == [0, 1, 2]
    assert batch.tokens == 8


def test_sequences_of_the_same_length_are_not_packed() -> None:
    batch = pack([InputSequence(np.array([2, 9, 3])), InputSequence(np.array([2, 8, 3]))], 5)
    assert batch.sequence_ids is None
    assert batch.position_ids is None


@pytest.mark.parametrize(("first", "second", "capacity"), [(10, 3, 8), (3, 10, 8), (10, 10, 9), (2, 3, 9), (1, 20, 5)])
def test_texts_that_are_too_long_lose_the_longer_ones_end(first: int, second: int, capacity: int) -> None:
    one, two = truncated_lengths(first, second, capacity)
    assert one + two == min(first + second, capacity)
    assert one <= first
    assert two <= second
    if one < first and two < second:
        assert abs(one - two) <= 1


def builder(**changes: object) -> SequenceBuilder:
    tokenizer, _ = open_tokens(TokenizerRecipe(model="words", min_count=1), read_corpus([["a b c d e f"]]))
    return SequenceBuilder(small(), tokenizer)


def test_a_causal_network_reads_start_delimiter_and_extract() -> None:
    made = builder()
    first, second = made.encode(["a b", "c"])
    assert made.build(first, second).ids.tolist() == [2, *first, 4, *second, 3]
    assert made.build(first).ids.tolist() == [2, *first, 3]
    assert not made.build(first, second).truncated
    long = made.encode(["a " * 40])[0]
    assert made.build(long).ids.size == 16
    assert made.build(long).truncated


def test_offsets_of_a_text_with_inserted_spaces() -> None:
    assert original_offsets("我爱北京", "我 爱 北京").tolist() == [0, 1, 1, 2, 2, 3, 4]
    assert without_leading_spaces("ab cd", np.array([[0, 2], [2, 5]])).tolist() == [[0, 2], [3, 5]]


def test_flops_of_a_head_by_hand() -> None:
    """Both directions: 4 gates of 3 cells over 5 inputs and 3 states; windows: 6 units over 5 words of 5 inputs."""
    assert HeadEncoder("lstm", 5, 6, 0.0).flops(7) == 2 * 2 * 4 * 3 * (5 + 3)
    assert HeadEncoder("cnn", 5, 6, 0.0).flops(7) == 2 * 6 * 5 * 5
