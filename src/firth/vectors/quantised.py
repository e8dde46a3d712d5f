"""QuantisedModel: word vectors that are saved in few bits, and computed with as numbers again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import AbilityError
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.kmeans import find_centroids, nearest_centroids
from firth.vectors.lookup import saved_counts, saved_vector, wrong_array
from firth.vectors.model import VectorModel
from firth.vectors.neighbours import Floats
from firth.vectors.phrases import saved_phrases
from firth.vectors.recipe import QuantisedRecipe

_CODES = 256
_SAMPLE = 50_000  # vectors that k-means is run on


class QuantisedModel(VectorModel):
    """Word vectors with their codes.

    With 8 bits, a row is a whole number from -127 to 127 for each dimension times its scale. With product quantisation
    it is a row of each of several codebooks, times its norm.
    """

    def __init__(
        self,
        recipe: QuantisedRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        *,
        codes: npt.NDArray[Any],
        scales: Floats,
        codebooks: Floats | None = None,
        **others: Any,
    ) -> None:
        """`others` are those of `VectorModel`."""
        super().__init__(recipe, tokenizer, layout, decode(codes, scales, codebooks), **others)
        self.codes, self.scales, self.codebooks = codes, scales, codebooks

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        found = {name: array for name, array in super().arrays().items() if name not in ("vectors", "outputs")}
        found |= {"codes": self.codes, "scales": self.scales}
        return found if self.codebooks is None else found | {"codebooks": self.codebooks}


def decode(codes: npt.NDArray[Any], scales: Floats, codebooks: Floats | None) -> Floats:
    """(words, dimension): the vectors of codes."""
    if codebooks is None:
        return np.asarray(codes.astype(np.float32) * scales[:, None])
    rows = [book[codes[:, part]] for part, book in enumerate(codebooks)]
    return np.asarray(np.concatenate(rows, axis=1) * scales[:, None], dtype=np.float32)


def quantise_linear(vectors: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Codes of 8 bits and the scale of each row: the largest magnitude of a row is 127.

    >>> codes, scales = quantise_linear(np.array([[1.0, -2.0], [0.0, 0.0]], dtype=np.float32))
    >>> codes.tolist(), [round(float(one), 4) for one in scales]
    ([[64, -127], [0, 0]], [0.0157, 0.0])
    """
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(127)
    codes = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None])
    return codes.astype(np.int8), scales.astype(np.float32)


def quantise_product(vectors: Floats, parts: int, seed: int = 0) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
    """Codes (words, parts), norms, and codebooks (parts, 256, dimension / parts) found by k-means over unit vectors."""
    dimension = vectors.shape[1]
    if parts < 1 or dimension % parts:
        divisors = [one for one in range(1, dimension + 1) if dimension % one == 0]
        near = min(divisors, key=lambda one: abs(one - parts))
        raise AbilityError(f"parts={parts} do not divide {dimension} dimensions: set parts={near}.")
    norms = np.linalg.norm(vectors, axis=1).astype(np.float32)
    units = (vectors / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)
    rng = np.random.default_rng(seed)
    used = np.flatnonzero(norms > 0)
    sample = units[rng.permutation(used)[:_SAMPLE]] if used.size else units[:1]
    width = dimension // parts
    codes, books = np.zeros((len(vectors), parts), dtype=np.uint8), np.zeros((parts, _CODES, width), np.float32)
    for part in range(parts):
        columns = slice(part * width, (part + 1) * width)
        books[part] = find_centroids(np.ascontiguousarray(sample[:, columns]), _CODES, rng)
        codes[:, part] = nearest_centroids(units[:, columns], books[part])
    return codes, norms, books


def restore_quantised(
    recipe: QuantisedRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> QuantisedModel:
    """The model of a saved artifact's arrays."""
    phrases, words = saved_phrases(arrays, tokenizer)
    codes = arrays.get("codes")
    scales = saved_vector(arrays, "scales", np.float32, len(words))
    wanted = np.uint8 if recipe.parts else np.int8
    if codes is None or codes.dtype != wanted or codes.ndim != 2 or len(codes) != len(words) or not codes.size:
        raise wrong_array("codes")
    books = None
    if recipe.parts:
        books = arrays.get("codebooks")
        if books is None or books.dtype != np.float32 or books.ndim != 3 or books.shape[:2] != (recipe.parts, _CODES):
            raise wrong_array("codebooks")
        if codes.shape[1] != recipe.parts:
            raise wrong_array("codes")
    counts = saved_counts(arrays, "counts", len(words)) if "counts" in arrays else None
    others: dict[str, Any] = {"counts": counts, "words": words, "phrases": phrases}
    return QuantisedModel(recipe, tokenizer, layout, codes=codes, scales=scales, codebooks=books, **others)
