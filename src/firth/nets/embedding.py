"""Embedding: what a token is before it meets others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from firth.nets.noise import Noise, drop
from firth.nets.recipe import NetRecipe

_SPREAD = 0.02  # standard deviation of the first parameters (Devlin et al. 2019)


class Embedding(nn.Module):
    """Vectors of tokens, with those of their positions and segments added."""

    def __init__(self, recipe: NetRecipe, tokens: Sequence[str]) -> None:
        super().__init__()
        self.recipe = recipe.embedding
        width = self.recipe.width
        self.tokens = nn.Embedding(len(tokens), width)
        nn.init.normal_(self.tokens.weight, std=_SPREAD)
        self.positions: nn.Embedding | None = None
        if self.recipe.positions == "learned":
            self.positions = nn.Embedding(recipe.rows.length, width)
            nn.init.normal_(self.positions.weight, std=_SPREAD)
        self.segments = nn.Embedding(self.recipe.segments, width) if self.recipe.segments else None
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=_SPREAD)
        self.norm = nn.LayerNorm(width, eps=1e-12) if self.recipe.norm else None
        self.project = None
        if recipe.encoder.kind == "transformer" and width != recipe.encoder.width:
            self.project = nn.Linear(width, recipe.encoder.width)

    @property
    def table(self) -> Tensor:
        """(tokens, width): the vectors that an output layer may share."""
        return self.tokens.weight

    def forward(
        self, ids: Tensor, positions: Tensor | None = None, segments: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        """(rows, places, width of the encoder)."""
        vectors: Tensor = self.tokens(ids)
        if self.positions is not None:
            places = torch.arange(ids.shape[1]) if positions is None else positions
            vectors = vectors + self.positions(places)
        elif self.recipe.positions == "sinusoidal":
            places = torch.arange(ids.shape[1]) if positions is None else positions
            vectors = vectors + sinusoids(places, vectors.shape[-1])
        if self.segments is not None:
            vectors = vectors + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            vectors = self.norm(vectors)
        vectors = drop(vectors, self.recipe.dropout, noise)
        return vectors if self.project is None else self.project(vectors)

    def work(self) -> float:
        """Floating-point operations for one token."""
        return 0.0 if self.project is None else 2.0 * self.project.in_features * self.project.out_features


def sinusoids(places: Tensor, width: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos of the same (Vaswani et al. 2017).

    >>> sinusoids(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = places[..., None].to(torch.float32) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]
