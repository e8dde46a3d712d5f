"""Backbones of task models: networks, or word vectors as a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from firth.errors import AbilityError, RecipeError
from firth.lm.language_model import UnknownWordModel
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe, SequenceRecipe
from firth.nets.restore import load_tensors, make_model
from firth.nets.with_ngrams import without_ngrams
from firth.objectives.clm import CausalLM
from firth.tasks.generate import EncoderDecoderTask, is_masked_lm
from firth.tasks.many import ManyModel
from firth.tasks.task import Task, TaskModel
from firth.text.corpus import Corpus
from firth.tokens.tokenizer import FIRST_WORD, UNK, Tokenizer
from firth.tokens.train import extend_tokenizer
from firth.vectors.model import VectorModel

_SPREAD = 0.1  # standard deviation of the vectors of words without one


def backbone(model: Any) -> NetModel:
    """A neural model itself, the network of a fine-tuned model, or word vectors as an embedding network."""
    if isinstance(model, NetModel):
        return without_ngrams(model) if model.recipe.decoder is None else encoder_network(model)
    if isinstance(model, TaskModel | ManyModel):
        return model.base
    if isinstance(model, VectorModel):
        return embedding_network(model)
    raise AbilityError(
        f"a {type(model).__name__} has neither hidden states nor vectors: fine-tune a network or word vectors, or "
        "train fasttext-classifier on the labelled texts."
    )


def earlier_tasks(model: Any, name: str | None = None) -> list[Task]:
    """What a model was fine-tuned for already; of several tasks the one of that name, if there is one."""
    if isinstance(model, ManyModel):
        return [one.head for one in ([model.tasks[name]] if name in model.tasks else model.tasks.values())]
    return [model.head] if isinstance(model, TaskModel) else []


def earlier_decoder(model: Any) -> NetModel | None:
    """The decoder of a model that was fine-tuned to generate with one."""
    if not (isinstance(model, TaskModel) and isinstance(model.head, EncoderDecoderTask)):
        return None
    network, base = model.head.decoder, model.base
    return make_model(network.recipe, network, base.tokenizer, base.layout, base.unknown_word_model)


def encoder_network(model: NetModel) -> NetModel:
    """The encoder of a model without its decoder."""
    sequence = replace(model.recipe.sequence, format="sentences")
    recipe = replace(model.recipe, decoder=None, objectives=(), sequence=sequence)
    network = build_network(recipe, model.network.vocabulary, 0, skip_init=True)
    tensors = own_tensors(model.network).items()
    load_tensors(network, {name: one.detach().numpy() for name, one in tensors if not name.startswith("decoder")})
    return make_model(recipe, network, model.tokenizer, model.layout, model.unknown_word_model)


def own_decoder(model: Any) -> NetModel | None:
    """The decoder of a model that has one, as a causal network that attends to the states of its encoder."""
    if not isinstance(model, NetModel) or model.recipe.decoder is None:
        return None
    recipe = replace(
        model.recipe,
        embedding=replace(model.recipe.embedding, own_decoder=False),
        encoder=replace(model.recipe.decoder, cross_width=model.recipe.width),
        decoder=None,
        visibility="causal",
        objectives=(CausalLM(),),
        sequence=replace(model.recipe.sequence, format="sentences"),
    )
    network = build_network(recipe, model.network.vocabulary, 0, skip_init=True)
    given = {name: one.detach().numpy() for name, one in own_tensors(model.network).items()}
    arrays = {name: one for name, one in given.items() if name.startswith(("embedding.", "output."))}
    for ours, theirs in (("embedding.", "decoder_embedding."), ("encoders.0.", "decoder.")):
        arrays |= {ours + key.removeprefix(theirs): one for key, one in given.items() if key.startswith(theirs)}
    load_tensors(network, arrays)
    return make_model(recipe, network, model.tokenizer, model.layout, model.unknown_word_model)


def embedding_network(model: VectorModel) -> NetModel:
    """Word vectors as a network without layers: a hidden state is the vector of its word."""
    tokens = model.tokenizer.vocabulary
    width = model.vectors.shape[1]
    recipe = NetRecipe(
        tokenizer=model.tokenizer.recipe,
        embedding=EmbeddingRecipe(width=width),
        encoder=EncoderRecipe(
            kind="none", layers=0, width=width, ffn_width=0, heads=1, norm="none", dropout=0.0, attention_dropout=0.0
        ),
        output=OutputRecipe(kind="tied"),
        sequence=SequenceRecipe(length=512),
    )
    counts = np.ones(len(tokens), dtype=np.int64) if model.counts is None else model.counts[: len(tokens)]
    network = build_network(recipe, Vocabulary(tokens, np.maximum(counts, 1)), 0)
    vectors = torch.from_numpy(np.array(model.vectors[: len(tokens)], dtype=np.float32))
    missing = ~vectors.any(1)
    generator = torch.Generator().manual_seed(0)
    vectors[missing] = _SPREAD * torch.randn(int(missing.sum()), width, generator=generator)
    with torch.no_grad():
        network.embedding.table.copy_(vectors)
    return make_model(recipe, network, model.tokenizer, model.layout, UnknownWordModel.train([]))


def causal_network(model: NetModel) -> NetModel:
    """The network if it can generate as it was pre-trained, or else its parameters in a causal network."""
    recipe = model.recipe
    if recipe.encoder.kind == "none" or recipe.visibility == "forward+backward":
        raise AbilityError("only a unidirectional network or a Transformer can generate: fine-tune a gpt or a bert.")
    if recipe.output.kind == "none":
        raise AbilityError("a network without an output layer cannot generate: fine-tune a gpt or a bert.")
    if "next" in recipe.predicts or is_masked_lm(recipe):
        return model
    changed = replace(
        recipe,
        encoder=replace(recipe.encoder, init="random"),
        visibility="causal",
        objectives=(CausalLM(),),
        sequence=replace(recipe.sequence, format="sentences", reversed=False),
        memory=replace(recipe.memory, length=0, same_length=False),
    )
    return with_recipe(model, changed)


def decoder_network(model: NetModel, encoder: NetModel) -> NetModel:
    """The parameters of a model in a causal network that can attend to the hidden states of `encoder`."""
    if model.recipe.encoder.kind != "transformer":
        raise AbilityError("only a Transformer can attend to another network: give a --decoder such as gpt.")
    if list(model.tokenizer.vocabulary) != list(encoder.tokenizer.vocabulary):
        raise RecipeError(
            "the decoder has other tokens than the encoder: train it with --tokenizer and the model's folder."
        )
    return causal_network(model)


def with_recipe(model: NetModel, recipe: NetRecipe) -> NetModel:
    """The model with another recipe that has the same parameters: another dropout, say."""
    if recipe == model.recipe:
        return model
    network = build_network(recipe, model.network.vocabulary, 0, skip_init=True)
    load_tensors(network, {name: tensor.detach().numpy() for name, tensor in own_tensors(model.network).items()})
    return make_model(recipe, network, model.tokenizer, model.layout, model.unknown_word_model, model.heads)


_OUTPUTS = ("full", "tied")  # layers with one row per token


def grow_vocabulary(model: NetModel, corpus: Corpus, size: int, threads: int | None = None) -> NetModel:
    """The model with the tokens of a domain added, up to `size` tokens; predictions of old tokens hardly change."""
    if model.recipe.output.kind not in _OUTPUTS or model.recipe.embedding.characters:
        raise AbilityError(
            f"the vocabulary of a network with output.kind={model.recipe.output.kind} cannot grow: adapt it as it is."
        )
    if any(name.endswith("embedding.tokens.weight") for name in model.heads):
        raise AbilityError("the vocabularies of two networks cannot grow by text: add words with adapt --expand.")
    tokenizer = extend_tokenizer(model.tokenizer, corpus, size, threads)
    pieces = [_pieces(model.tokenizer, token) for token in tokenizer.vocabulary[len(model.tokenizer) :]]
    counts = np.concatenate([model.counts, np.ones(len(pieces), dtype=np.int64)])
    recipe = replace(model.recipe, tokenizer=tokenizer.recipe)
    network = build_network(recipe, Vocabulary(tokenizer.vocabulary, counts), 0)
    arrays = {name: tensor.detach().numpy() for name, tensor in own_tensors(model.network).items()}
    for name, tensor in own_tensors(network).items():
        old = arrays[name]
        if tuple(tensor.shape) != old.shape:
            arrays[name] = np.concatenate([old, np.stack([old[ids].mean(0) for ids in pieces])]).astype(old.dtype)
    load_tensors(network, arrays)
    return make_model(recipe, network, tokenizer, model.layout, model.unknown_word_model, model.heads)


def _pieces(tokenizer: Tokenizer, token: str) -> list[int]:
    """The ids that a new token was split into before."""
    text = token.removeprefix("##").replace("▁", " ").replace("Ġ", " ").strip() or token
    ids = [one for one in tokenizer.encode(text).ids if one >= FIRST_WORD]
    return ids or [UNK]
