"""What a token is before it meets others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from firth.errors import AbilityError, RecipeError
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding, sinusoids
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, SequenceRecipe

TOKENS = [f"word{number}" for number in range(20)]


def make(width: int = 6, encoder: int = 6, **embedding: Any) -> Embedding:
    torch.manual_seed(0)
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=width, **embedding),
        encoder=EncoderRecipe(layers=1, width=encoder, heads=2, ffn_width=8),
        sequence=SequenceRecipe(length=5),
    )
    return Embedding(recipe, TOKENS)


IDS = torch.tensor([[5, 6, 7, 5], [8, 8, 19, 0]])


def test_tokens_alone_are_a_table() -> None:
    made = make()
    assert torch.equal(made(IDS), made.table[IDS])
    assert [name for name, _ in made.named_parameters()] == ["tokens.weight"]


def test_positions_and_segments_are_added() -> None:
    made = make(positions="learned", segments=2)
    assert made.positions is not None
    assert made.segments is not None
    table, positions, segments = made.table, made.positions.weight, made.segments.weight
    plain = made(IDS)
    assert torch.allclose(plain[1, 2], table[19] + positions[2] + segments[0])
    indices, halves = torch.tensor([[0, 1, 0, 1], [3, 2, 1, 0]]), torch.tensor([[0, 0, 1, 1], [1, 0, 1, 0]])
    found = made(IDS, indices, halves)
    for row in range(2):
        for position in range(4):
            expected = table[IDS[row, position]] + positions[indices[row, position]] + segments[halves[row, position]]
            assert torch.allclose(found[row, position], expected)
    assert torch.equal(made(IDS, torch.arange(4).expand(2, 4), torch.zeros_like(IDS)), plain)


def test_sinusoids_are_those_of_the_paper() -> None:
    width = 6
    found = sinusoids(torch.arange(4), width)
    for position in range(4):
        for i in range(width // 2):
            angle = position / 10_000 ** (2 * i / width)
            assert found[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert found[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)
    assert sinusoids(torch.arange(3), 5).shape == (3, 5)


def test_waves_have_no_last_position() -> None:
    made = make(positions="sinusoidal")
    long = torch.full((1, 100), 7)
    expected = made.table[7] * math.sqrt(6) + sinusoids(torch.tensor(99), 6)
    assert torch.allclose(made(long)[0, 99], expected)
    assert torch.allclose(made(IDS, torch.full_like(IDS, 99))[0, 2], expected)


def test_positions_beyond_the_table_are_refused() -> None:
    made = make(positions="learned")
    with pytest.raises(AbilityError, match=r"the network has 5 positions, not 6: .* sequence\.length=6"):
        made(torch.zeros(1, 6, dtype=torch.int64))
    with pytest.raises(AbilityError, match="5 positions, not 10"):
        made(IDS, torch.full_like(IDS, 9))


def test_the_sum_is_normalised_and_then_dropped() -> None:
    made = make(norm=True, positions="learned", dropout=0.5)
    found = made(IDS)
    assert torch.allclose(found.mean(-1), torch.zeros(2, 4), atol=1e-5)
    assert torch.allclose(found.var(-1, unbiased=False), torch.ones(2, 4), atol=1e-3)
    noisy = made(IDS, rng=DropoutRng(0, 1))
    assert ((noisy == 0) | torch.isclose(noisy, 2 * found)).all()
    assert (noisy == 0).any()


def test_narrow_token_vectors_are_projected() -> None:
    made = make(width=3, encoder=8, norm=True)
    assert made.project is not None
    assert made.norm is not None
    assert made(IDS).shape == (2, 4, 8)
    assert torch.allclose(made(IDS), made.project(made.norm(made.table[IDS])))
    assert made.flops() == 2 * 3 * 8


def test_character_embeddings_replace_the_table() -> None:
    made = make(characters=True)
    assert made(IDS).shape == (2, 4, 6)
    assert torch.equal(made(IDS)[0, 0], made(IDS)[0, 3])
    assert made.flops() > 0
    with pytest.raises(RecipeError, match=r"output\.kind=full"):
        _ = made.table


def test_gradients_are_finite_differences() -> None:
    made = make(width=3, encoder=4, norm=True, positions="learned", segments=2).double()
    names = [name for name, _ in made.named_parameters()]

    def run(*parameters: torch.Tensor) -> torch.Tensor:
        values = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(made, values, (IDS, None, IDS % 2)).sin().sum()  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(run, tuple(made.parameters()), fast_mode=True)


def test_initial_vectors_are_small() -> None:
    recipe = NetRecipe(embedding=EmbeddingRecipe(width=64), encoder=EncoderRecipe(width=64, heads=1))
    torch.manual_seed(0)
    assert np.std(Embedding(recipe, ["x"] * 1000).table.detach().numpy()) == pytest.approx(0.02, rel=0.02)
