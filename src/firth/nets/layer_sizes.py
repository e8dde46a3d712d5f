"""Layers of different sizes: the heads and feed-forward units that pruning has left in each layer."""

from __future__ import annotations

import re
from typing import Any

from firth.errors import RecipeError

_SIZE = re.compile(r"[1-9]\d{0,3}x[1-9]\d{0,5}")


def check_layer_sizes(encoder: Any) -> None:
    """Raise `RecipeError` unless the `layer_sizes` of an `EncoderRecipe` fit its other fields."""
    if not encoder.layer_sizes:
        return
    is_plain = encoder.kind == "transformer" and encoder.positions == "none" and encoder.tie_layers == "none"
    if not is_plain or encoder.cross_width:
        raise RecipeError(
            "encoder.layer_sizes are of a Transformer with encoder.positions=none, tie_layers=none and no "
            "cross-attention: leave them out."
        )
    if len(encoder.layer_sizes) != encoder.layers or not all(map(_SIZE.fullmatch, encoder.layer_sizes)):
        raise RecipeError(
            f"encoder.layer_sizes must be heads x width of each of {encoder.layers} layers, such as 3x512,4x600."
        )
    if max(heads_of(encoder, number) for number in range(encoder.layers)) > encoder.heads:
        raise RecipeError(f"encoder.layer_sizes have more than encoder.heads={encoder.heads} heads: give fewer.")


def heads_of(encoder: Any, layer: int) -> int:
    """The heads of a layer of an `EncoderRecipe`.

    >>> from firth.nets.recipe import EncoderRecipe
    >>> pruned = EncoderRecipe(layers=2, width=64, heads=4, layer_sizes=("3x512", "4x600"))
    >>> heads_of(pruned, 0), ffn_width_of(pruned, 1)
    (3, 600)
    """
    return int(encoder.layer_sizes[layer].partition("x")[0]) if encoder.layer_sizes else int(encoder.heads)


def ffn_width_of(encoder: Any, layer: int) -> int:
    """The width of the feed-forward layers of a layer."""
    return int(encoder.layer_sizes[layer].partition("x")[2]) if encoder.layer_sizes else int(encoder.ffn_width)


def pruned_flops(encoder: Any, length: int, predicted: float, gathered: float) -> float:
    """Floating-point operations of a forward pass per token of an encoder with `layer_sizes`.

    The last layer is computed for the fraction `predicted` of positions, and its queries if that is at most `gathered`.
    """
    total = 0.0
    for number in range(encoder.layers):
        inner = heads_of(encoder, number) * (encoder.width // encoder.heads)
        share = predicted if number + 1 == encoder.layers else 1.0
        queries = share if share <= gathered else 1.0
        total += 4.0 * encoder.width * inner + queries * (4.0 * encoder.width * inner + 4.0 * length * inner)
        total += share * (6.0 if encoder.gated else 4.0) * encoder.width * ffn_width_of(encoder, number)
    return total
