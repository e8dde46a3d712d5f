"""Attention with a learned term for each range of distances (Raffel et al. 2020).

The score of query i and key j is q_i' k_j + t[bucket(j - i)] of each head, without a scale. All layers share a table t.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng
from firth.nets.encoders.attention import project_apart, split_heads
from firth.nets.encoders.biased_attention import biased_attention, infer_biased_attention
from firth.nets.linear import INIT_STD, make_linear
from firth.nets.recipe import EncoderRecipe
from firth.nets.visibility import AttentionBias, GatheredQueries

SCALE = 1.0
"""Of the products of queries and keys: initial queries are small instead."""


class BucketInputs(NamedTuple):
    """What a layer reads beside its states."""

    scores: Tensor
    """(1, heads, queries, keys): the terms of the distances."""
    memory: None = None
    """There is none; see `RelativeInputs`."""


class BucketTable(nn.Module):
    """A number for each bucket and head."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.max_distance = recipe.max_distance
        self.weight = nn.Parameter(torch.empty(recipe.buckets, recipe.heads).normal_(std=INIT_STD))

    def forward(self, queries: int, keys: int, is_causal: bool) -> Tensor:
        """(1, heads, queries, keys); the last query is at the position of the last key."""
        positions = torch.arange(keys, device=self.weight.device)
        distances = positions[None, :] - positions[keys - queries :, None]
        found = buckets_of(distances, len(self.weight), self.max_distance, is_causal)
        return self.weight[found].permute(2, 0, 1)[None]


def buckets_of(distances: Tensor, buckets: int, max_distance: int, is_causal: bool) -> Tensor:
    """The bucket of each distance, key minus query.

    Half of the buckets are single distances, the others have logarithmically growing ranges. Without a causal mask the
    first half of all is for keys before the query, the second for those after it.

    >>> buckets_of(torch.tensor([-200, -3, 0, 3]), 32, 128, is_causal=False).tolist()
    [15, 3, 0, 19]
    >>> buckets_of(torch.tensor([-200, -20, -3, 0]), 32, 128, is_causal=True).tolist()
    [31, 17, 3, 0]
    """
    found = torch.zeros_like(distances)
    if is_causal:
        distances = (-distances).clamp(min=0)
    else:
        buckets //= 2
        found += buckets * (distances > 0)
        distances = distances.abs()
    exact = buckets // 2
    ratio = torch.log(distances.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    large = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return found + torch.where(distances < exact, distances, large)


class BucketAttention(nn.Module):
    """Multi-head self-attention with a term for each range of distances."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.qkv = make_linear(recipe.width, 3 * recipe.width, recipe.biases)
        self.out = make_linear(recipe.width, recipe.width, recipe.biases)
        self.table = BucketTable(recipe)

    def forward(self, states: Tensor, bias: AttentionBias, rng: DropoutRng | None, relative: BucketInputs) -> Tensor:
        """(batch, length, width): the attention of all positions to one another."""
        width, heads, rate = self.recipe.width, self.recipe.heads, self.recipe.attention_dropout
        queries, keys_values = self.qkv(states).split([width, 2 * width], -1)
        attended = biased_attention(queries, keys_values, heads, bias, SCALE, None, relative.scores, rate, rng)
        return cast(Tensor, self.out(attended))

    def query_attention(
        self,
        queries: Tensor,
        gathered: GatheredQueries,
        states: Tensor,
        bias: AttentionBias,
        rng: DropoutRng | None,
        relative: BucketInputs,
    ) -> Tensor:
        """(positions, width): the attention of some queries to all positions."""
        heads, rate = self.recipe.heads, self.recipe.attention_dropout
        queries, keys_values = project_apart(self.qkv, queries, states)
        scores = relative.scores[0][:, gathered.columns].transpose(0, 1)
        attended = biased_attention(gathered.pad(queries), keys_values, heads, bias, SCALE, None, scores, rate, rng)
        return cast(Tensor, self.out(gathered.unpad(attended)))

    def decode_step(
        self, inputs: Tensor, cache: list[Tensor], bias: AttentionBias, drop_last: int, relative: BucketInputs
    ) -> tuple[Tensor, list[Tensor]]:
        """Attention of new tokens to cached ones and, by `bias`, to one another; and the keys and values to cache."""
        queries, *new = split_heads(self.qkv(inputs), self.recipe.heads, 3)
        keys, values = (torch.cat(each, 2) for each in zip(cache, new, strict=True)) if cache else new
        attended = infer_biased_attention(queries, keys, values, bias, SCALE, None, relative.scores)
        kept = keys.shape[2] - drop_last
        return self.out(attended), [keys[:, :, :kept], values[:, :, :kept]]
