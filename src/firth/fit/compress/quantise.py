"""quantise: the weights of a network in 8 bits, and products of integers where the processor is faster with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from firth.abilities import without_tasks
from firth.artifact.models import load
from firth.errors import RecipeError
from firth.fit.compress.method import Compressed, CompressionJob, Method
from firth.nets.int8 import LEVELS, Int8Matrix, exact_levels
from firth.nets.linear import Linear
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import Network

_MIN_SIZE = 4096  # numbers of a matrix from which on it is worth two arrays


@dataclass(frozen=True, kw_only=True)
class QuantiseOptions:
    """What is quantised."""

    embeddings: bool = True
    """The tables of tokens and positions, too, which are most of a small model."""
    min_size: int = _MIN_SIZE
    """Numbers of a matrix from which on it is quantised."""

    def __post_init__(self) -> None:
        if self.min_size < 1:
            raise RecipeError(f"min_size={self.min_size} must be 1 or more.")


class Quantise(Method):
    """8 bits and a scale for each output of a weight; each token's states have 8 bits and a scale in products."""

    name: ClassVar[str] = "quantise"
    options: ClassVar[type] = QuantiseOptions

    def refusal(self, job: CompressionJob) -> str:
        if not isinstance(without_tasks(job.model), NetModel):
            return (
                f"quantise is for neural networks, and this is a {type(job.model).__name__}: use a model such as bert."
            )
        return ""

    def run(self, job: CompressionJob, options: QuantiseOptions) -> Compressed:
        model = load(job.artifact.folder, verify=False)  # the original stays as it is
        network: Network = without_tasks(model).network
        chosen = list(_chosen(network, options))
        if not chosen:
            largest = max((tensor.numel() for tensor in own_tensors(network).values() if tensor.dim() == 2), default=0)
            raise RecipeError(f"no matrix has min_size={options.min_size} numbers: set it to {largest} or less.")
        for _, weight in chosen:
            quantise_weight(weight)
        return Compressed(model=model, notes=_notes(network, [weight for _, weight in chosen]))


def quantise_weight(weight: torch.Tensor) -> None:
    """Round a weight to 8 bits, and use its integers in products."""
    matrix = Int8Matrix.of(weight)
    with torch.no_grad():
        weight.copy_(matrix.dequantise())
    matrix.attach(weight)


def _chosen(network: Network, options: QuantiseOptions) -> Iterator[tuple[str, torch.Tensor]]:
    """The matrices to quantise, by name; shared ones once."""
    tables = {id(one.weight) for one in network.modules() if isinstance(one, nn.Embedding)}
    for name, tensor in own_tensors(network).items():
        is_matrix = tensor.dim() == 2 and tensor.is_floating_point() and tensor.numel() >= options.min_size
        if is_matrix and (options.embeddings or id(tensor) not in tables):
            yield name, tensor


def _notes(network: Network, weights: list[Any]) -> list[str]:
    """What of the network has 8 bits, and which products use them on this processor."""
    every = sum(tensor.numel() for tensor in own_tensors(network).values())
    quantised = sum(weight.numel() for weight in weights)
    linear = [one.weight for one in network.modules() if isinstance(one, Linear)]
    fast = sum(weight.numel() for weight in linear if getattr(getattr(weight, "int8", None), "is_fast", False))
    notes = [f"{quantised / every:.0%} of the parameters have 8 bits and a scale for each row"]
    levels = exact_levels()
    if not levels:
        notes.append("products of bytes are not exact on this processor: they use float32, so only the file is smaller")
    elif not fast:
        notes.append(
            "no linear layer is large enough for products of bytes: they use float32, so only the file is smaller"
        )
    else:
        bits = "8 bits" if levels == LEVELS else "7 bits, since sums of 16 bits would saturate on this processor"
        notes.append(f"products of {fast:,} weights of linear layers use integers: states of 8 bits, weights of {bits}")
    return notes
