"""Cross-attention heads initialised to attend to the token that a query has itself.

A decoder that restores text reads the encoder by finding there the token that it has just read. With random weights no
head learns this in a short run: the decoder stays a language model, and the encoder gets no gradient. Here queries and
keys of heads of the decoder's first layer start as the same projection, so that equal tokens match; all weights are
trained as usual.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn

from firth.nets.encoders.cross_attention import CrossAttention
from firth.nets.encoders.transformer import Layer, Transformer

_PEAK = 10.0  # attention score of a state with itself; that of others is about 0
_ONE_IN = 2  # heads


def init_matching_heads(decoder: Transformer) -> None:
    """Change the initial weights of a new decoder, whose inputs have a variance of about 1 by normalisation."""
    if not decoder.recipe.layers:
        return
    attention = cast(Layer, decoder.layers[0]).cross_attention
    with torch.no_grad():
        for head in range(max(1, decoder.recipe.heads // _ONE_IN)):
            _match(attention, head)


def _match(attention: CrossAttention, head: int) -> None:
    """Make a head attend where the state is that of the query, and copy with a gain of about 1."""
    width, size = attention.recipe.width, attention.recipe.width // attention.recipe.heads
    own, values = slice(head * size, (head + 1) * size), slice(width + head * size, width + (head + 1) * size)
    projection = nn.init.orthogonal_(torch.empty(size, width))
    # A state of variance 1 has a projection of the squared length `size`.
    scale = 1 / math.sqrt(size) if attention.is_scaled else 1.0
    projection *= math.sqrt(_PEAK / (scale * size))
    attention.query.weight[own] = projection
    attention.keys.weight[own] = projection
    nn.init.normal_(attention.keys.weight[values], std=width**-0.5)
    nn.init.normal_(attention.out.weight[:, own], std=width**-0.5)
