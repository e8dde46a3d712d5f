"""A small network of every neural recipe, and what its hidden states may depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.recipes.nets import resize
from firth.recipes.table import RECIPES

NETS = {name: entry.make() for name, entry in RECIPES.items() if entry.family == "nets"}
LENGTH = 12


def vocabulary_of(tokens: int) -> Vocabulary:
    return Vocabulary([f"w{number}" for number in range(tokens)], np.arange(tokens, 0, -1))


VOCABULARY = vocabulary_of(40)


def small(name: str, tokens: int = len(VOCABULARY), length: int = LENGTH) -> NetRecipe:
    """The recipe with small widths and without dropout."""
    recipe = resize(NETS[name], "tiny")
    direct = recipe.output.kind == "direct"
    width = tokens if direct else 16
    ffn_width = 24 if recipe.encoder.ffn_width else 0
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "weight_drop": 0.0}
    encoder = replace(recipe.encoder, width=width, ffn_width=ffn_width, heads=recipe.encoder.heads, **no_dropout)
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=width, dropout=0.0),
        encoder=encoder,
        decoder=None
        if recipe.decoder is None
        else replace(recipe.decoder, width=width, ffn_width=ffn_width, **no_dropout),
        sequence=replace(recipe.sequence, length=length),
        entities=replace(recipe.entities, width=8, heads=2, count=3) if recipe.entities.width else recipe.entities,
    )


def build(name: str) -> Network:
    return build_network(small(name), VOCABULARY, seed=1).double().eval()


def random_ids(sequences: int = 2, length: int = LENGTH) -> Tensor:
    return torch.from_numpy(np.random.default_rng(3).integers(5, 40, (sequences, length)))


def make_batch(ids: Tensor, sequence_ids: Tensor | None = None) -> Batch:
    position_ids = None
    if sequence_ids is not None:
        position_ids = torch.cat([torch.arange(LENGTH // 2)] * 2).expand_as(ids)
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids=sequence_ids, position_ids=position_ids)


def sees(encoder: EncoderRecipe, visibility: str, length: int) -> Tensor:
    """(state, token): what a hidden state depends on in a sequence, by the definition of each kind of encoder."""
    state, token = torch.arange(length)[:, None], torch.arange(length)[None]
    towards = {"causal": token <= state, "anticausal": token >= state, "bidirectional": token >= 0}[visibility]
    # The token itself is one of the `context` tokens unless these are on both sides of it.
    window = encoder.context if visibility == "bidirectional" else encoder.context - 1
    reach = {"none": 0, "window": window, "bilinear": window}.get(encoder.kind, length)
    return towards & ((state - token).abs() <= reach)


def dependence(states: Tensor, inputs: Tensor) -> Tensor:
    """(batch, length, batch, inputs): whether each state (batch, length, width) has a gradient to each input vector."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(states.shape[-1], generator=generator, dtype=states.dtype)  # plain sums may be constant
    found = []
    for one in (states @ weights).flatten():
        (gradient,) = torch.autograd.grad(one, inputs, retain_graph=True, allow_unused=True)
        found.append(torch.zeros(inputs.shape[:-1], dtype=torch.bool) if gradient is None else gradient.any(-1))
    return torch.stack(found).view(*states.shape[:-1], *inputs.shape[:-1])
