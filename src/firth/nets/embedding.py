"""Embedding: what a token is before it meets others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from firth.errors import AbilityError, RecipeError
from firth.nets.linear import Linear
from firth.nets.noise import Noise, drop
from firth.nets.recipe import NetRecipe

SPREAD = 0.02
"""Standard deviation of the first parameters (Devlin et al. 2019)."""
_LONGER = 4  # times as long as random vectors are those that say something: bench/first_steps.py shows what they do


class Embedding(nn.Module):
    """Vectors of tokens, with those of their positions and segments added."""

    def __init__(self, recipe: NetRecipe, tokens: Sequence[str]) -> None:
        super().__init__()
        self.recipe = recipe.embedding
        width = self.recipe.width
        self.tokens: nn.Module = _letters(recipe, tokens) if self.recipe.characters else _table(len(tokens), width)
        self.positions = _table(recipe.rows.length, width) if self.recipe.positions == "learned" else None
        self.segments = _table(self.recipe.segments, width) if self.recipe.segments else None
        self.norm = nn.LayerNorm(width, eps=recipe.encoder.eps) if self.recipe.norm else None
        self.project: Linear | None = None
        if recipe.encoder.kind == "transformer" and width != recipe.encoder.width:
            self.project = Linear(width, recipe.encoder.width)
            nn.init.normal_(self.project.weight, std=SPREAD)
            nn.init.zeros_(self.project.bias)

    @property
    def table(self) -> Tensor:
        """(tokens, width): the vectors that an output layer may share."""
        if not isinstance(self.tokens, nn.Embedding):
            raise RecipeError("vectors made from letters cannot be tied to the output: set output.kind=full.")
        return self.tokens.weight

    def begin_with(self, directions: Tensor) -> None:
        """Points the vectors of tokens where a row says, and makes them longer than random ones."""
        known = directions.any(1)
        with torch.no_grad():
            self.table[known] = _LONGER * SPREAD * math.sqrt(self.recipe.width) * directions[known]

    def forward(
        self, ids: Tensor, positions: Tensor | None = None, segments: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        """(rows, places, width of the encoder)."""
        vectors: Tensor = self.tokens(ids)
        if self.recipe.positions == "sinusoidal":
            places = torch.arange(ids.shape[1], device=ids.device) if positions is None else positions
            # Vaswani et al. 2017, 3.4: the vectors are multiplied by sqrt(d), or the waves would drown them.
            vectors = vectors * math.sqrt(vectors.shape[-1]) + sinusoids(places, vectors.shape[-1])
        elif self.positions is not None:
            vectors = vectors + self._positions(ids.shape[1], positions)
        if self.segments is not None:
            vectors = vectors + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.norm is not None:
            vectors = self.norm(vectors)
        vectors = drop(vectors, self.recipe.dropout, noise)
        return vectors if self.project is None else self.project(vectors)

    def _positions(self, length: int, positions: Tensor | None) -> Tensor:
        assert self.positions is not None
        last = length if positions is None else int(positions.max()) + 1
        if last > self.positions.num_embeddings:
            raise AbilityError(
                f"the network has {self.positions.num_embeddings} positions, not {last}: give shorter texts, "
                f"or train with rows.length={last}."
            )
        if positions is None:
            return self.positions.weight[:length]
        found: Tensor = self.positions(positions)
        return found

    def work(self) -> float:
        """Floating-point operations for one token."""
        from firth.nets.characters import CharacterTable

        letters = self.tokens.work() if isinstance(self.tokens, CharacterTable) else 0.0
        return letters + (0.0 if self.project is None else 2.0 * self.project.weight.numel())


def sinusoids(places: Tensor, width: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos of the same (Vaswani et al. 2017).

    >>> sinusoids(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    rates = torch.exp(torch.arange(0, width, 2, device=places.device) * (-math.log(10_000.0) / width))
    angles = places[..., None].to(torch.float32) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]


def _table(count: int, width: int) -> nn.Embedding:
    made = nn.Embedding(count, width)
    nn.init.normal_(made.weight, std=SPREAD)
    return made


def _letters(recipe: NetRecipe, tokens: Sequence[str]) -> nn.Module:
    from firth.nets.characters import CharacterTable

    return CharacterTable(recipe, tokens)
