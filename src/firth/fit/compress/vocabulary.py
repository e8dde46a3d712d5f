"""A network without the tokens that a text does not have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from firth.errors import AbilityError
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import Vocabulary, build_network
from firth.nets.restore import load_tensors, make_model
from firth.text.corpus import Corpus
from firth.tokens.build import open_store
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors.text import training_text

_MODELS = ("words", "chars", "wordpiece", "pieces")  # a text of kept tokens is split into the same ones
_OUTPUTS = ("full", "tied", "none")  # layers with one row per token, or none


def cut_vocabulary(model: NetModel, corpus: Corpus, min_count: int = 1, threads: int | None = None) -> NetModel:
    """The model with the tokens that occur in a text, all special ones and the characters that pieces are made of."""
    if model.recipe.output.kind not in _OUTPUTS or model.recipe.embedding.characters:
        raise AbilityError(
            f"the vocabulary of a network with output.kind={model.recipe.output.kind} cannot be cut: leave "
            "vocabulary=true out."
        )
    counts = training_text(open_store(corpus, model.tokenizer, threads), model.tokenizer).counts
    tokenizer, kept = cut_tokenizer(model.tokenizer, counts >= min_count)
    recipe = replace(model.recipe, tokenizer=tokenizer.recipe)
    network = build_network(recipe, Vocabulary(tokenizer.vocabulary, model.counts[kept]), 0, skip_init=True)
    arrays: dict[str, Any] = {name: tensor.detach().numpy() for name, tensor in own_tensors(model.network).items()}
    for name, tensor in own_tensors(network).items():
        if tuple(tensor.shape) != arrays[name].shape:
            arrays[name] = np.ascontiguousarray(arrays[name][kept])
    load_tensors(network, arrays)
    return make_model(recipe, network, tokenizer, model.layout, model.unknown_word_model, model.heads)


def cut_tokenizer(tokenizer: Tokenizer, used: np.typing.NDArray[np.bool_]) -> tuple[Tokenizer, list[int]]:
    """A tokenizer with the used tokens, the special ones and the characters of pieces, and their ids before."""
    if tokenizer.recipe.model not in _MODELS:
        raise AbilityError(
            f"the tokens of {tokenizer.recipe.model} are made of one another, so none can be removed: leave "
            "vocabulary=true out."
        )
    content = json.loads(tokenizer.backend.to_str())
    added = {one["content"]: one for one in content["added_tokens"]}
    names, has_pieces = tokenizer.vocabulary, tokenizer.recipe.model in ("wordpiece", "pieces")
    kept = [
        number
        for number, name in enumerate(names)
        if number < FIRST_WORD or used[number] or name in added or (has_pieces and _is_character(name))
    ]
    new = {names[number]: index for index, number in enumerate(kept)}
    for name, one in added.items():
        one["id"] = new[name]
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        content["model"]["vocab"] = {name: new[name] for name in names if name in new and name in vocabulary}
    else:
        by_name = dict(map(tuple, vocabulary))
        content["model"]["vocab"] = [[name, by_name[name]] for name in new if name in by_name]
    size = None if tokenizer.recipe.vocab_size is None else max(len(kept), 10)
    data = json.dumps(content, ensure_ascii=False, indent=1).encode()
    return Tokenizer(data, replace(tokenizer.recipe, vocab_size=size), tokenizer.dictionary), kept


def _is_character(token: str) -> bool:
    """Whether a token is one character, of which other words can be made.

    >>> _is_character("##a"), _is_character("▁"), _is_character("ab")
    (True, True, False)
    """
    return len(token.removeprefix("##").lstrip("▁")) <= 1
