"""Encoder: what makes states of vectors, layer by layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module

from torch import Tensor, nn

from firth.nets.recipe import NetRecipe
from firth.nets.visibility import View

_HOMES = {
    "none": ("feedforward", "Identity"),
    "window": ("feedforward", "Window"),
    "bilinear": ("feedforward", "Bilinear"),
    "rnn": ("recurrent", "Recurrent"),
    "lstm": ("recurrent", "Lstm"),
    "transformer": ("transformer", "Transformer"),
}


class Encoder(nn.Module, ABC):
    """One direction of reading."""

    @abstractmethod
    def forward(self, entered: Tensor, view: View, places: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        """The states of all layers, and the last ones.

        `entered` is (rows, places, embedding width). The list has what entered (brought to the encoder's width) and the
        states of every layer, (rows, places, width) each; if `places` are given the last layer may be left out of it.
        The second is (places asked for, width), or that of all places row after row.
        """

    @abstractmethod
    def extend(self, entered: Tensor, memory: list[Tensor], view: View | None = None) -> tuple[Tensor, list[Tensor]]:
        """The last states (rows, new places, width) of new vectors after those in the memory, empty at first.

        New places see all that is in the memory, and one another as `view` says, or those before them. The source that
        it may have is needed only at first.
        """

    @abstractmethod
    def work(self, length: int, predicted: float = 1.0) -> float:
        """Floating-point operations for one token, forwards, in rows of that length."""


def make_encoder(recipe: NetRecipe) -> Encoder:
    """The encoder that a recipe asks for."""
    module, name = _HOMES[recipe.encoder.kind]
    made = getattr(import_module(f"firth.nets.encoders.{module}"), name)(recipe)
    assert isinstance(made, Encoder)
    return made


def pick(states: Tensor, places: Tensor | None) -> Tensor:
    """(rows, places, width) to the states of some places, or of all, row after row."""
    flat = states.reshape(-1, states.shape[-1])
    return flat if places is None else flat.index_select(0, places)
