"""Encoders that look at a fixed number of tokens: the token itself, a window, or the words before as a linear sum."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.encoders.encoder import Encoder, pick
from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.noise import drop
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import View


class Identity(Encoder):
    """The state is the token's vector: the word before decides alone (Xu and Rudnicky 2000)."""

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()

    def forward(self, entered: Tensor, view: View, places: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        return [entered], pick(entered, places)

    def extend(self, entered: Tensor, memory: list[Tensor], view: View | None = None) -> tuple[Tensor, list[Tensor]]:
        return entered, memory

    def work(self, length: int, predicted: float = 1.0) -> float:
        return 0.0


class Window(Encoder):
    """A hidden layer over the vectors of a window of tokens (Bengio et al. 2003; Collobert and Weston 2008).

    h[t] = activation(d + H [e[t - n + 1]; ...; e[t]]) when what came before is seen, the same with the n tokens from t
    on when what follows is, and with n tokens on each side when both are. Tokens outside the part of the row are zero
    vectors. More layers are hidden layers over that one. With direct connections the last state is h beside the
    vectors of the window, so that a softmax over it is y = b + W x + U tanh(d + H x). The layers that are returned
    have the vectors as they entered, in their own width, and the hidden states without them.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        self.recipe = recipe.encoder
        inputs = len(offsets(self.recipe.context, recipe.visibility)) * recipe.embedding.width
        widths = [inputs, *[self.recipe.width] * self.recipe.layers]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.activation = ACTIVATIONS[self.recipe.activation]

    def forward(self, entered: Tensor, view: View, places: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        window = windows(entered, offsets(self.recipe.context, view.visibility), view.parts)
        rate, noise, states = self.recipe.dropout, view.noise, [entered]
        hidden = window
        for layer in self.layers[:-1]:
            hidden = drop(self.activation(layer(hidden)), rate, noise)
            states.append(hidden)
        last = self.activation(self.layers[-1](pick(hidden, places)))
        if self.recipe.direct:
            last = torch.cat([last, pick(window, places)], -1)
        last = drop(last, rate, noise)
        if places is None:
            states.append(last[:, : self.recipe.width].view(*entered.shape[:2], -1))
        return states, last

    def extend(self, entered: Tensor, memory: list[Tensor], view: View | None = None) -> tuple[Tensor, list[Tensor]]:
        read, memory, old = _remembered(entered, memory, self.recipe.context)
        _, last = self(read, View("causal", (read.shape[0], read.shape[1])))
        return last.view(read.shape[0], read.shape[1], -1)[:, old:], memory

    def work(self, length: int, predicted: float = 1.0) -> float:
        each = [2.0 * layer.weight.numel() for layer in self.layers]  # type: ignore[operator]
        return sum(each[:-1]) + predicted * each[-1]


class Bilinear(Encoder):
    """Each word before gives a vector by a matrix of its place; their sum is the state (Mnih and Hinton 2007).

    s[t] = sum over i = 1..n of C[i] e[t - i + 1], and nothing else between: with a softmax over the words' own vectors
    that is the log-bilinear model.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        self.recipe = recipe.encoder
        self.combine = nn.Linear(self.recipe.context * recipe.embedding.width, self.recipe.width, bias=False)

    def forward(self, entered: Tensor, view: View, places: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        window = windows(entered, offsets(self.recipe.context, view.visibility), view.parts)
        last = drop(self.combine(pick(window, places)), self.recipe.dropout, view.noise)
        states = [entered] if places is not None else [entered, last.view(*entered.shape[:2], -1)]
        return states, last

    def extend(self, entered: Tensor, memory: list[Tensor], view: View | None = None) -> tuple[Tensor, list[Tensor]]:
        read, memory, old = _remembered(entered, memory, self.recipe.context)
        _, last = self(read, View("causal", (read.shape[0], read.shape[1])))
        return last.view(read.shape[0], read.shape[1], -1)[:, old:], memory

    def work(self, length: int, predicted: float = 1.0) -> float:
        return predicted * 2.0 * self.combine.weight.numel()


def offsets(context: int, visibility: str) -> list[int]:
    """Where the tokens of a window stand, in the order of the text; 0 is the place of the state.

    >>> offsets(3, "causal"), offsets(3, "anticausal"), offsets(2, "bidirectional")
    ([-2, -1, 0], [0, 1, 2], [-2, -1, 0, 1, 2])
    """
    if visibility == "bidirectional":
        return list(range(-context, context + 1))
    return list(range(context)) if visibility == "anticausal" else list(range(1 - context, 1))


def windows(entered: Tensor, places: list[int], parts: Tensor | None) -> Tensor:
    """(rows, places, tokens of the window x width): vectors side by side, zero for tokens outside of the part.

    >>> windows(torch.tensor([[[1.0], [2.0], [3.0]]]), [-1, 0], None).tolist()
    [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]]
    """
    shifted = []
    for offset in places:
        moved = _shift(entered, offset)
        if parts is not None and offset:
            moved = moved * (_shift(parts + 2, offset) == parts + 2)[..., None]
        shifted.append(moved)
    return torch.cat(shifted, -1)


def _shift(values: Tensor, offset: int) -> Tensor:
    """The value `offset` places on, 0 outside of the row."""
    length = values.shape[1]
    if abs(offset) >= length:
        return torch.zeros_like(values)
    around = [0, 0] * (values.dim() - 2)
    if offset < 0:
        return f.pad(values[:, : length + offset], [*around, -offset, 0])
    return f.pad(values[:, offset:], [*around, 0, offset])


def _remembered(entered: Tensor, memory: list[Tensor], context: int) -> tuple[Tensor, list[Tensor], int]:
    """New vectors after those that are remembered, what is to be remembered of them, and how many are old."""
    read = torch.cat([*memory, entered], 1)
    kept = read[:, max(0, read.shape[1] - context + 1) :]
    return read, [kept], read.shape[1] - entered.shape[1]
