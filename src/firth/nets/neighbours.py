"""First parameters by which a Transformer looks at the tokens beside each one.

A masked model finds the neighbours of a hidden token by their positions alone. With random parameters no head does so
in the steps of a short run, and its loss levels off early. Here positions begin as waves, and the first heads of the
first layer begin with the product by which a wave is moved back by one place, on by one, back by two and so on; all of
it is learnt further like any other parameter.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from firth.nets.encoders.transformer import Attention, Layer, Transformer
from firth.nets.network import Network

_SPREAD = 0.04  # standard deviation of the waves at least: twice that of random tokens, or these would drown them
_PEAK = 10.0  # score of the place that is looked at; of others it is about 0
_GOLDEN = (math.sqrt(5) - 1) / 2
_SHARE = 2  # one of so many heads looks at a neighbour


def look_at_neighbours(network: Network) -> None:
    """Changes the parameters of a new network."""
    encoder, recipe = cast(Transformer, network.encoders[0]), network.recipe.encoder
    if not recipe.layers:
        return
    positions, layer = network.embedding.positions, cast(Layer, encoder.layers[0])
    assert positions is not None  # the recipe was checked
    size = min(recipe.width // recipe.heads, positions.embedding_dim) // 2 * 2
    rates = wave_rates(size // 2)
    with torch.no_grad():
        places = torch.arange(positions.num_embeddings, dtype=torch.float32)
        spread = max(_SPREAD, float(network.embedding.table.std()))
        positions.weight[:, :size] = spread * math.sqrt(2) * waves(places, rates)
        entry = _entry(network, layer, waves(places, rates))
        for head in range(max(recipe.heads // _SHARE, min(recipe.heads, 2))):
            distance = (head // 2 + 1) * (1 if head % 2 else -1)
            _aim(layer.attention, head, shift(rates, distance) @ entry, entry)


def wave_rates(count: int) -> Tensor:
    """Angles by which waves turn from one place to the next, over half a circle and never in step.

    Evenly spaced ones would all meet again after some places, so each is moved by another share of the space.

    >>> [round(rate, 3) for rate in wave_rates(3).tolist()]
    [0.0, 1.694, 2.589]
    """
    numbers = torch.arange(count, dtype=torch.float64)
    return (math.pi * (numbers + (numbers.square() * _GOLDEN) % 1) / count).to(torch.float32)


def waves(places: Tensor, rates: Tensor) -> Tensor:
    """(places, 2 rates): the sine and the cosine of each wave at each place."""
    angles = places[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def shift(rates: Tensor, distance: int) -> Tensor:
    """The matrix that makes the waves of a place those of the place at a distance from it.

    >>> rates = wave_rates(4)
    >>> here, there = waves(torch.tensor([5.0, 8.0]), rates)
    >>> bool(torch.allclose(shift(rates, 3) @ here, there, atol=1e-6))
    True
    """
    turn = torch.tensor([distance], dtype=torch.float32) * rates
    pairs = torch.stack([turn.cos(), turn.sin(), -turn.sin(), turn.cos()], -1).view(-1, 2, 2)
    whole = torch.zeros(2 * len(rates), 2 * len(rates))
    for number, pair in enumerate(pairs):
        whole[2 * number : 2 * number + 2, 2 * number : 2 * number + 2] = pair
    return whole


def _entry(network: Network, layer: Layer, expected: Tensor) -> Tensor:
    """(waves, width): from what the attention sees to the waves in it, each with an amplitude of 1."""
    found = torch.eye(expected.shape[1], network.recipe.embedding.width)
    project = network.embedding.project
    if project is not None:
        found = found @ torch.linalg.pinv(project.weight)
    seen = network.embedding(torch.arange(len(expected))[None] % len(network.vocabulary))
    if layer.recipe.norm == "pre":
        seen = layer.norm1(seen)
    amplitude: Tensor = ((seen[0] @ found.T) * expected).sum() / expected.square().sum()
    return found / amplitude


def _aim(attention: Attention, head: int, asking: Tensor, entry: Tensor) -> None:
    """Makes a head look where `asking` is what it has in `entry`, and pass on what is there as strongly as it came."""
    width, size, waving = attention.recipe.width, attention.recipe.width // attention.recipe.heads, len(entry)
    gain = math.sqrt(_PEAK * math.sqrt(size) / (waving / 2))
    first = head * size
    queries, keys, values = (attention.qkv.weight[part * width + first :][:size] for part in range(3))
    for rows, weight in ((queries, asking), (keys, entry)):
        rows[:waving] = gain * weight
        rows[waving:] = 0
    torch.nn.init.normal_(values, std=width**-0.5)
    torch.nn.init.normal_(attention.out.weight[:, first : first + size], std=width**-0.5)
