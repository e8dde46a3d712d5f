"""Input embeddings: token, position, segment, language and task vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from firth.errors import AbilityError, RecipeError
from firth.nets.batch import TokenVectors
from firth.nets.characters import CharacterTable
from firth.nets.dropout import DropoutRng, drop, drop_steps
from firth.nets.linear import INIT_STD, make_linear
from firth.nets.norm import LayerNorm
from firth.nets.recipe import NetRecipe

LANGUAGES = "languages"
"""The key of language ids in `Batch.side_ids`."""
TASKS = "tasks"
"""The key of task ids in `Batch.side_ids`."""
_PRETRAINED_SCALE = 4  # norm of pretrained vectors relative to random ones: measured by bench/first_steps.py


class Embedding(nn.Module):
    """The sum of token, position, segment, language and task embeddings."""

    def __init__(
        self, recipe: NetRecipe, tokens: Sequence[str], shared: Embedding | None = None, only_tokens: bool = False
    ) -> None:
        """The tables and the normalisation are those of `shared`, if given; the projection never is.

        `only_tokens`: only its token vectors are.
        """
        super().__init__()
        self.recipe = recipe.embedding
        self.token_count: int = len(tokens) if shared is None else shared.token_count
        width = self.recipe.width
        characters = self.recipe.characters
        self.tokens: nn.Module
        self.positions: nn.Embedding | None
        self.segments: nn.Embedding | None
        self.languages: nn.Embedding | None
        self.tasks: nn.Embedding | None
        self.norm: LayerNorm | None
        self.query: nn.Parameter | None
        if shared is not None and not only_tokens:
            self.tokens, self.positions, self.segments = shared.tokens, shared.positions, shared.segments
            self.languages, self.norm, self.query = shared.languages, shared.norm, shared.query
            self.tasks = shared.tasks
        else:
            if shared is not None:
                self.tokens = shared.tokens
            else:
                unit = 1.0 if self.recipe.init == "unit" else INIT_STD
                self.tokens = CharacterTable(recipe, tokens) if characters else _table(len(tokens), width, unit)
            self.positions = _table(recipe.sequence.length, width) if self.recipe.positions == "learned" else None
            self.segments = _table(self.recipe.segments, width) if self.recipe.segments else None
            self.languages = _table(self.recipe.languages, width) if self.recipe.languages else None
            self.norm = LayerNorm(width, eps=recipe.encoder.eps) if self.recipe.norm else None
            self.query = _vector(recipe.encoder.width) if self.recipe.query else None
            self.tasks = _table(self.recipe.tasks, width) if self.recipe.tasks else None
        has_projection = recipe.encoder.kind == "transformer" and width != recipe.encoder.width
        self.project = make_linear(width, recipe.encoder.width) if has_projection else None

    @property
    def table(self) -> Tensor:
        """(vocabulary, width): the token vectors that an output layer may be tied to."""
        if not isinstance(self.tokens, nn.Embedding):
            raise RecipeError("character-based embeddings cannot be tied to the output: set output.kind=full.")
        return self.tokens.weight

    def set_token_vectors(self, directions: Tensor) -> None:
        """Initialise token vectors by the nonzero rows of unit vectors (vocabulary, width)."""
        known = directions.any(1)
        with torch.no_grad():
            self.table[known] = _PRETRAINED_SCALE * INIT_STD * math.sqrt(self.recipe.width) * directions[known]

    def forward(
        self,
        ids: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        rng: DropoutRng | None = None,
        side_ids: Mapping[str, Tensor] | None = None,
        token_vectors: TokenVectors | None = None,
    ) -> Tensor:
        """(batch, length, encoder width).

        Side ids and token vectors are those of `Batch`; missing side ids mean the first row of a table.
        """
        vectors: Tensor = self.tokens(ids)
        if token_vectors is not None:
            flat = vectors.flatten(0, 1).index_copy(0, token_vectors.positions, token_vectors.vectors.to(vectors))
            vectors = flat.view_as(vectors)
        if rng is not None and self.recipe.token_dropout:
            kept = rng.mask((self.token_count, 1), self.recipe.token_dropout, vectors.dtype)
            vectors = vectors * kept.to(vectors.device)[ids]
        if self.recipe.positions == "sinusoidal":
            positions = torch.arange(ids.shape[1], device=ids.device) if position_ids is None else position_ids
            # Vaswani et al. 2017, 3.4: token vectors are multiplied by sqrt(d), or the sinusoids would dominate.
            vectors = vectors * math.sqrt(vectors.shape[-1]) + sinusoids(positions, vectors.shape[-1])
        elif self.recipe.scaled:
            vectors = vectors * math.sqrt(vectors.shape[-1])
        if self.positions is not None:
            vectors = vectors + self._position_vectors(self.positions, ids.shape[1], position_ids)
        if self.segments is not None:
            vectors = vectors + (self.segments.weight[0] if segment_ids is None else self.segments(segment_ids))
        if self.languages is not None:
            given = (side_ids or {}).get(LANGUAGES)
            vectors = vectors + (self.languages.weight[0] if given is None else self.languages(given))
        if self.tasks is not None:
            given = (side_ids or {}).get(TASKS)
            vectors = vectors + (self.tasks.weight[0] if given is None else self.tasks(given))
        if self.norm is not None:
            vectors = self.norm(vectors)
        vectors = (drop_steps if self.recipe.variational_dropout else drop)(vectors, self.recipe.dropout, rng)
        return vectors if self.project is None else self.project(vectors)

    def queries(self, count: int, rng: DropoutRng | None = None) -> Tensor:
        """(count, encoder width): the input of positions whose token is to be predicted."""
        if self.query is None:
            raise RecipeError("the network has no vector for positions without a token: set embedding.query=true.")
        return drop(self.query.repeat(count, 1), self.recipe.dropout, rng)

    def _position_vectors(self, table: nn.Embedding, length: int, position_ids: Tensor | None) -> Tensor:
        needed = length if position_ids is None else int(position_ids.max()) + 1
        if needed > table.num_embeddings:
            raise AbilityError(
                f"the network has {table.num_embeddings} positions, not {needed}: give shorter texts, "
                f"or train with sequence.length={needed}."
            )
        vectors: Tensor = table.weight[:length] if position_ids is None else table(position_ids)
        return vectors

    def flops(self) -> float:
        """Floating-point operations per token."""
        characters = self.tokens.flops() if isinstance(self.tokens, CharacterTable) else 0.0
        return characters + (0.0 if self.project is None else 2.0 * self.project.weight.numel())


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos of the same (Vaswani et al. 2017).

    >>> sinusoids(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    rates = torch.exp(torch.arange(0, width, 2, device=positions.device) * (-math.log(10_000.0) / width))
    angles = positions[..., None].to(torch.float32) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]


def _vector(width: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(width).normal_(std=INIT_STD))


def _table(count: int, width: int, std: float = INIT_STD) -> nn.Embedding:
    made = nn.Embedding(count, width)
    nn.init.normal_(made.weight, std=std)
    return made
