"""Growth: a network with more tokens than it was trained with, each beginning as the mean of what it was cut into."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firth.errors import AbilityError
from firth.nets.model import NetModel, load_tensors, make_model, own_tensors
from firth.nets.network import Vocabulary, build_network
from firth.text.corpus import Corpus
from firth.tokens.extend import extend_tokenizer
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import UNK, Tokenizer

_LAYERS = ("full", "tied")  # whose rows are tokens, one by one


def grow(model: NetModel, corpus: Corpus, size: int, threads: int | None = None) -> NetModel:
    """The model with up to `size` tokens, those of a domain added; what it says of old tokens hardly changes."""
    if model.recipe.output.kind not in _LAYERS or model.recipe.embedding.characters:
        raise AbilityError(
            f"the vocabulary of a network with output.kind={model.recipe.output.kind} cannot grow: adapt it as it is."
        )
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
    return make_model(recipe, network, tokenizer, model.layout, model.spelling, model.heads)


def _pieces(tokenizer: Tokenizer, token: str) -> list[int]:
    """What a new token was cut into before it was one."""
    text = token.removeprefix("##").replace("▁", " ").replace("Ġ", " ").strip() or token
    ids = [one for one in tokenizer.encode(text).ids if one >= FIRST_WORD]
    return ids or [UNK]
