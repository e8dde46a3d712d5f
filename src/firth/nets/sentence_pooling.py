"""SentencePooler: one vector of the hidden states of a sentence."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.groups import pad_groups, pool
from firth.nets.linear import INIT_STD
from firth.nets.recipe import NetRecipe

_MASK = (1 << 32) - 1
_FACTORS = (2654435761, 73244475)  # odd, below 2 ** 32


class SentencePooler(nn.Module):
    """The states of the tokens of a sentence, without special tokens, as one vector: see `SentenceRecipe`.

    With bigrams, each pair of adjacent tokens has a vector, too, at a hash of their ids: the mean is that of all n
    tokens and n - 1 pairs. Feed-forward layers follow (Iyyer et al. 2015).
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        part = recipe.sentence
        self.pooling = part.pooling
        self.has_two_directions = recipe.directions == 2 or recipe.encoder.kind == "bilstm"
        self.bigrams = nn.Embedding(part.bigrams, recipe.width) if part.bigrams else None
        if self.bigrams is not None:
            nn.init.normal_(self.bigrams.weight, std=INIT_STD)
        self.width = part.width or recipe.width
        """Dimension of the vectors."""
        widths = [recipe.width] * part.layers + [self.width]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.activation = ACTIVATIONS[recipe.encoder.activation]

    def forward(self, states: Tensor, ids: Tensor, groups: Tensor, count: int) -> Tensor:
        """(count, width): the vectors of sentences, given the states (tokens, W) and ids of their tokens.

        `groups` has the sentence of each token, ascending; every sentence has a token.
        """
        vectors = self._pool(states, ids, groups, count)
        for number, layer in enumerate(self.layers):
            vectors = layer(vectors if not number else self.activation(vectors))
        return vectors

    def _pool(self, states: Tensor, ids: Tensor, groups: Tensor, count: int) -> Tensor:
        if self.pooling == "max":
            return pool(states, groups, count, "max")
        sizes = torch.bincount(groups, minlength=count)
        ends = sizes.cumsum(0)
        firsts, lasts = states[ends - sizes], states[ends - 1]
        if self.pooling == "first":
            return firsts
        if self.pooling == "ends" and self.has_two_directions:
            half = states.shape[-1] // 2
            return torch.cat([lasts[:, :half], firsts[:, half:]], -1)
        if self.pooling in ("last", "ends"):
            return lasts
        padded, _ = pad_groups(states, groups, count)
        total = padded.sum(1)
        if self.bigrams is not None:
            inside = groups[1:] == groups[:-1]
            pairs = pair_hashes(ids[:-1][inside], ids[1:][inside], self.bigrams.num_embeddings)
            total = total + pad_groups(self.bigrams(pairs), groups[1:][inside], count)[0].sum(1)
            sizes = 2 * sizes - 1
        divisors = sizes.to(total)
        return total / (divisors.sqrt() if self.pooling == "sqrt" else divisors)[:, None]

    def flops(self) -> float:
        """Floating-point operations of the layers for one sentence."""
        return sum(2.0 * one.weight.numel() for one in self.layers if isinstance(one, nn.Linear))


def pair_hashes(first: Tensor, second: Tensor, count: int) -> Tensor:
    """The hash of each pair of ids, below `count`.

    >>> pair_hashes(torch.tensor([5, 6, 5]), torch.tensor([6, 5, 6]), 1000).tolist()
    [895, 468, 895]
    """
    mixed = (first * _FACTORS[0] + second) & _MASK
    mixed = ((mixed ^ (mixed >> 16)) * _FACTORS[1]) & _MASK
    return (mixed ^ (mixed >> 16)) % count
