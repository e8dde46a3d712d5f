"""Backbones: whatever a model is, a network that reads its tokens, for a task to be put on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from firth.errors import AbilityError, RecipeError
from firth.nets.model import NetModel, load_tensors, make_model, own_tensors
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe, RowsRecipe
from firth.tasks.generate import finds_masks
from firth.tokens.spelling import Spelling
from firth.vectors.model import VectorModel

_SPREAD = 0.1  # of the vectors of words that have none


def backbone(model: Any) -> NetModel:
    """The network of a neural model, or one that looks up a table of vectors and nothing else."""
    if isinstance(model, NetModel):
        return model
    if isinstance(model, VectorModel):
        return table(model)
    raise AbilityError(
        f"a {type(model).__name__} has neither states nor vectors to build on: fine-tune a network or word vectors, or "
        "train fasttext-classifier on the labelled texts."
    )


def table(model: VectorModel) -> NetModel:
    """Word vectors as a network without a hidden layer: a state is the vector of its word."""
    tokens = model.tokenizer.vocabulary
    width = model.vectors.shape[1]
    recipe = NetRecipe(
        tokenizer=model.tokenizer.recipe,
        embedding=EmbeddingRecipe(width=width),
        encoder=EncoderRecipe(
            kind="none", layers=0, width=width, inner=0, heads=1, norm="none", dropout=0.0, attention_dropout=0.0
        ),
        output=OutputRecipe(kind="tied"),
        rows=RowsRecipe(length=512),
    )
    counts = np.ones(len(tokens), dtype=np.int64) if model.counts is None else model.counts[: len(tokens)]
    network = build_network(recipe, Vocabulary(tokens, np.maximum(counts, 1)), 0)
    vectors = torch.from_numpy(np.array(model.vectors[: len(tokens)], dtype=np.float32))
    silent = ~vectors.any(1)
    generator = torch.Generator().manual_seed(0)
    vectors[silent] = _SPREAD * torch.randn(int(silent.sum()), width, generator=generator)
    with torch.no_grad():
        network.embedding.table.copy_(vectors)
    return make_model(recipe, network, model.tokenizer, model.layout, Spelling.train([]))


def writer(model: NetModel) -> NetModel:
    """A network that writes as it has learnt to predict, or the same parameters made causal."""
    recipe = model.recipe
    if recipe.encoder.kind == "none" or recipe.visibility == "forward+backward":
        raise AbilityError(
            "only a network that reads in one direction, or is a Transformer, can write: fine-tune a gpt or a bert."
        )
    if "clm" in recipe.names or finds_masks(recipe):
        return model
    changed = replace(
        recipe,
        encoder=replace(recipe.encoder, start="random"),
        visibility="causal",
        objectives="clm",
        rows=replace(recipe.rows, format="sentences"),
    )
    return rebuilt(model, changed)


def decoder_of(model: NetModel, reader: NetModel) -> NetModel:
    """The same parameters in a network that writes, if it can be taught to look at the states of another, `reader`."""
    if model.recipe.encoder.kind != "transformer":
        raise AbilityError(
            "only a Transformer can look at what another network has read: give a --decoder such as gpt."
        )
    if list(model.tokenizer.vocabulary) != list(reader.tokenizer.vocabulary):
        raise RecipeError(
            "the decoder has other tokens than the model that reads: train it with --tokenizer and the model's folder."
        )
    return writer(model)


def rebuilt(model: NetModel, recipe: NetRecipe) -> NetModel:
    """The same parameters under another recipe, which must ask for just those: another dropout, say."""
    if recipe == model.recipe:
        return model
    network = build_network(recipe, model.network.vocabulary, 0, empty=True)
    load_tensors(network, {name: tensor.detach().numpy() for name, tensor in own_tensors(model.network).items()})
    return make_model(recipe, network, model.tokenizer, model.layout, model.spelling, model.heads)
