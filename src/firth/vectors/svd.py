"""Singular vectors of counts: latent semantic analysis, and positive pointwise mutual information.

A = U S V' has the words in its rows, and documents or words nearby in its columns. A word is its row of U S^power, of
which the largest singular values are kept. They are found by products with a random matrix (Halko et al. 2011): rows
are shared out to threads and the rest is done on one, so that any number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from firth.errors import ArtifactError, BudgetError, RecipeError
from firth.progress import progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _svd_kernels as kernels
from firth.vectors.bag import count_documents, count_words, weigh
from firth.vectors.cooccurrence import Cooccurrence, count_pairs, make_room
from firth.vectors.job import Job, Result
from firth.vectors.model import VectorModel, restore_vectors
from firth.vectors.recipe import SvdRecipe

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

_MORE = 32  # columns of the random matrix beyond those that are wanted
_ROUNDS = 6  # of products with the matrix and its transpose
_SMALL = 1e-5  # singular values below this share of the largest are rounding
_EXACT = 1e-4  # products of the columns of an orthonormal basis may differ so much from what they should be
_LIGHTEST = 1e-6  # weight of a word: not 0, because a document may have no other words
_BLOCK = 2048  # rows that a thread multiplies at a time


class Factors(NamedTuple):
    """The largest singular values of a matrix and their vectors, a column each."""

    left: Floats
    values: Floats
    right: Floats


def train_svd(recipe: SvdRecipe, job: Job) -> Result:
    """The singular vectors of the words of a text."""
    if job.tokens is not None or job.seconds is not None or job.flops is not None:
        raise BudgetError("singular vectors are made of all the text: leave --budget out and give less text instead.")
    return _train_windows(recipe, job) if recipe.matrix == "windows" else _train_documents(recipe, job)


def _train_windows(recipe: SvdRecipe, job: Job) -> Result:
    job.text.require(recipe.window)
    _require(recipe.dimension, int(np.count_nonzero(job.text.counts)), "different words")
    table = count_pairs(job.text, recipe.window, threads=job.threads)
    table.require_cells()
    matrix = ppmi(table, shift=recipe.shift, smoothing=recipe.smoothing)
    del table
    factors = find_factors(matrix, recipe.dimension, job)
    scale = factors.values**recipe.power
    model = VectorModel(
        recipe,
        job.tokenizer,
        job.layout,
        factors.left * scale,
        outputs=factors.right * scale,
        counts=job.text.counts,
        phrases=job.phrases,
    )
    return Result(model, job.text.total, _metrics(matrix, factors))


def _train_documents(recipe: SvdRecipe, job: Job) -> Result:
    text = job.text
    text.require(2)
    _require(recipe.dimension, int(np.count_nonzero(text.counts)), "different words")
    counts = sparse.vstack(list(count_documents(text)), format="csr")
    _require(recipe.dimension, counts.shape[0], "documents")
    weights = entropy_weights(counts) if recipe.weighting == "entropy" else idf_weights(counts)
    matrix = weigh(counts.log1p(), weights).T.tocsr()
    factors = find_factors(matrix, recipe.dimension, job)
    model = DocumentModel(
        recipe,
        job.tokenizer,
        job.layout,
        factors.left * factors.values**recipe.power,
        counts=text.counts,
        phrases=job.phrases,
        weights=weights,
        values=factors.values,
    )
    return Result(model, text.total, _metrics(matrix, factors))


class DocumentModel(VectorModel):
    """Latent semantic analysis: texts are embedded as if they had been a document of the matrix."""

    def __init__(self, *arguments: Any, weights: Doubles, values: Floats, **options: Any) -> None:
        """`weights` says how much each word counts; `values` are the singular values."""
        super().__init__(*arguments, **options)
        self.weights = weights
        self.values = values

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {"weights": self.weights, "values": self.values}

    def embed(self, texts: Sequence[str]) -> Floats:
        """Each text's weighted bag of words q, folded in: q U S^-1. Texts without a known word are zero."""
        ids, bounds = self.encode(texts)
        counts = count_words(ids.astype(np.int32), bounds, len(self.words))
        bags = weigh(counts.log1p(), self.weights)
        return np.asarray(bags @ self.vectors * self.values ** (-1.0 - self.recipe.power), dtype=np.float32)


