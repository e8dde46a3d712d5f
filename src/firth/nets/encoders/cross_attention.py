"""Attention of a decoder to the states of an encoder."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from firth.nets.dropout import DropoutRng
from firth.nets.encoders.attention import infer_attention, multi_head_attention, split_heads
from firth.nets.encoders.biased_attention import biased_attention, infer_biased_attention
from firth.nets.encoders.buckets import SCALE as UNSCALED
from firth.nets.linear import make_linear
from firth.nets.recipe import EncoderRecipe
from firth.nets.visibility import EncoderStates, SourceKeys


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder to encoder states."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.is_scaled = recipe.positions != "buckets"
        self.query = make_linear(recipe.width, recipe.width, recipe.biases)
        self.keys = make_linear(recipe.cross_width, 2 * recipe.width, recipe.biases)
        self.out = make_linear(recipe.width, recipe.width, recipe.biases)

    def forward(self, states: Tensor, encoder_states: EncoderStates, rng: DropoutRng | None) -> Tensor:
        """(batch, length, width)."""
        queries, keys_values = self.query(states), self.keys(encoder_states.states)
        heads, rate, bias = self.recipe.heads, self.recipe.attention_dropout, encoder_states.bias
        if self.is_scaled:
            attended = multi_head_attention(queries, keys_values, heads, bias, rate, rng)
        else:
            attended = biased_attention(queries, keys_values, heads, bias, UNSCALED, rate=rate, rng=rng)
        return cast(Tensor, self.out(attended))

    def keys_and_values(self, encoder_states: EncoderStates) -> list[Tensor]:
        """Keys and values of encoder states, to cache."""
        return list(split_heads(self.keys(encoder_states.states), self.recipe.heads, 2))

    def decode_step(self, states: Tensor, source: SourceKeys, layer: int) -> Tensor:
        """Attention of new tokens to the keys and values of their sources.

        If all sources have the same number of rows, these are the queries of one product with keys that are not copied.
        """
        queries, (keys, values), bias = self.query(states), source.layers[layer], source.bias
        if source.repeats is None:
            (keys, values), bias = source.of_rows(layer)
        else:
            queries = queries.reshape(len(keys), -1, queries.shape[-1])
        (queries,) = split_heads(queries, self.recipe.heads, 1)
        if self.is_scaled:
            attended = infer_attention(queries, keys, values, bias)
        else:
            attended = infer_biased_attention(queries, keys, values, bias, UNSCALED)
        return cast(Tensor, self.out(attended.view_as(states)))
