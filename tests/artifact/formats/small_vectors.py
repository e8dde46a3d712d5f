"""Small models of word vectors, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.words import words_tokenizer
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.model import VectorModel
from firth.vectors.recipe import ImportedRecipe
from firth.vectors.subwords import SubwordModel

SPECIALS = TokenizerRecipe(model="words").specials
WORDS = ["the", "cat", "naïve", "我们", "don't", "2010", "é"]
TEXT = """\
3 2
the 0.5 -1
cat 1e-3 2.25
dog 3 4
"""


def write(folder: Path, data: str | bytes, name: str = "x.vec") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def below_specials(rows: Any) -> npt.NDArray[np.float32]:
    """The rows, below those of the special tokens."""
    rows = np.asarray(rows, dtype=np.float32)
    return np.concatenate([np.zeros((len(SPECIALS), rows.shape[1]), dtype=np.float32), rows])


def plain_model(rows: Any = None, words: list[str] = WORDS) -> VectorModel:
    """A model of words alone."""
    if rows is None:
        rows = np.random.default_rng(1).normal(size=(len(words), 4))
    tokenizer = words_tokenizer([*SPECIALS, *words])
    recipe = ImportedRecipe(tokenizer=tokenizer.recipe)
    return VectorModel(recipe, tokenizer, "lines", below_specials(rows))


def subword_model(words: list[str] = WORDS, buckets: int = 50) -> SubwordModel:
    """A model of words made of n-grams."""
    random = np.random.default_rng(2)
    tokenizer = words_tokenizer([*SPECIALS, *words])
    recipe = ImportedRecipe(tokenizer=tokenizer.recipe, source="fasttext", min_n=2, max_n=4, buckets=buckets)
    own = below_specials(random.normal(size=(len(words), 4)))
    ngrams = random.normal(size=(buckets, 4)).astype(np.float32)
    counts = np.concatenate([np.zeros(len(SPECIALS), dtype=np.int64), np.arange(len(words), 0, -1)])
    outputs = below_specials(random.normal(size=(len(words), 4)))
    return SubwordModel.of(recipe, tokenizer, "lines", own=own, ngrams=ngrams, counts=counts, outputs=outputs)
