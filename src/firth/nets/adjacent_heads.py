"""Attention heads initialised to attend to adjacent tokens.

A masked LM finds the neighbours of a masked token by their positions alone. With random weights no head learns this in
a short run, and the loss levels off early. Here position embeddings start as sinusoids and heads of the first layer
start with the rotation that shifts them by -1, +1, -2, ... positions; all weights are trained as usual.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from firth.nets.embedding import Embedding
from firth.nets.encoders.buckets import BucketTable, buckets_of
from firth.nets.encoders.transformer import Attention, Layer, Transformer
from firth.nets.recipe import EncoderRecipe

_MIN_STD = 0.04  # of the sinusoids: twice that of random token vectors, which would dominate them otherwise
_PEAK = 10.0  # attention score of the chosen neighbour; that of others is about 0
_TERM = 6.0  # of the chosen distance: e^6 = 400 is more than the weight of all others together
_GOLDEN = (math.sqrt(5) - 1) / 2
_ONE_IN = 2  # heads


def init_adjacent_heads(
    embedding: Embedding, encoder: Transformer, first: EncoderRecipe | None = None, *, early: bool = False
) -> None:
    """Change the initial weights of a new network with learned positions or with terms of distances.

    A second network shares the position embeddings of the `first` one, for which they are initialised already. With
    `early` tokens are predicted one position before them, to whose neighbours heads attend.
    """
    recipe, positions = encoder.recipe, embedding.positions
    if not recipe.layers or recipe.layer_sizes:  # pruned layers have trained weights
        return
    layer = cast(Layer, encoder.layers[0])
    if recipe.positions == "buckets":
        _prefer_adjacent(cast(BucketTable, layer.attention.table), recipe, head_distances(recipe, early))
        return
    assert positions is not None  # the recipe was checked
    size = _wave_count(first or recipe, positions.embedding_dim)
    rates = wave_rates(size // 2)[: _wave_count(recipe, positions.embedding_dim) // 2]
    with torch.no_grad():
        indices = torch.arange(positions.num_embeddings, dtype=torch.float32)
        if first is None:
            std = max(_MIN_STD, float(embedding.table.std()))
            positions.weight[:, :size] = std * math.sqrt(2) * waves(indices, rates)
        decoder = _decode_waves(embedding, layer, waves(indices, rates))
        for head, distance in enumerate(head_distances(recipe, early)):
            _aim(layer.attention, head, shift(rates, distance) @ decoder, decoder)


def head_distances(recipe: EncoderRecipe, early: bool) -> list[int]:
    """-1, 1, -2, 2, ... for half of the heads, or for two if there are fewer.

    One position before a token its neighbours are at distances of 2, -1, 3, ...: the one before it is there itself.

    >>> recipe = EncoderRecipe(kind="transformer", width=64, ffn_width=64, heads=8)
    >>> head_distances(recipe, early=False), head_distances(recipe, early=True)
    ([-1, 1, -2, 2], [2, -1, 3, -2])
    """
    count = max(recipe.heads // _ONE_IN, min(recipe.heads, 2))
    if early:
        return [-((head + 1) // 2) if head % 2 else head // 2 + 2 for head in range(count)]
    return [(head // 2 + 1) * (1 if head % 2 else -1) for head in range(count)]


def _prefer_adjacent(table: BucketTable, recipe: EncoderRecipe, distances: list[int]) -> None:
    """Raise the terms of one distance in each of some heads, in all layers."""
    found = buckets_of(torch.tensor(distances), recipe.buckets, recipe.max_distance, is_causal=False)
    with torch.no_grad():
        table.weight[found, torch.arange(len(found))] += _TERM


def _wave_count(recipe: EncoderRecipe, width: int) -> int:
    """Sines and cosines in position embeddings of a width, no more than a head has dimensions."""
    return min(recipe.width // recipe.heads, width) // 2 * 2


def wave_rates(count: int) -> Tensor:
    """Angular frequencies over half a circle, without a common period.

    Evenly spaced ones would all meet again after some positions, so each is moved by another fraction of the spacing.

    >>> [round(rate, 3) for rate in wave_rates(3).tolist()]
    [0.0, 1.694, 2.589]
    """
    numbers = torch.arange(count, dtype=torch.float64)
    return (math.pi * (numbers + (numbers.square() * _GOLDEN) % 1) / count).to(torch.float32)


def waves(positions: Tensor, rates: Tensor) -> Tensor:
    """(positions, 2 rates): the sine and the cosine of each wave at each position."""
    angles = positions[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def shift(rates: Tensor, distance: int) -> Tensor:
    """The rotation matrix from the waves of a position to those of the position at a distance from it.

    >>> rates = wave_rates(4)
    >>> here, there = waves(torch.tensor([5.0, 8.0]), rates)
    >>> bool(torch.allclose(shift(rates, 3) @ here, there, atol=1e-6))
    True
    """
    turn = torch.tensor([distance], dtype=torch.float32) * rates
    pairs = torch.stack([turn.cos(), turn.sin(), -turn.sin(), turn.cos()], -1).view(-1, 2, 2)
    whole: Tensor = torch.block_diag(*pairs)  # type: ignore[no-untyped-call]
    return whole


def _decode_waves(embedding: Embedding, layer: Layer, expected: Tensor) -> Tensor:
    """(waves, width): maps the input of attention to the waves in it, each with an amplitude of 1."""
    decoder = torch.eye(expected.shape[1], embedding.recipe.width)
    if embedding.project is not None:
        decoder = decoder @ torch.linalg.pinv(embedding.project.weight)
    states = embedding(torch.arange(len(expected))[None] % len(embedding.table))
    if layer.recipe.norm == "pre":
        states = layer.norm1(states)
    amplitude: Tensor = ((states[0] @ decoder.T) * expected).sum() / expected.square().sum()
    return decoder / amplitude


def _aim(attention: Attention, head: int, query: Tensor, key: Tensor) -> None:
    """Make a head attend where `key` of one position matches `query` of another, and copy with a gain of about 1."""
    width, size, used = attention.recipe.width, attention.recipe.width // attention.recipe.heads, len(key)
    gain = math.sqrt(_PEAK * math.sqrt(size) / (used / 2))
    first = head * size
    queries, keys, values = (attention.qkv.weight[part * width + first :][:size] for part in range(3))
    for rows, weight in ((queries, query), (keys, key)):
        rows[:used] = gain * weight
        rows[used:] = 0
    torch.nn.init.normal_(values, std=width**-0.5)
    torch.nn.init.normal_(attention.out.weight[:, first : first + size], std=width**-0.5)
