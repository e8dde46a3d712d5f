"""Speed of relative attention beside one that has a vector for each pair of query and key, and beside plain attention.

    python bench/relative.py [--rows 8] [--length 150] [--memory 150] [--width 410] [--heads 10]

Forward and backward of one attention layer with one thread. The first peer looks up W_r s(i - j) for every pair, a
tensor (queries x keys x width), and multiplies queries with it; its outputs are the same. Plain attention has the same
keys.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from firth.nets.encoders.attention import multi_head_attention
from firth.nets.encoders.relative import RelativeAttention, RelativeInputs, distance_sinusoids
from firth.nets.recipe import EncoderRecipe
from firth.nets.visibility import AttentionBias, AttentionMask, SegmentMemory


def pairwise_attention(layer: RelativeAttention, states: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
    """Relative attention with a position vector for each pair of query and key."""
    heads, width = layer.recipe.heads, layer.recipe.width
    keys, length = memory.shape[1] + states.shape[1], states.shape[1]
    joined = torch.cat([memory, states], 1)
    query, key, value = (part.t() for part in layer.qkv.weight.chunk(3))

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    q, k, v = states @ query, split(joined @ key), split(joined @ value)
    vectors = layer.distances(distance_sinusoids(keys, length, layer.recipe, True, states))
    index = (length - 1 - torch.arange(length)[:, None] + torch.arange(keys)).clamp(max=keys)
    pairs = vectors[index].unflatten(-1, (heads, -1))  # (queries, keys, heads, size)
    by_content = split(q + layer.biases.content) @ k.mT
    by_position = torch.einsum("bhid,ijhd->bhij", split(q + layer.biases.position), pairs)
    weights = ((by_content + by_position) / math.sqrt(width // heads) + bias[:, None]).softmax(-1)
    out: Tensor = layer.out((weights @ v).transpose(1, 2).flatten(2))
    return out


def seconds(run: Callable[[], Tensor], repeats: int) -> float:
    """The least time of a forward and backward pass."""
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        run().sum().backward()  # type: ignore[no-untyped-call]
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"rows": 8, "length": 150, "memory": 150, "width": 410, "heads": 10, "repeats": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    recipe = EncoderRecipe(width=given.width, heads=given.heads, positions="relative")
    layer = RelativeAttention(recipe)
    states = torch.randn(given.rows, given.length, given.width)
    memory = torch.randn(given.rows, given.memory, given.width)
    visible = torch.ones(given.rows, given.length, given.memory, dtype=torch.bool)
    shape = (given.rows, given.length)
    bias = AttentionMask("causal", shape, memory=SegmentMemory([memory], visible)).bias()
    assert bias.bias is not None
    sinusoids = distance_sinusoids(given.memory + given.length, given.length, recipe, True, states)
    inputs = RelativeInputs(sinusoids, memory)
    mask = bias.bias

    def plain() -> Tensor:
        query, keys_values = layer.qkv.weight.split([given.width, 2 * given.width])
        joined = torch.cat([memory, states], 1)
        attended = multi_head_attention(states @ query.t(), joined @ keys_values.t(), given.heads, AttentionBias(mask))
        return layer.out(attended)  # type: ignore[no-any-return]

    with torch.no_grad():
        found, expected = layer(states, bias, None, inputs), pairwise_attention(layer, states, memory, mask)
    times = {
        "relative": seconds(lambda: layer(states, bias, None, inputs), given.repeats),
        "pairwise": seconds(lambda: pairwise_attention(layer, states, memory, mask), given.repeats),
        "plain": seconds(plain, given.repeats),
    }
    print(f"largest difference to pairwise: {(found - expected).abs().max():.1e}")
    for name, one in times.items():
        print(f"{name:9} {1000 * one:8.1f} ms  {one / times['relative']:.2f} x relative")


if __name__ == "__main__":
    main()