def restore(recipe: SvdRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> VectorModel:
    """The model of a saved artifact."""
    plain = restore_vectors(recipe, arrays, tokenizer, layout)
    if recipe.matrix == "windows":
        return plain
    size, dimension = plain.vectors.shape
    weights, values = arrays.get("weights", np.zeros(0)), arrays.get("values", np.zeros(0))
    sound = weights.shape == (size,) and values.shape == (dimension,)
    if not sound or not np.all(np.isfinite(weights)) or not np.all(values > 0):
        raise ArtifactError("the weights of words or the singular values are damaged: train the model again.")
    rest = {"counts": plain.counts, "words": plain.words, "phrases": plain.phrases}
    return DocumentModel(recipe, tokenizer, layout, plain.vectors, weights=weights, values=values, **rest)


def ppmi(table: Cooccurrence, *, shift: float, smoothing: float) -> sparse.csr_array:
    """max(0, log(p(w, c) / (p(w) p(c))) - log(shift)), with p(c) from counts to the power of `smoothing`."""
    size = len(table.starts) - 1
    rows = np.zeros(size)
    kernels.add_rows(table.starts, table.weights, rows)
    smooth = rows**smoothing
    with np.errstate(divide="ignore"):  # words that stand near none have no cells
        of_row = np.log(rows) + np.log(shift)
        of_column = np.log(smooth) - np.log(smooth.sum())
    columns, values = make_room(len(table.columns), np.int32, np.float32)
    starts = np.empty(size + 1, dtype=np.int64)
    length = kernels.keep_positive(
        table.starts, table.columns, table.weights, of_row, of_column, starts, columns, values
    )
    return sparse.csr_array((values[:length], columns[:length], starts), shape=(size, size))


def idf_weights(counts: sparse.csr_array) -> Doubles:
    """log((1 + documents) / (1 + documents that have the word)) + 1, as for the vector space model."""
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.asarray(np.log((1 + counts.shape[0]) / (1 + having)) + 1)


def entropy_weights(counts: sparse.csr_array) -> Doubles:
    """1 + sum of p log p / log(documents), where p is a document's share of a word (Dumais 1991).

    A word that all documents have alike weighs next to nothing, one that a single document has weighs 1.
    """
    totals = np.bincount(counts.indices, weights=counts.data, minlength=counts.shape[1])
    shares = counts.data / totals[counts.indices]
    sums = np.bincount(counts.indices, weights=shares * np.log(shares), minlength=counts.shape[1])
    return np.asarray(np.maximum(_LIGHTEST, 1 + sums / np.log(max(counts.shape[0], 2))))


def find_factors(matrix: sparse.csr_array, dimension: int, job: Job) -> Factors:
    """The factors of so many dimensions; `RecipeError` if the matrix has fewer."""
    with ThreadPoolExecutor(job.threads) as pool, threadpool_limits(1, user_api="blas"):
        factors = truncated_svd(matrix, dimension, job.seed, pool)
    rank = int(np.count_nonzero(factors.values > _SMALL * max(float(factors.values[0]), 1e-30)))
    if rank < dimension:
        raise RecipeError(
            f"the text has no more than {rank} dimensions: set dimension={max(rank, 1)} or give more text."
        )
    return factors


def truncated_svd(matrix: sparse.csr_array, dimension: int, seed: int, pool: ThreadPoolExecutor) -> Factors:
    """The largest singular values and vectors; each left vector's largest entry is positive."""
    transposed = matrix.T.tocsr()
    sketch = min(dimension + _MORE, *matrix.shape)
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((matrix.shape[1], sketch), dtype=np.float32)
    with progress("singular vectors", total=2 * _ROUNDS + 2, unit="products") as advance:

        def multiply(sparse_matrix: sparse.csr_array, dense: Floats) -> Floats:
            out = _multiply(sparse_matrix, dense, pool)
            advance(1)
            return out

        basis = multiply(matrix, start)
        for _ in range(_ROUNDS):
            basis = multiply(transposed, _orthonormal(basis))
            basis = multiply(matrix, _orthonormal(basis))
        basis = _orthonormal(basis)
        right, values, mixed = np.linalg.svd(multiply(transposed, basis), full_matrices=False)
    left = basis @ mixed.T[:, :dimension]
    signs = np.sign(left[np.argmax(np.abs(left), axis=0), np.arange(dimension)])
    signs[signs == 0] = 1.0
    return Factors(left * signs, values[:dimension], right[:, :dimension] * signs)


def _orthonormal(basis: Floats) -> Floats:
    """An orthonormal basis of the same space: by Cholesky's method twice, or Householder's if that is not exact enough.

    The former is seven times as fast, but needs columns that are far from dependent.
    """
    result, unit = basis, np.eye(basis.shape[1])
    for _ in range(2):
        try:
            lower = np.linalg.cholesky((result.T @ result).astype(np.float64))
        except np.linalg.LinAlgError:
            break
        result = result @ np.linalg.inv(lower).T.astype(np.float32)
    if np.abs(result.T @ result - unit).max() > _EXACT:
        result = np.linalg.qr(basis).Q
    return np.ascontiguousarray(result)


def _multiply(matrix: sparse.csr_array, dense: Floats, pool: ThreadPoolExecutor) -> Floats:
    """The product of a sparse and a dense matrix; each row is the work of one thread."""
    out = np.empty((matrix.shape[0], dense.shape[1]), dtype=np.float32)
    starts = matrix.indptr.astype(np.int64)
    columns = matrix.indices.astype(np.int32)

    def work(first: int) -> None:
        last = min(first + _BLOCK, len(out))
        kernels.multiply_rows(starts, columns, matrix.data, dense, first, last, out)

    list(pool.map(work, range(0, len(out), _BLOCK)))
    return out


def _require(dimension: int, there: int, what: str) -> None:
    if dimension > there:
        raise RecipeError(
            f"the text has {there} {what}, fewer than dimension={dimension}: set dimension={max(there, 1)} or less, "
            "or give more text."
        )


def _metrics(matrix: sparse.csr_array, factors: Factors) -> dict[str, Any]:
    """How large the matrix is, and how much of its squares the factors explain."""
    squares = float(np.sum(np.square(matrix.data, dtype=np.float64)))
    explained = float(np.sum(np.square(factors.values, dtype=np.float64))) / max(squares, 1e-30)
    return {"cells": int(matrix.nnz), "explained": explained}
