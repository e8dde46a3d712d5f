"""Transformer (Vaswani et al. 2017): attention and feed-forward layers, normalised before or after."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.encoders.encoder import Encoder, pick
from firth.nets.noise import Noise, drop
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.nets.visibility import View

_SPREAD = 0.02
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": f.gelu,
    "gelu-tanh": lambda x: f.gelu(x, approximate="tanh"),
    "relu": f.relu,
    "tanh": torch.tanh,
}


class Attention(nn.Module):
    """Every place asks all that it sees, with several heads."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.qkv = linear(recipe.width, 3 * recipe.width)
        self.out = linear(recipe.width, recipe.width)

    def forward(self, x: Tensor, mask: Tensor | None, noise: Noise | None) -> Tensor:
        rows, length, width = x.shape
        heads = self.recipe.heads
        q, k, v = self.qkv(x).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = drop(scores.softmax(-1), self.recipe.attention_dropout, noise)
        return self.out((weights @ v).transpose(1, 2).reshape(rows, length, width))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two products with an activation between."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.inner = linear(recipe.width, recipe.inner)
        self.outer = linear(recipe.inner, recipe.width)
        self.activation = ACTIVATIONS[recipe.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention, then feed-forward, each added to what went in."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.attention, self.feedforward = Attention(recipe), FeedForward(recipe)
        self.norm1, self.norm2 = nn.LayerNorm(recipe.width, eps=1e-12), nn.LayerNorm(recipe.width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None, noise: Noise | None) -> Tensor:
        rate, pre = self.recipe.dropout, self.recipe.norm == "pre"
        x = x + drop(self.attention(self.norm1(x) if pre else x, mask, noise), rate, noise)
        x = x if pre else self.norm1(x)
        x = x + drop(self.feedforward(self.norm2(x) if pre else x), rate, noise)
        return x if pre else self.norm2(x)


class Transformer(Encoder):
    """A stack of layers; those that share all parameters are one layer used again and again."""

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        self.recipe = recipe.encoder
        self.layers = nn.ModuleList(Layer(self.recipe) for _ in range(self.recipe.layers))
        self.norm = nn.LayerNorm(self.recipe.width, eps=1e-12) if self.recipe.norm == "pre" else None

    def forward(self, entered: Tensor, view: View, places: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        states = [entered]
        for layer in self.layers:
            states.append(layer(states[-1], view.mask(), view.noise))
        if self.norm is not None:
            states[-1] = self.norm(states[-1])
        return states, pick(states[-1], places)

    def work(self, length: int, predicted: float = 1.0) -> float:
        width, inner = self.recipe.width, self.recipe.inner
        return self.recipe.layers * (8.0 * width * width + 4.0 * width * inner + 4.0 * length * width)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A product with a bias; first parameters as in BERT."""
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=_SPREAD)
    nn.init.zeros_(made.bias)
    return made
