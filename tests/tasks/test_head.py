"""What stands between states and answers, by hand-worked numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.nets.batch import Batch
from firth.tasks.frame import Frame, places_in, shorten, trimmed
from firth.tasks.head import Reading, ScalarMix, pool, spread
from firth.tasks.rows import Row, pack
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
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
    rows, held = spread(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2]), 3)
    assert rows.tolist() == [[7, 0], [0, 0], [8, 9]]
    assert held.tolist() == [[True, False], [False, False], [True, True]]


def test_an_encoder_of_both_directions_sees_its_own_part_alone() -> None:
    torch.manual_seed(0)
    reading = Reading("lstm", 4, 6, 0.0).eval()
    entered = torch.randn(1, 5, 4)
    parts = torch.tensor([[0, 0, 0, 1, 1]])
    batch = Batch(parts, parts == 0, parts=parts)
    whole = reading(entered, batch, None)
    changed = entered.clone()
    changed[0, 3:] = 0
    again = reading(changed, batch, None)
    assert torch.equal(whole[0, :3], again[0, :3])
    assert not torch.equal(whole[0, 3:], again[0, 3:])
    changed = entered.clone()
    changed[0, 2] = 0
    assert not torch.equal(reading(changed, batch, None)[0, 0], whole[0, 0]), "the backward half reads what follows"


def test_packing_keeps_marks_in_the_order_of_the_rows() -> None:
    rows = [Row(np.array([2] + [9] * length + [3]), marks={"places": np.array([length])}) for length in (1, 5, 2)]
    batch = pack(rows, 5)
    assert batch.shape == (2, 7)
    assert [int(batch.ids.flatten()[place]) for place in batch.marks["places"]] == [9, 9, 9]
    assert batch.positions is not None
    assert [int(batch.positions.flatten()[place]) for place in batch.marks["places"]] == [1, 5, 2]
    assert batch.marks["groups"].tolist() == [0, 1, 2]
    assert batch.tokens == 8


def test_rows_of_the_same_length_are_whole() -> None:
    batch = pack([Row(np.array([2, 9, 3])), Row(np.array([2, 8, 3]))], 5)
    assert batch.parts is None
    assert batch.positions is None


@pytest.mark.parametrize(("first", "second", "room"), [(10, 3, 8), (3, 10, 8), (10, 10, 9), (2, 3, 9), (1, 20, 5)])
def test_texts_that_are_too_long_lose_the_longer_ones_end(first: int, second: int, room: int) -> None:
    one, two = shorten(first, second, room)
    assert one + two == min(first + second, room)
    assert one <= first
    assert two <= second
    if one < first and two < second:
        assert abs(one - two) <= 1


def frame(**changes: object) -> Frame:
    tokenizer, _ = open_tokens(TokenizerRecipe(model="words", min_count=1), read_corpus([["a b c d e f"]]))
    return Frame(small(), tokenizer)


def test_a_causal_network_reads_start_delimiter_and_extract() -> None:
    made = frame()
    first, second = made.encode(["a b", "c"])
    assert made.row(first, second).ids.tolist() == [2, *first, 4, *second, 3]
    assert made.row(first).ids.tolist() == [2, *first, 3]
    assert made.cut == 0
    long = made.encode(["a " * 40])[0]
    assert made.row(long).ids.size == 16
    assert made.cut == 1


def test_places_of_a_text_with_more_spaces() -> None:
    assert places_in("我爱北京", "我 爱 北京").tolist() == [0, 1, 1, 2, 2, 3, 4]
    assert trimmed("ab cd", np.array([[0, 2], [2, 5]])).tolist() == [[0, 2], [3, 5]]


def test_work_of_a_head_by_hand() -> None:
    """Both directions: 4 gates of 3 cells over 5 inputs and 3 states; windows: 6 units over 5 words of 5 inputs."""
    assert Reading("lstm", 5, 6, 0.0).work(7) == 2 * 2 * 4 * 3 * (5 + 3)
    assert Reading("cnn", 5, 6, 0.0).work(7) == 2 * 6 * 5 * 5
