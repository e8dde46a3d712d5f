"""Words made of their character n-grams, so that words nobody has seen have vectors too (Bojanowski et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.errors import ArtifactError
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _subword_kernels as kernels
from firth.vectors.model import VectorModel, restore_vectors, saved_matrix
from firth.vectors.neighbours import Floats
from firth.vectors.text import FIRST_WORD

_END = "</s>"  # to fastText the end of a line, which has no n-grams
_BLOCK = 1 << 14  # words that are put together as one piece


def subword_rows(
    words: Sequence[str], min_n: int, max_n: int, buckets: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The buckets of each word's n-grams, and where those of each word begin, with the end after the last.

    A word stands between < and >, so that n-grams at its ends differ from those within it. N-grams have `min_n` to
    `max_n` characters; their bucket is fastText's: FNV-1a of their signed bytes, modulo `buckets`. The word itself is
    no n-gram of its own, but is one when it is short enough with its signs around it.

    >>> starts, rows = subword_rows(["cat", "a", "</s>"], 3, 4, 1000)  # <ca <cat cat cat> at>, <a>, nothing
    >>> starts.tolist(), rows.tolist()
    ([0, 5, 6, 6], [747, 973, 31, 995, 106, 600])
    """
    spelt = [f"<{word}>".encode(errors="surrogatepass") for word in words]
    bounds = _places([len(word) for word in spelt])
    characters = np.fromiter((len(word) + 2 if word != _END else 0 for word in words), np.int64, len(words))
    counts = np.zeros(len(words), dtype=np.int64)
    for n in range(max(min_n, 1), max_n + 1):
        counts += np.maximum(characters - n + 1 if n > 1 else characters - 2, 0)
    starts = _places(counts)
    rows = np.empty(int(starts[-1]), dtype=np.int32)
    data = np.frombuffer(b"".join(spelt), dtype=np.uint8)
    kernels.hash_ngrams(data, bounds, starts, min_n, max_n, np.uint64(max(buckets, 1)), rows)
    return starts, rows


def _places(lengths: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    places = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=places[1:])
    return places


def compose(words: Sequence[str], own: Floats, ngrams: Floats, min_n: int, max_n: int) -> Floats:
    """The vectors of words: means of their own rows and those of their n-grams; special tokens have none."""
    vectors = np.zeros_like(own)

    def fill(begin: int) -> None:
        part = slice(begin, min(begin + _BLOCK, len(words)))
        starts, rows = subword_rows(words[part], min_n, max_n, len(ngrams))
        kernels.mean_rows(own[part], ngrams, starts, rows, vectors[part])

    with ThreadPoolExecutor(cores()) as executor:
        list(executor.map(fill, range(FIRST_WORD, len(words), _BLOCK)))
    return vectors


class SubwordModel(VectorModel):
    """Words as means of their own rows and the rows of their character n-grams, which also make up unknown words.

    `vectors` are the words put together, `own` the rows that are theirs alone, `ngrams` those that n-grams share.
    """

    def __init__(
        self,
        recipe: Any,
        tokenizer: Tokenizer,
        layout: Layout,
        vectors: Floats,
        *,
        own: Floats,
        ngrams: Floats,
        **others: Any,
    ) -> None:
        """`others` are those of `VectorModel`."""
        super().__init__(recipe, tokenizer, layout, vectors, **others)
        self.own = own
        self.ngrams = ngrams

    @classmethod
    def of(
        cls, recipe: Any, tokenizer: Tokenizer, layout: Layout, *, own: Floats, ngrams: Floats, **others: Any
    ) -> SubwordModel:
        """The model of rows that were learnt: its vectors are put together here."""
        own, ngrams = np.ascontiguousarray(own), np.ascontiguousarray(ngrams)
        model = cls(recipe, tokenizer, layout, own, own=own, ngrams=ngrams, **others)
        model.vectors = compose(model.words, own, ngrams, recipe.min_n, recipe.max_n)
        return model

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        return super().arrays() | {"own": self.own, "ngrams": self.ngrams}

    def unknown(self, word: str) -> Floats | None:
        """The mean of the rows of a word's n-grams; None for a word that is too short to have any."""
        _, rows = subword_rows([word], self.recipe.min_n, self.recipe.max_n, len(self.ngrams))
        return np.asarray(self.ngrams[rows].mean(axis=0, dtype=np.float32)) if rows.size else None


def restore_subwords(recipe: Any, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> SubwordModel:
    """The model of a saved artifact's arrays."""
    plain = restore_vectors(recipe, arrays, tokenizer, layout)
    own = saved_matrix(arrays, "own", len(plain.words))
    ngrams = saved_matrix(arrays, "ngrams", recipe.buckets)
    if not plain.vectors.shape[1] == own.shape[1] == ngrams.shape[1]:
        raise ArtifactError("the arrays 'vectors', 'own' and 'ngrams' differ in width: train the model again.")
    others = {"counts": plain.counts, "outputs": plain.outputs, "words": plain.words, "phrases": plain.phrases}
    return SubwordModel(recipe, tokenizer, layout, plain.vectors, own=own, ngrams=ngrams, **others)
