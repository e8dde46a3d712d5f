"""Encoder: maps embeddings to hidden states."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.nets.visibility import AttentionMask

EncoderOutput = tuple[list[Tensor], Tensor]
"""The hidden states of all layers, (batch, length, width) each, and the last hidden states (positions, width)."""
StepOutput = tuple[Tensor, list[Tensor]]
"""The last hidden states of new tokens, (batch, new tokens, width), and the new cache."""


class Encoder(nn.Module, ABC):
    """One direction of reading."""

    def __init__(self, recipe: NetRecipe, part: EncoderRecipe | None = None) -> None:
        """`part` is the decoder of the recipe if this is to be it."""
        super().__init__()
        self.recipe = part or recipe.encoder

    @abstractmethod
    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        """The hidden states for `inputs` (batch, length, embedding width), which are the first of the layers.

        With `positions` of the flattened batch the last layer may be missing from the list; without, the last hidden
        states are those of all positions.
        """

    @abstractmethod
    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        """The states of new tokens after the cached ones.

        New tokens attend to all cached ones and to one another by `mask`, causally by default. The cache is empty at
        first; the encoder states of the mask are needed only then.
        """

    @abstractmethod
    def flops(self, length: int, predicted: float = 1.0) -> float:
        """Floating-point operations of a forward pass per token in sequences of that length."""


def select_positions(states: Tensor, positions: Tensor | None) -> Tensor:
    """(batch, length, width) to (positions, width): some positions of the flattened batch, or all."""
    flat = states.reshape(-1, states.shape[-1])
    return flat if positions is None else flat.index_select(0, positions)
