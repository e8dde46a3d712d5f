"""Encoders of a fixed context: the token itself, a window, or a linear combination of the previous tokens."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.dropout import drop
from firth.nets.encoders.encoder import Encoder, EncoderOutput, StepOutput, select_positions
from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import AttentionMask


class IdentityEncoder(Encoder):
    """The hidden state is the token vector: a bigram model (Xu and Rudnicky 2000)."""

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        return [inputs], select_positions(inputs, positions)

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        return inputs, cache

    def flops(self, length: int, predicted: float = 1.0) -> float:
        return 0.0


class _ContextEncoder(Encoder):
    """Decodes by encoding the last `context` tokens again."""

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        whole = torch.cat([*cache, inputs], 1)
        cached = whole[:, max(0, whole.shape[1] - self.recipe.context + 1) :]
        _, last = self(whole, AttentionMask("causal", (whole.shape[0], whole.shape[1])))
        return last.view(whole.shape[0], whole.shape[1], -1)[:, whole.shape[1] - inputs.shape[1] :], [cached]


class WindowEncoder(_ContextEncoder):
    """A hidden layer over the vectors of a window of tokens (Bengio et al. 2003; Collobert and Weston 2008).

    h[t] = activation(d + H [e[t - n + 1]; ...; e[t]]) if causal, the same with the n tokens from t on if anticausal,
    and with n tokens on each side if bidirectional. Tokens outside the sequence are zero vectors. More layers are
    hidden layers over that one. With direct connections the last hidden state is h beside the vectors of the window,
    so that a softmax over it is y = b + W x + U tanh(d + H x). The returned layers have the inputs in their own width,
    and the hidden states without direct connections.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__(recipe)
        inputs = len(offsets(self.recipe.context, recipe.visibility)) * recipe.embedding.width
        widths = [inputs, *[self.recipe.width] * self.recipe.layers]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.activation = ACTIVATIONS[self.recipe.activation]

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        window = windows(inputs, offsets(self.recipe.context, mask.visibility), mask.sequence_ids)
        rate, states, hidden = self.recipe.dropout, [inputs], window
        for layer in self.layers[:-1]:
            hidden = drop(self.activation(layer(hidden)), rate, mask.rng)
            states.append(hidden)
        last = self.activation(self.layers[-1](select_positions(hidden, positions)))
        if self.recipe.direct_connections:
            last = torch.cat([last, select_positions(window, positions)], -1)
        last = drop(last, rate, mask.rng)
        if positions is None:
            states.append(last[:, : self.recipe.width].view(*inputs.shape[:2], -1))
        return states, last

    def flops(self, length: int, predicted: float = 1.0) -> float:
        each = [2.0 * layer.weight.numel() for layer in self.layers]  # type: ignore[operator]
        return sum(each[:-1]) + predicted * each[-1]


class Bilinear(_ContextEncoder):
    """A linear combination of the previous tokens by a matrix for each position (Mnih and Hinton 2007).

    s[t] = sum over i = 1..n of C[i] e[t - i + 1]; with a tied softmax this is the log-bilinear model.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__(recipe)
        self.combine = nn.Linear(self.recipe.context * recipe.embedding.width, self.recipe.width, bias=False)

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        window = windows(inputs, offsets(self.recipe.context, mask.visibility), mask.sequence_ids)
        last = drop(self.combine(select_positions(window, positions)), self.recipe.dropout, mask.rng)
        states = [inputs] if positions is not None else [inputs, last.view(*inputs.shape[:2], -1)]
        return states, last

    def flops(self, length: int, predicted: float = 1.0) -> float:
        return predicted * 2.0 * self.combine.weight.numel()


def offsets(context: int, visibility: str) -> list[int]:
    """The offsets of the tokens of a window from the position of the hidden state, in text order.

    >>> offsets(3, "causal"), offsets(3, "anticausal"), offsets(2, "bidirectional")
    ([-2, -1, 0], [0, 1, 2], [-2, -1, 0, 1, 2])
    """
    if visibility == "bidirectional":
        return list(range(-context, context + 1))
    return list(range(context)) if visibility == "anticausal" else list(range(1 - context, 1))


def windows(inputs: Tensor, tokens: list[int], sequence_ids: Tensor | None) -> Tensor:
    """(batch, length, tokens x width): concatenated vectors at some offsets, zero for tokens outside the sequence.

    >>> windows(torch.tensor([[[1.0], [2.0], [3.0]]]), [-1, 0], None).tolist()
    [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]]
    """
    shifted = []
    for offset in tokens:
        moved = _shift(inputs, offset)
        if sequence_ids is not None and offset:
            moved = moved * (_shift(sequence_ids + 2, offset) == sequence_ids + 2)[..., None]
        shifted.append(moved)
    return torch.cat(shifted, -1)


def _shift(values: Tensor, offset: int) -> Tensor:
    """The value `offset` positions further on, 0 outside of the row."""
    length = values.shape[1]
    if abs(offset) >= length:
        return torch.zeros_like(values)
    around = [0, 0] * (values.dim() - 2)
    if offset < 0:
        return f.pad(values[:, : length + offset], [*around, -offset, 0])
    return f.pad(values[:, offset:], [*around, 0, offset])
