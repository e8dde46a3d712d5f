"""Small networks of every kind with random weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from firth.fit.loop import TrainingModule
from firth.lm.language_model import UnknownWordModel
from firth.nets.model import NetModel
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.restore import make_model
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import resize
from firth.recipes.table import RECIPES
from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.samples import CHINESE, ENGLISH, small_recipe

NETS = [name for name, entry in RECIPES.items() if entry.family == "nets"]
CAUSAL = ["xu-bigram", "ffnn", "lbl", "hlbl", "cnn-lm", "rnn", "lstm", "sa-lstm", "gpt", "gpt2", "transformer-xl"]
MASKED = ["bert", "bert-wwm", "ernie", "roberta", "albert", "spanbert", "electra", "xlm"]
TEXTS = [*ENGLISH, *CHINESE]


@cache
def small_tokenizer(kind: str = "words", sentinels: int = 0) -> Tokenizer:
    """A tokenizer of a few sentences in two languages."""
    recipe = replace(small_recipe(kind), sentinels=sentinels)
    return train_tokenizer(recipe, read_corpus([[*ENGLISH, *CHINESE, *ENGLISH[:1]]]))


def small_net_recipe(name: str, tokens: int, length: int = 12) -> NetRecipe:
    """A recipe of small dimensions without dropout."""
    recipe = resize(RECIPES[name].make(), "tiny")  # type: ignore[arg-type]
    width = tokens if recipe.output.kind == "direct" else 16
    still = {"dropout": 0.0, "attention_dropout": 0.0, "weight_drop": 0.0}
    inner = 24 if recipe.encoder.ffn_width else 0
    encoder = replace(recipe.encoder, width=width, ffn_width=inner, **still)
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=width, dropout=0.0),
        encoder=encoder,
        decoder=None if recipe.decoder is None else replace(recipe.decoder, width=width, ffn_width=inner, **still),
        sequence=replace(recipe.sequence, length=length),
    )


def small_net(name: str, kind: str = "words", length: int = 12, **changes: Any) -> NetModel:
    """A model with random weights, large enough for probabilities to differ."""
    tokenizer = small_tokenizer(kind, 3 if RECIPES[name].make().tokenizer.sentinels else 0)  # type: ignore[union-attr]
    recipe = replace(small_net_recipe(name, len(tokenizer), length), tokenizer=tokenizer.recipe, **changes)
    counts = np.arange(len(tokenizer), 0, -1, dtype=np.int64)
    network = build_network(recipe, Vocabulary(tokenizer.vocabulary, counts), 1)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.5, generator=generator)
    heads = {}
    if recipe.second_networks:  # without which the model could not predict
        heads = TrainingModule(network, make_heads(recipe, network)).head_tensors()
    return make_model(recipe, network, tokenizer, "lines", UnknownWordModel.train(["cat", "dog"]), heads)
