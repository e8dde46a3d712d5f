"""Attention with relative positions (Dai et al. 2019).

The score of query i and key j is ((q_i + u)' k_j + (q_i + v)' W_r s(i - j)) / sqrt(D), with sinusoids s and vectors u
and v that the layers may share.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng, drop
from firth.nets.encoders.attention import split_heads
from firth.nets.encoders.biased_attention import DistanceTerms, biased_attention, infer_biased_attention
from firth.nets.linear import INIT_STD, Linear, linear
from firth.nets.recipe import EncoderRecipe
from firth.nets.visibility import AttentionBias, GatheredQueries


class SharedKeys(NamedTuple):
    """What both streams of a layer attend to (Yang et al. 2019, section 2.3: keys and values are of the contents)."""

    keys_values: Tensor
    """(batch, memory + length, 2 width)."""
    vectors: Tensor
    """(distances, width): the vectors of distances."""
    turned: Tensor | None
    """The same of negative distances, if there are reversed rows."""


class RelativeInputs(NamedTuple):
    """What a layer with relative positions reads beside its states."""

    sinusoids: Tensor
    """(distances, width): from the largest distance downwards, see `DistanceTerms`."""
    memory: Tensor | None = None
    """(batch, memory, width): the states of the tokens before the first one."""
    same_segment: Tensor | None = None
    """(batch, length, memory + length): whether query and key are of the same segment; None: all are."""
    is_reversed: Tensor | None = None
    """(batch,): the rows whose distances are negative; None: there are none."""
    shared: SharedKeys | None = None
    """What two streams of queries attend to; None: it is computed for one of them."""

    def of_rows(self, rows: Tensor, is_reversed: bool) -> RelativeInputs:
        """The inputs of rows of one direction."""
        same = None if self.same_segment is None else self.same_segment[rows]
        shared = self.shared
        if shared is not None and shared.turned is not None and is_reversed:
            shared = shared._replace(vectors=shared.turned)
        return RelativeInputs(self.turned() if is_reversed else self.sinusoids, None, same, shared=shared)

    def turned(self) -> Tensor:
        """The sinusoids of the negative distances: s(-d) has the opposite sines of s(d), and the same cosines."""
        sines = (self.sinusoids.shape[1] + 1) // 2
        return torch.cat([-self.sinusoids[:, :sines], self.sinusoids[:, sines:]], 1)


def distance_sinusoids(
    keys: int, queries: int, recipe: EncoderRecipe, is_causal: bool, like: Tensor, rng: DropoutRng | None = None
) -> Tensor:
    """(distances, width): [sin(d / 10000^(2i/W)) | cos(the same)] of the distances of queries to keys.

    From `keys` - 1 down to that of the first query to the last key, or with `is_causal` to -1, which is masked.
    """
    lowest = -1 if is_causal else min(-1, 1 - queries)
    distances = torch.arange(keys - 1, lowest - 1, -1, dtype=like.dtype, device=like.device)
    if recipe.clamp_length:
        distances.clamp_(-recipe.clamp_length, recipe.clamp_length)
    evens = torch.arange(0, recipe.width, 2, dtype=like.dtype, device=like.device)
    angles = distances[:, None] * torch.exp(evens * (-math.log(10_000.0) / recipe.width))
    made = torch.cat([angles.sin(), angles.cos()], 1)[:, : recipe.width]
    return drop(made, recipe.dropout, rng)


class PositionBiases(nn.Module):
    """The vectors that are added to queries before they meet keys and distances."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.content = nn.Parameter(torch.empty(width).normal_(std=INIT_STD))
        self.position = nn.Parameter(torch.empty(width).normal_(std=INIT_STD))


