"""Word vectors composed of character n-grams, so that unknown words have vectors too (Bojanowski et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.errors import ArtifactError
from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors import _subword_kernels as kernels
from firth.vectors.lookup import saved_matrix
from firth.vectors.model import VectorModel, saved_vectors
from firth.vectors.neighbours import Floats
from firth.vectors.recipe import ImportedRecipe, VectorRecipe, Word2vecRecipe
from firth.vectors.text import bounds_of

_END = "</s>"  # fastText's end of line, which has no n-grams
_BLOCK = 1 << 14  # words composed at once


def ngram_buckets(
    words: Sequence[str], min_n: int, max_n: int, buckets: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The bounds of each word's n-grams, and the bucket of each n-gram.

    A word is padded with < and >. N-grams have `min_n` to `max_n` characters; their bucket is fastText's: FNV-1a of
    their signed bytes, modulo `buckets`.

    >>> starts, rows = ngram_buckets(["cat", "a", "</s>"], 3, 4, 1000)  # <ca <cat cat cat> at>, <a>, nothing
    >>> starts.tolist(), rows.tolist()
    ([0, 5, 6, 6], [747, 973, 31, 995, 106, 600])
    """
    padded = [f"<{word}>".encode(errors="surrogatepass") for word in words]
    bounds = bounds_of([len(word) for word in padded])
    lengths = np.fromiter((len(word) + 2 if word != _END else 0 for word in words), np.int64, len(words))
    counts = np.zeros(len(words), dtype=np.int64)
    for n in range(max(min_n, 1), max_n + 1):
        counts += np.maximum(lengths - n + 1 if n > 1 else lengths - 2, 0)
    starts = bounds_of(counts)
    rows = np.empty(int(starts[-1]), dtype=np.int32)
    data = np.frombuffer(b"".join(padded), dtype=np.uint8)
    kernels.hash_ngrams(data, bounds, starts, min_n, max_n, np.uint64(max(buckets, 1)), rows)
    return starts, rows


def compose_vectors(words: Sequence[str], own: Floats, ngrams: Floats, min_n: int, max_n: int) -> Floats:
    """The mean of each word's own row and the rows of its n-grams; zeros for special tokens."""
    vectors = np.zeros_like(own)

    def fill(begin: int) -> None:
        part = slice(begin, min(begin + _BLOCK, len(words)))
        starts, rows = ngram_buckets(words[part], min_n, max_n, len(ngrams))
        kernels.mean_rows(own[part], ngrams, starts, rows, vectors[part])

    with ThreadPoolExecutor(cores()) as executor:
        list(executor.map(fill, range(FIRST_WORD, len(words), _BLOCK)))
    return vectors


class SubwordModel(VectorModel):
    """Words as means of their own row and the rows of their character n-grams, which also make up unknown words.

    `vectors` are the composed vectors, `own` the rows of whole words, `ngrams` the rows of n-gram buckets.
    """

    def __init__(self, *arguments: Any, own: Floats, ngrams: Floats, **others: Any) -> None:
        """`arguments` and `others` are those of `VectorModel`."""
        super().__init__(*arguments, **others)
        self.own, self.ngrams = own, ngrams

    @classmethod
    def of(
        cls, recipe: Any, tokenizer: Tokenizer, layout: Layout, *, own: Floats, ngrams: Floats, **others: Any
    ) -> SubwordModel:
        """The model of trained rows; its word vectors are composed here."""
        own, ngrams = np.ascontiguousarray(own), np.ascontiguousarray(ngrams)
        model = cls(recipe, tokenizer, layout, own, own=own, ngrams=ngrams, **others)
        model.vectors = compose_vectors(model.words, own, ngrams, recipe.min_n, recipe.max_n)
        return model

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {"own": self.own, "ngrams": self.ngrams}

    def oov_vector(self, word: str) -> Floats | None:
        """The mean of the rows of a word's n-grams; None for a word too short to have any."""
        _, rows = ngram_buckets([word], self.recipe.min_n, self.recipe.max_n, len(self.ngrams))
        return np.asarray(self.ngrams[rows].mean(axis=0, dtype=np.float32)) if rows.size else None


def restore_subwords(
    recipe: VectorRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> VectorModel:
    """The model of a saved artifact's arrays, with character n-grams if the recipe has any."""
    saved = saved_vectors(arrays, tokenizer)
    if not isinstance(recipe, Word2vecRecipe | ImportedRecipe) or not recipe.max_n:
        return VectorModel(recipe, tokenizer, layout, **saved)
    if not isinstance(recipe.buckets, int):
        raise ArtifactError("the recipe does not give the number of n-gram buckets: train the model again.")
    own, ngrams = saved_matrix(arrays, "own", len(saved["words"])), saved_matrix(arrays, "ngrams", recipe.buckets)
    if not saved["vectors"].shape[1] == own.shape[1] == ngrams.shape[1]:
        raise ArtifactError("the arrays 'vectors', 'own' and 'ngrams' differ in width: train the model again.")
    return SubwordModel(recipe, tokenizer, layout, **saved, own=own, ngrams=ngrams)
