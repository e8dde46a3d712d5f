"""N-gram models to ARPA files and back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import models

from firth.artifact.formats.arpa import Arpa, read_arpa, write_arpa
from firth.artifact.models import save
from firth.counts.ngram import NgramModel, NgramRecipe, falls_flat
from firth.errors import AbilityError
from firth.files import digest_file
from firth.tokens.pipeline import add_specials, make_backend
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.spelling import Spelling
from firth.tokens.tokenizer import MASK, UNK, Tokenizer


def export_arpa(model: Any, path: Path) -> dict[str, Any]:
    """Writes an n-gram model that backs off as an ARPA file."""
    if not isinstance(model, NgramModel):
        raise AbilityError("ARPA holds n-gram models and nothing else: export a model such as mkn5.")
    if model.trie.order > 1 and (falls_flat(model.recipe) or model.steps.steps.size):
        raise AbilityError(
            f"ARPA cannot hold this {model.recipe.smoothing} model, which does not ask the shorter history for words "
            "that it has not seen: train with another smoothing, such as witten-bell."
        )
    sizes = write_arpa(path, model.trie, _logarithms(model), model.bow, model.tokenizer.vocabulary)
    return {"order": len(sizes), "ngrams": sizes, "vocabulary": sizes[0]}


def _logarithms(model: NgramModel) -> npt.NDArray[Any]:
    """The log-probability of each node, looked up in the book of its level where they are kept as bytes."""
    if not model.books.size:
        return model.logp
    levels = [model.trie.level(n) for n in range(1, model.trie.order + 1)]
    return np.concatenate([book[model.logp[level]] for book, level in zip(model.books, levels, strict=True)])


def import_arpa(path: Path, out: Path) -> dict[str, Any]:
    """Makes an artifact of an ARPA file; its words are those of text with spaces between them."""
    started = time.monotonic()
    arpa = read_arpa(path)
    model = model_of(arpa)
    save(
        out,
        model,
        name="imported",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started}},
        corpus={"layout": model.layout, "imported": path.name, "digest": digest_file(path)},
        seed=0,
        metrics={"ngrams": arpa.sizes},
    )
    return {"order": arpa.trie.order, "ngrams": arpa.sizes, "vocabulary": arpa.sizes[0]}


def model_of(arpa: Arpa) -> NgramModel:
    """The model of an ARPA file, over a tokenizer with its words."""
    tokenizer = words_tokenizer(arpa.vocabulary)
    recipe = NgramRecipe(
        tokenizer=tokenizer.recipe,
        order=arpa.trie.order,
        smoothing="imported",
        vocabulary="open" if arpa.logp[UNK] > -np.inf else "closed",
        precision="float32",
    )
    spelling = Spelling.train(arpa.vocabulary[MASK + 1 :])
    return NgramModel(recipe, tokenizer, "lines", arpa.trie, arpa.logp, arpa.bow, spelling)


def words_tokenizer(vocabulary: list[str]) -> Tokenizer:
    """A tokenizer whose tokens are the given words, special ones first, and whose text has spaces between them.

    >>> tokenizer = words_tokenizer(["<pad>", "<unk>", "<s>", "</s>", "<mask>", "don't", "stop,"])
    >>> tokenizer.encode("don't stop, now").ids
    [5, 6, 1]
    """
    recipe = TokenizerRecipe(model="words", split="space", normalise="none", segmenter="space")
    ids = {word: number for number, word in enumerate(vocabulary)}
    backend = make_backend(models.WordLevel(ids, unk_token=recipe.specials[UNK]), recipe)
    add_specials(backend, recipe)
    data = json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=1) + "\n"
    return Tokenizer(data.encode(), recipe)
