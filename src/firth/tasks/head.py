"""Head: from the states of a network to scores, with layers of its own.

N = places that are asked about    W = width of a state
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from firth.nets.batch import Batch
from firth.nets.encoders.encoder import Encoder, make_encoder
from firth.nets.network import States, Vocabulary
from firth.nets.noise import Noise, drop
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe
from firth.nets.visibility import View
from firth.tasks.recipe import TaskRecipe

_SPREAD = 0.02  # standard deviation of first parameters (Devlin et al. 2019)
_WINDOW = 2  # words on each side that a convolution looks at


class ScalarMix(nn.Module):
    """gamma * sum of s_l h_l, s = softmax(w) (Peters et al. 2018, equation 1): equal weights at first."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """The mean of the layers, all of the same width."""
        shares = self.weights.softmax(0)
        mixed = shares[0] * layers[0]
        for share, layer in zip(shares[1:], layers[1:], strict=True):
            mixed = mixed + share * layer
        return self.scale * mixed


class Reading(nn.Module):
    """An encoder over the states of another: both directions of an LSTM side by side, or windows."""

    def __init__(self, kind: str, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        both = kind == "lstm"
        shape = EncoderRecipe(
            kind="lstm" if both else "window",
            layers=1,
            width=width // 2 if both else width,
            inner=0,
            heads=1,
            context=0 if both else _WINDOW,
            norm="none",
            activation="tanh" if both else "relu",
            dropout=dropout,
            attention_dropout=0.0,
        )
        recipe = NetRecipe(
            embedding=EmbeddingRecipe(width=inputs),
            encoder=shape,
            visibility="forward+backward" if both else "bidirectional",
            objectives="bilm" if both else "mlm",
        )
        self.views = ("causal", "anticausal") if both else ("bidirectional",)
        self.encoders = nn.ModuleList(make_encoder(recipe) for _ in self.views)

    def forward(self, entered: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        """(rows, places, width)."""
        found = []
        for name, encoder in zip(self.views, self.encoders, strict=True):
            assert isinstance(encoder, Encoder)
            found.append(encoder(entered, View(name, batch.shape, batch.parts, batch.times, noise))[1])
        return torch.cat(found, -1).view(*batch.shape, -1)

    def work(self, length: int) -> float:
        """Floating-point operations for a token, forwards."""
        return sum(encoder.work(length) for encoder in self.encoders if isinstance(encoder, Encoder))


class Head(nn.Module):
    """Which states are read, an encoder over them, a pooler, and a product that gives scores."""

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary, outputs: int, pooled: bool) -> None:
        super().__init__()
        self.recipe = recipe.head
        width = recipe.network.width
        self.mix = ScalarMix(_layers(recipe.network)) if self.recipe.layers == "mix" else None
        self.mix_above = ScalarMix(_layers(recipe.network)) if self.mix and self.recipe.reading == "around" else None
        self.inputs = nn.Embedding(len(vocabulary), self.recipe.inputs) if self.recipe.inputs else None
        if self.inputs is not None:
            nn.init.normal_(self.inputs.weight, std=0.1)
        below, above = self.recipe.inputs + width, 0
        if self.recipe.reading == "between":
            below, above = self.recipe.inputs, self.recipe.width + width
        self.reading, self.second = self._encoder(below), self._encoder(above) if above else None
        if self.recipe.encoder != "none":
            width = self.recipe.width + (width if self.recipe.reading == "around" else 0)
        else:
            width += self.recipe.inputs
        self.pooler = _linear(width, width) if pooled and self.recipe.pooler else None
        self.classifier = _linear(width, outputs)

    def _encoder(self, inputs: int) -> Reading | None:
        one = self.recipe
        return None if one.encoder == "none" else Reading(one.encoder, inputs, one.width, one.dropout)

    @property
    def whole(self) -> bool:
        """Whether the states of all places are needed, and not only of those that are asked about."""
        return self.mix is not None or self.reading is not None or self.inputs is not None

    def work(self, length: int) -> float:
        """Floating-point operations for a token, forwards, of what reads all of them."""
        return sum(one.work(length) for one in (self.reading, self.second) if one is not None)

    def states(self, states: States, batch: Batch, places: Tensor, noise: Noise | None) -> Tensor:
        """(N, W): what stands for each place."""
        if not self.whole:
            return states.at(places)
        read = self._mixed(self.mix, states, batch)
        beside = [] if self.inputs is None else [drop(self.inputs(batch.ids), self.recipe.dropout, noise)]
        if self.reading is None:
            found = torch.cat([read, *beside], -1)
        elif self.second is not None:
            below = self.reading(torch.cat(beside, -1), batch, noise)
            found = self.second(torch.cat([below, drop(read, self.recipe.dropout, noise)], -1), batch, noise)
        else:
            found = self.reading(torch.cat([drop(read, self.recipe.dropout, noise), *beside], -1), batch, noise)
            if self.recipe.reading == "around":
                found = torch.cat([found, self._mixed(self.mix_above or self.mix, states, batch)], -1)
        return found.flatten(0, 1).index_select(0, places)

    def _mixed(self, mix: ScalarMix | None, states: States, batch: Batch) -> Tensor:
        """(rows, places, width): the last states or the mean of all layers that have their width."""
        last = states.layers[-1]
        return last if mix is None else mix([one for one in states.layers if one.shape[-1] == last.shape[-1]])

    def pool(self, states: Tensor, groups: Tensor, count: int, noise: Noise | None) -> Tensor:
        """(count, outputs): the scores of groups of states, pooled."""
        pooled = pool(states, groups, count, self.recipe.pooling)
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(pooled))
        return self.score(pooled, noise)

    def score(self, states: Tensor, noise: Noise | None) -> Tensor:
        """(N, outputs)."""
        return self.classifier(drop(states, self.recipe.dropout, noise))  # type: ignore[no-any-return]


def pool(states: Tensor, groups: Tensor, count: int, pooling: str) -> Tensor:
    """(count, W): one state for each group, whose states stand side by side; zeros for a group without any.

    >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), 3, "mean").tolist()
    [[2.0], [0.0], [5.0]]
    """
    sizes = torch.bincount(groups, minlength=count)
    if pooling in ("first", "last") and len(groups) == count and bool((sizes == 1).all()):
        return states
    rows, held = spread(states, groups, count)
    if pooling == "max":
        return rows.masked_fill(~held[..., None], -torch.inf).amax(1).masked_fill(sizes[:, None] == 0, 0.0)
    return rows.sum(1) / sizes.clamp(min=1)[:, None]


def spread(values: Tensor, groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(count, most, ...): the values of each group side by side, zeros after them; and where there are values."""
    sizes = torch.bincount(groups, minlength=count)
    most = max(1, int(sizes.max()))
    rank = torch.arange(len(groups)) - (sizes.cumsum(0) - sizes)[groups]
    slots = groups * most + rank
    rows = values.new_zeros(count * most, *values.shape[1:]).index_copy(0, slots, values)
    held = torch.arange(most) < sizes[:, None]
    return rows.view(count, most, *values.shape[1:]), held


def _layers(recipe: NetRecipe) -> int:
    """How many layers of a network have the width of the last one."""
    entered = recipe.embedding.width if recipe.encoder.kind != "transformer" else recipe.encoder.width
    return recipe.encoder.layers + (entered * recipe.directions == recipe.width)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=_SPREAD)
    nn.init.zeros_(made.bias)
    return made
