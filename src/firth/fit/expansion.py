"""Vocabulary expansion: vectors of unknown words by a linear map from other word vectors (Kiros et al. 2015)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from firth.artifact.folder import Artifact
from firth.artifact.models import load, save
from firth.errors import AbilityError
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import Vocabulary, build_network
from firth.nets.restore import load_tensors, make_model
from firth.progress import note
from firth.tokens.tokenizer import FIRST_WORD
from firth.tokens.train import add_words
from firth.vectors.model import VectorModel

Floats = npt.NDArray[np.float32]
_OUTPUTS = ("full", "tied", "none")  # layers with one row per token, or none
_TABLE, _WEIGHT, _BIAS = "embedding.tokens.weight", "output.weight", "output.bias"


def adapt_by_expansion(artifact: Artifact, old: Any, vectors: str | Path, out: Path) -> None:
    """Save a model whose vocabulary is expanded by the words of a saved model of word vectors."""
    started = time.monotonic()
    given = load(vectors)
    if not isinstance(given, VectorModel):
        raise AbilityError(f"{vectors} has no word vectors: give those of skipgram, glove or an import, say.")
    if not isinstance(old, NetModel):
        raise AbilityError(f"{artifact.manifest.name} is no network: expand one such as skip-thoughts.")
    model, metrics = expand_vocabulary(old, given)
    note(f"{metrics['added']:,} words were added by a map from {metrics['shared']:,} common words")
    manifest = artifact.manifest
    save(
        out,
        model,
        name=manifest.name,
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": 0}},
        corpus=manifest.corpus,
        seed=manifest.seed,
        metrics=manifest.metrics | metrics,
    )


def expand_vocabulary(model: NetModel, vectors: VectorModel) -> tuple[NetModel, dict[str, float]]:
    """The model with all words of `vectors`, and the number of common and added words and the fit of the map.

    Token vectors of new words are A x + b, where x is the word's vector in `vectors`; A and b minimise the squared
    error for the common words. Each table has a map of its own. An output layer hardly predicts new words.
    """
    if model.recipe.tokenizer.model != "words" or model.recipe.embedding.characters:
        raise AbilityError("only a network of whole words has unknown ones: train one with --tokenizer words.")
    if model.recipe.output.kind not in _OUTPUTS:
        raise AbilityError(
            f"the words of output.kind={model.recipe.output.kind} are fixed: train with output.kind=full."
        )
    rows, common, new = _match(model, vectors)
    dimension = vectors.vectors.shape[1]
    if len(common) <= dimension:
        raise AbilityError(
            f"the model and the vectors have {len(common)} words in common, and a map from {dimension} dimensions "
            "needs more: give vectors of the same language, with fewer dimensions or more words."
        )
    if not new:
        raise AbilityError("the model has all words of the vectors: there is nothing to add.")
    inputs = np.column_stack([vectors.vectors, np.ones(len(vectors.vectors), dtype=np.float32)]).astype(np.float64)
    known, added = inputs[[rows[word] for word in common]], inputs[[rows[word] for word in new]]
    fits: list[float] = []

    def extended(name: str, tensor: torch.Tensor) -> npt.NDArray[Any]:
        old = tensor.detach().numpy()
        if name.endswith(_TABLE):
            targets = old[[model.rows[word] for word in common]]
            weights, *_ = np.linalg.lstsq(known, targets.astype(np.float64), rcond=None)
            fits.append(float(1 - np.var(targets - known @ weights) / max(float(np.var(targets)), 1e-30)))
            more = added @ weights
        elif name.endswith(_WEIGHT):
            more = np.zeros((len(new), *old.shape[1:]))
        else:
            more = np.full(len(new), old.min())
        return np.concatenate([old, more.astype(old.dtype)])

    changed = _with_rows(model, new, extended)
    return changed, {"shared": len(common), "added": len(new), "explained_variance": float(np.mean(fits))}


def _match(model: NetModel, vectors: VectorModel) -> tuple[dict[str, int], list[str], list[str]]:
    """The row of `vectors` of each word in the model's spelling; the words that both have, and new ones."""
    normalizer = model.tokenizer.backend.normalizer
    rows: dict[str, int] = {}
    for row, word in enumerate(vectors.words):
        if row >= FIRST_WORD:
            form = word if normalizer is None else str(normalizer.normalize_str(word))
            if form and not any(map(str.isspace, form)):
                rows.setdefault(form, row)  # of several spellings the most frequent
    common = [word for word in rows if word in model.rows]
    specials = set(model.words[:FIRST_WORD])
    return rows, common, [word for word in rows if word not in model.rows and word not in specials]


def _with_rows(model: NetModel, new: list[str], extended: Any) -> NetModel:
    """The model with new words; `extended` gives the tensors with a row for each word."""
    tokenizer = add_words(model.tokenizer, new)
    counts = np.concatenate([model.counts, np.ones(len(new), dtype=np.int64)])
    recipe = replace(model.recipe, tokenizer=tokenizer.recipe)
    network = build_network(recipe, Vocabulary(tokenizer.vocabulary, counts), 0, skip_init=True)
    grows = (_TABLE, _WEIGHT, _BIAS)
    arrays = {
        name: extended(name, tensor) if name.endswith(grows) else tensor.detach().numpy()
        for name, tensor in own_tensors(model.network).items()
    }
    load_tensors(network, arrays)
    seconds = {f"heads.{name}.second." for name in model.recipe.second_networks}
    heads = {
        name: torch.from_numpy(extended(name, tensor))
        if name.endswith(grows) and any(name.startswith(prefix) for prefix in seconds)
        else tensor
        for name, tensor in model.heads.items()
    }
    return make_model(recipe, network, tokenizer, model.layout, model.unknown_word_model, heads)