class SegmentTerms(nn.Module):
    """(q + b)' s / sqrt(D), with one vector s if query and key are of the same segment and another if not.

    (Yang et al. 2019, section 2.5.)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(width).normal_(std=INIT_STD))
        self.vectors = nn.Parameter(torch.empty(2, width).normal_(std=INIT_STD))

    def forward(self, queries: Tensor, same: Tensor, heads: int, scale: float) -> Tensor:
        """(batch, heads, queries, keys): the terms for queries (batch, queries, width)."""
        split = split_heads(queries + self.bias, heads, 1)[0]
        found = scale * torch.einsum("bhqd,shd->bhqs", split, self.vectors.view(2, heads, -1))
        return torch.where(same[:, None], found[..., :1], found[..., 1:])


class RelativeAttention(nn.Module):
    """Multi-head self-attention with relative positions, without biases, to the states and a memory before them."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.scale = 1 / math.sqrt(recipe.width // recipe.heads)
        self.qkv = _make_linear(recipe.width, 3 * recipe.width)
        self.distances = _make_linear(recipe.width, recipe.width)
        self.biases = PositionBiases(recipe.width)
        self.out = _make_linear(recipe.width, recipe.width)
        self.segments = SegmentTerms(recipe.width) if recipe.segments == "relative" else None

    def forward(self, states: Tensor, bias: AttentionBias, rng: DropoutRng | None, relative: RelativeInputs) -> Tensor:
        """(batch, length, width): the attention of all positions to the memory and to one another."""
        if relative.memory is None and relative.shared is None:
            queries, keys_values = self.qkv(states).split([self.recipe.width, 2 * self.recipe.width], -1)
        else:
            queries, keys_values = self._queries(states), self._keys_values(states, relative)
        return cast(Tensor, self.out(self._attend(queries, keys_values, None, states.shape[1], bias, rng, relative)))

    def share_keys(self, states: Tensor, relative: RelativeInputs) -> RelativeInputs:
        """The inputs with what both streams attend to, computed once."""
        turned = None if relative.is_reversed is None else self.distances(relative.turned())
        shared = SharedKeys(self._keys_values(states, relative), self.distances(relative.sinusoids), turned)
        return relative._replace(shared=shared)

    def query_attention(
        self,
        queries: Tensor,
        gathered: GatheredQueries,
        states: Tensor,
        bias: AttentionBias,
        rng: DropoutRng | None,
        relative: RelativeInputs,
    ) -> Tensor:
        """(positions, width): the attention of some queries to the memory and to all positions."""
        padded, keys_values = gathered.pad(self._queries(queries)), self._keys_values(states, relative)
        relative = relative._replace(same_segment=gathered.select(relative.same_segment))
        attended = self._attend(padded, keys_values, gathered.columns, states.shape[1], bias, rng, relative)
        return cast(Tensor, self.out(gathered.unpad(attended)))

    def decode_step(
        self, inputs: Tensor, cache: list[Tensor], bias: AttentionBias, drop_last: int, relative: RelativeInputs
    ) -> tuple[Tensor, list[Tensor]]:
        """Attention of new tokens to cached ones and, by `bias`, to one another; and the keys and values to cache."""
        heads, width, count = self.recipe.heads, self.recipe.width, inputs.shape[1]
        queries, keys_values = self.qkv(inputs).split([width, 2 * width], -1)
        new = split_heads(keys_values, heads, 2)
        keys, values = (torch.cat(each, 2) for each in zip(cache, new, strict=True)) if cache else new
        terms = DistanceTerms(queries + self.biases.position, self.distances(relative.sinusoids), count - 1)
        by_content = split_heads(queries + self.biases.content, heads, 1)[0]
        attended = infer_biased_attention(by_content, keys, values, bias, self.scale, terms)
        kept = keys.shape[2] - drop_last
        return self.out(attended), [keys[:, :, :kept], values[:, :, :kept]]

    def _attend(
        self,
        queries: Tensor,
        keys_values: Tensor,
        columns: Tensor | None,
        length: int,
        bias: AttentionBias,
        rng: DropoutRng | None,
        relative: RelativeInputs,
    ) -> Tensor:
        if relative.is_reversed is not None:
            return self._attend_both_ways(queries, keys_values, columns, length, bias, rng, relative)
        vectors = self.distances(relative.sinusoids) if relative.shared is None else relative.shared.vectors
        terms = DistanceTerms(queries + self.biases.position, vectors, length - 1, columns)
        heads, rate, scores = self.recipe.heads, self.recipe.attention_dropout, None
        if self.segments is not None and relative.same_segment is not None:
            scores = self.segments(queries, relative.same_segment, heads, self.scale)
        queries = queries + self.biases.content
        return biased_attention(queries, keys_values, heads, bias, self.scale, terms, scores, rate, rng)

    def _attend_both_ways(
        self,
        queries: Tensor,
        keys_values: Tensor,
        columns: Tensor | None,
        length: int,
        bias: AttentionBias,
        rng: DropoutRng | None,
        relative: RelativeInputs,
    ) -> Tensor:
        """`_attend` for rows of text in order and for rows of reversed text, which have other distances."""
        assert relative.is_reversed is not None
        found, numbers = [], []
        for is_reversed in (False, True):
            rows = (relative.is_reversed == is_reversed).nonzero()[:, 0]
            if not len(rows):
                continue
            own = relative.of_rows(rows, is_reversed)
            some = None if columns is None else columns[rows]
            found.append(self._attend(queries[rows], keys_values[rows], some, length, bias.of_rows(rows), rng, own))
            numbers.append(rows)
        return torch.cat(found)[torch.argsort(torch.cat(numbers))]

    def _queries(self, states: Tensor) -> Tensor:
        return linear(states, self.qkv.weight, None, slice(0, self.recipe.width))

    def _keys_values(self, states: Tensor, relative: RelativeInputs) -> Tensor:
        if relative.shared is not None:
            return relative.shared.keys_values
        joined = states if relative.memory is None else torch.cat([relative.memory, states], 1)
        return linear(joined, self.qkv.weight, None, slice(self.recipe.width, None))


def _make_linear(inputs: int, outputs: int) -> Linear:
    made = Linear(inputs, outputs, bias=False)
    nn.init.normal_(made.weight, std=INIT_STD)
    return made
