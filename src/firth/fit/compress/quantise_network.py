"""Networks in 8 bits: which weights, and what a card says of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.int8 import LEVELS, Int8Matrix, exact_levels, int8_of
from firth.nets.linear import Linear
from firth.nets.model import own_tensors
from firth.nets.network import Network

_MIN_SIZE = 4096  # numbers of a matrix from which on it is worth an array of scales


def quantise_network(network: Network, embeddings: bool = True) -> list[str]:
    """Round the matrices of a network to 8 bits with a scale for each row; returns sentences for a card.

    With `embeddings` the tables of tokens and positions have 8 bits, too.
    """
    tables = {id(one.weight) for one in network.modules() if isinstance(one, nn.Embedding)}
    chosen = [
        tensor
        for tensor in own_tensors(network).values()
        if tensor.dim() == 2 and tensor.is_floating_point() and tensor.numel() >= _MIN_SIZE
        if embeddings or id(tensor) not in tables
    ]
    if not chosen:
        raise RecipeError(f"the network has no matrix of {_MIN_SIZE} numbers or more: it is small enough as it is.")
    for weight in chosen:
        quantise_weight(weight)
    return _notes(network, chosen)


def quantise_weight(weight: Tensor) -> None:
    """Round a weight to 8 bits, and use its integers in products."""
    matrix = Int8Matrix.of(weight)
    with torch.no_grad():
        weight.copy_(matrix.dequantise())
    matrix.attach(weight)


def _notes(network: Network, weights: list[Tensor]) -> list[str]:
    """What of the network has 8 bits, and which products use them on this processor."""
    every = sum(tensor.numel() for tensor in own_tensors(network).values())
    linear = [int8_of(one.weight) for one in network.modules() if isinstance(one, Linear)]
    fast = sum(one.values.numel() for one in linear if one is not None and one.is_fast)
    notes = [f"{sum(one.numel() for one in weights) / every:.1%} of the parameters have 8 bits"]
    levels = exact_levels()
    if not levels:
        notes.append("products of bytes are not exact on this processor, so that it multiplies in 32 bits")
    elif not fast:
        notes.append("no linear layer is large enough for products of bytes to be faster, so that they have 32 bits")
    else:
        bits = "8 bits" if levels == LEVELS else "7 bits, since sums of 16 bits would saturate on this processor"
        notes.append(f"products with {fast:,} weights of linear layers are of integers; weights have {bits} there")
    return [*notes, "on disk only: in memory, weights have 32 bits, too"]
