"""TaskHead: layers from the hidden states of a network to scores.

N = positions    W = hidden size
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng, drop
from firth.nets.encoders.encoder import Encoder
from firth.nets.groups import pool
from firth.nets.network import HiddenStates, Vocabulary, make_encoder
from firth.nets.norm import LayerNorm
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe
from firth.nets.visibility import AttentionMask
from firth.tasks.answer import StochasticAnswer
from firth.tasks.recipe import TaskRecipe

_INIT_STD = 0.02  # (Devlin et al. 2019)
_WINDOW = 2  # tokens on each side of a convolution


class ScalarMix(nn.Module):
    """gamma * sum of s_l h_l, s = softmax(w) (Peters et al. 2018, equation 1): initialised to equal weights."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """The weighted mean of layers of the same width."""
        weights = self.weights.softmax(0)
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = mixed + weight * layer
        return self.scale * mixed


class HeadEncoder(nn.Module):
    """A bidirectional LSTM or a convolution over hidden states."""

    def __init__(self, kind: str, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        is_lstm = kind == "lstm"
        shape = EncoderRecipe(
            kind="lstm" if is_lstm else "window",
            layers=1,
            width=width // 2 if is_lstm else width,
            ffn_width=0,
            heads=1,
            context=0 if is_lstm else _WINDOW,
            norm="none",
            activation="tanh" if is_lstm else "relu",
            dropout=dropout,
            attention_dropout=0.0,
        )
        recipe = NetRecipe(
            embedding=EmbeddingRecipe(width=inputs),
            encoder=shape,
            visibility="forward+backward" if is_lstm else "bidirectional",
        )
        self.visibilities = ("causal", "anticausal") if is_lstm else ("bidirectional",)
        self.encoders = nn.ModuleList(make_encoder(recipe) for _ in self.visibilities)

    def forward(self, states: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        """(batch, length, width)."""
        found = []
        for name, encoder in zip(self.visibilities, self.encoders, strict=True):
            assert isinstance(encoder, Encoder)
            mask = AttentionMask(name, batch.shape, batch.sequence_ids, batch.attention_order, rng)
            found.append(encoder(states, mask)[1])
        return torch.cat(found, -1).view(*batch.shape, -1)

    def flops(self, length: int) -> float:
        """Floating-point operations of a forward pass for each token."""
        return sum(encoder.flops(length) for encoder in self.encoders if isinstance(encoder, Encoder))


class HiddenLayer(nn.Module):
    """A layer with ReLU, normalised before and after (Howard and Ruder 2018, 3.3).

    Layer normalisation replaces that of the paper by batches, with which predictions would depend on other examples.
    """

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.first_norm, self.dense, self.last_norm = LayerNorm(inputs), nn.Linear(inputs, width), LayerNorm(width)
        self.dropout = dropout

    def forward(self, pooled: Tensor, rng: DropoutRng | None) -> Tensor:
        """(N, width)."""
        found = torch.relu(self.dense(drop(self.first_norm(pooled), self.dropout, rng)))
        return self.last_norm(found)  # type: ignore[no-any-return]


class TaskHead(nn.Module):
    """Layer mix, optional encoder, pooler and linear classifier, or an answer network over both texts of a pair."""

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary, outputs: int, pooled: bool) -> None:
        super().__init__()
        self.recipe = head = recipe.head
        width, layers = recipe.network.width, _layers(recipe.network)
        if head.layers == "ends":
            width += _entered(recipe.network)
        self.mix = ScalarMix(layers) if head.layers == "mix" else None
        self.mix_above = ScalarMix(layers) if self.mix and head.placement == "around" else None
        self.token_embedding = nn.Embedding(len(vocabulary), head.token_width) if head.token_width else None
        if self.token_embedding is not None:
            nn.init.normal_(self.token_embedding.weight, std=0.1)
        below, above = self.recipe.token_width + width, 0
        if self.recipe.placement == "between":
            below, above = self.recipe.token_width, self.recipe.width + width
        self.encoder, self.upper_encoder = self._encoder(below), self._encoder(above) if above else None
        if self.recipe.encoder != "none":
            width = self.recipe.width + (width if self.recipe.placement == "around" else 0)
        else:
            width += self.recipe.token_width
        self.answer = StochasticAnswer(width, outputs, head.turns, head.dropout) if head.answer == "san" else None
        if pooled and head.pooling == "concat":
            width *= 3
        is_pooled = pooled and self.answer is None
        self.pooler = _linear(width, width) if is_pooled and head.pooler else None
        self.hidden = HiddenLayer(width, head.hidden, head.dropout) if is_pooled and head.hidden else None
        self.classifier = _linear(head.hidden if self.hidden else width, outputs) if self.answer is None else None

    def _encoder(self, inputs: int) -> HeadEncoder | None:
        one = self.recipe
        return None if one.encoder == "none" else HeadEncoder(one.encoder, inputs, one.width, one.dropout)

    @property
    def needs_all_positions(self) -> bool:
        """Whether the states of all positions are needed, and not only of the labelled ones."""
        has_parts = self.encoder is not None or self.token_embedding is not None
        return has_parts or self.recipe.layers != "last"

    def flops(self, length: int) -> float:
        """Floating-point operations of the encoders in a forward pass for each token."""
        return sum(one.flops(length) for one in (self.encoder, self.upper_encoder) if one is not None)

    def states(self, states: HiddenStates, batch: Batch, positions: Tensor, rng: DropoutRng | None) -> Tensor:
        """(N, W): the states of positions."""
        if not self.needs_all_positions:
            return states.at(positions)
        mixed = self._mixed(self.mix, states, batch)
        embedded = (
            [] if self.token_embedding is None else [drop(self.token_embedding(batch.ids), self.recipe.dropout, rng)]
        )
        if self.encoder is None:
            found = torch.cat([mixed, *embedded], -1)
        elif self.upper_encoder is not None:
            below = self.encoder(torch.cat(embedded, -1), batch, rng)
            found = self.upper_encoder(torch.cat([below, drop(mixed, self.recipe.dropout, rng)], -1), batch, rng)
        else:
            found = self.encoder(torch.cat([drop(mixed, self.recipe.dropout, rng), *embedded], -1), batch, rng)
            if self.recipe.placement == "around":
                found = torch.cat([found, self._mixed(self.mix_above or self.mix, states, batch)], -1)
        return found.flatten(0, 1).index_select(0, positions)

    def _mixed(self, mix: ScalarMix | None, states: HiddenStates, batch: Batch) -> Tensor:
        """(batch, length, W): the last layer, the mix of all layers of its width, or the first and the last."""
        last = states.layers[-1]
        if self.recipe.layers == "ends":
            return torch.cat([states.layers[0], last], -1)
        return last if mix is None else mix([one for one in states.layers if one.shape[-1] == last.shape[-1]])

    def pool(self, states: Tensor, groups: Tensor, count: int, rng: DropoutRng | None) -> Tensor:
        """(count, outputs): the scores of pooled groups of states."""
        pooled = pool(states, groups, count, self.recipe.pooling)
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(pooled))
        if self.hidden is not None:
            pooled = self.hidden(pooled, rng)
        return self.score(pooled, rng)

    def score(self, states: Tensor, rng: DropoutRng | None) -> Tensor:
        """(N, outputs)."""
        assert self.classifier is not None
        return self.classifier(drop(states, self.recipe.dropout, rng))  # type: ignore[no-any-return]


def _layers(recipe: NetRecipe) -> int:
    """Number of layers with the width of the last one."""
    encoder = recipe.encoder
    between = encoder.layers - 1 if encoder.inner_width in (0, encoder.width) else 0
    return between + 1 + (_entered(recipe) == recipe.width)


def _entered(recipe: NetRecipe) -> int:
    """Width of the first of the layers, the inputs of all encoders."""
    inputs = recipe.input_width if recipe.encoder.kind != "transformer" else recipe.encoder.width
    return inputs * recipe.directions


def _linear(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=_INIT_STD)
    nn.init.zeros_(made.bias)
    return made
