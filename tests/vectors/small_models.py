"""Models of given vectors, and their artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from firth.artifact.models import save
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.tokens.train import tokenizer_from_words
from firth.vectors.model import VectorModel
from firth.vectors.recipe import Word2vecRecipe


def small_tokenizer(words: Sequence[str], lowercase: bool = True) -> Tokenizer:
    """A tokenizer with these words, the first one most frequent."""
    recipe = TokenizerRecipe(model="words", lowercase=lowercase, split="punctuation")
    return tokenizer_from_words(recipe, {word: len(words) - position for position, word in enumerate(words)})


def small_model(words: Sequence[str], vectors: Any, lowercase: bool = True, **options: Any) -> VectorModel:
    """A model of words and their vectors; special tokens have rows of zeros."""
    tokenizer = small_tokenizer(words, lowercase)
    assert tokenizer.vocabulary[FIRST_WORD:] == list(words)
    rows = np.asarray(vectors, dtype=np.float32)
    full = np.vstack([np.zeros((FIRST_WORD, rows.shape[1]), dtype=np.float32), rows])
    counts = np.concatenate([np.zeros(FIRST_WORD, dtype=np.int64), np.arange(len(words), 0, -1)])
    recipe = Word2vecRecipe(tokenizer=tokenizer.recipe, dimension=rows.shape[1])
    return VectorModel(recipe, tokenizer, "lines", full, counts=counts, **options)


def save_model(model: Any, folder: Path) -> Path:
    """The folder, with the model's artifact in it."""
    save(
        folder, model, name="test", recipe=model.recipe, budget={"asked": None, "spent": {"seconds": 0.0, "tokens": 0}},
        corpus={"layout": "lines"}, seed=0, metrics={},
    )  # fmt: skip
    return folder
