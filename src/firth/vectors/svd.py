"""Truncated SVD of count matrices: latent semantic analysis, and positive pointwise mutual information.

A = U S V' has a row for each word, and a column for each document or context word. A word vector is its row of
U S^power. The decomposition is randomised (Halko et al. 2011): threads share the rows of products and the rest runs on
one, so that any number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from firth.errors import ArtifactError, RecipeError
from firth.progress import progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors import _cooccurrence_kernels as kernels
from firth.vectors.bag import apply_idf, count_documents, count_words, idf_weights
from firth.vectors.cooccurrence import Cooccurrence, allocate_arrays, count_pairs
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.lookup import saved_vector
from firth.vectors.model import VectorModel, saved_vectors
from firth.vectors.neighbours import Floats, one_blas_thread
from firth.vectors.recipe import SvdRecipe

Doubles = npt.NDArray[np.float64]

_OVERSAMPLING = 32  # additional columns of the random matrix
_POWER_ITERATIONS = 6
_MIN_VALUE = 1e-5  # singular values below this fraction of the largest are rounding errors
_ORTHOGONALITY = 1e-4  # tolerance of an orthonormal basis
_MIN_WEIGHT = 1e-6  # not 0, because a document may have no other words
_BLOCK = 2048  # rows multiplied at a time


class Factors(NamedTuple):
    """The largest singular values and their left and right singular vectors, as columns."""

    left: Floats
    values: Floats
    right: Floats


def train_svd(recipe: SvdRecipe, job: VectorJob) -> VectorResult:
    """Word vectors by truncated SVD of a weighted count matrix."""
    job.refuse_budget("singular vectors are computed from all the text")
    by_windows = recipe.matrix == "windows"
    job.text.require_words(recipe.window if by_windows else 2)
    _require(recipe.dimension, int(np.count_nonzero(job.text.counts)), "different words")
    if by_windows:
        table = count_pairs(job.text, recipe.window, threads=job.threads)
        table.require_cells()
        matrix = ppmi(table, shift=recipe.shift, smoothing=recipe.smoothing)
        del table
    else:
        counts = sparse.vstack(list(count_documents(job.text)), format="csr")
        _require(recipe.dimension, counts.shape[0], "documents")
        weights = entropy_weights(counts) if recipe.weighting == "entropy" else idf_weights(counts)
        matrix = apply_idf(counts.log1p(), weights).T.tocsr()
    factors = find_factors(matrix, recipe.dimension, job)
    scale = factors.values**recipe.power
    if by_windows:
        model = job.build(VectorModel, recipe, factors.left * scale, outputs=factors.right * scale)
    else:
        model = job.build(DocumentModel, recipe, factors.left * scale, weights=weights, values=factors.values)
    explained = _sum_of_squares(factors.values) / max(_sum_of_squares(matrix.data), 1e-30)
    return VectorResult(model, job.text.total, {"cells": int(matrix.nnz), "explained": explained})


class DocumentModel(VectorModel):
    """Latent semantic analysis: texts are folded in as documents of the matrix."""

    def __init__(self, *arguments: Any, weights: Doubles, values: Floats, **options: Any) -> None:
        """`weights` are the idf or entropy weights of words; `values` the singular values."""
        super().__init__(*arguments, **options)
        self.weights, self.values = weights, values

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {"weights": self.weights, "values": self.values}

    def embed(self, texts: Sequence[str]) -> Floats:
        """Each text's weighted bag of words q, folded in: q U S^-1. Texts without a known word are zero."""
        ids, bounds = self.encode(texts)
        counts = count_words(ids.astype(np.int32), bounds, len(self.words))
        bags = apply_idf(counts.log1p(), self.weights)
        return np.asarray(bags @ self.vectors * self.values ** (-1.0 - self.recipe.power), dtype=np.float32)


def restore_svd(recipe: SvdRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> VectorModel:
    """The model of a saved artifact."""
    saved = saved_vectors(arrays, tokenizer)
    if recipe.matrix == "windows":
        return VectorModel(recipe, tokenizer, layout, **saved)
    size, dimension = saved["vectors"].shape
    weights = saved_vector(arrays, "weights", np.float64, size)
    values = saved_vector(arrays, "values", np.float32, dimension)
    if not np.all(np.isfinite(weights)) or not np.all(values > 0):
        raise ArtifactError("the weights of words or the singular values are damaged: train the model again.")
    return DocumentModel(recipe, tokenizer, layout, **saved, weights=weights, values=values)


def ppmi(table: Cooccurrence, *, shift: float, smoothing: float) -> sparse.csr_array:
    """max(0, log(p(w, c) / (p(w) p(c))) - log(shift)), with p(c) from counts to the power of `smoothing`."""
    size = len(table.starts) - 1
    rows = np.zeros(size)
    kernels.row_sums(table.starts, table.weights, rows)
    smooth = rows**smoothing
    with np.errstate(divide="ignore"):  # words without context have no cells
        of_row = np.log(rows) + np.log(shift)
        of_column = np.log(smooth) - np.log(smooth.sum())
    columns, values = allocate_arrays(len(table.columns), np.int32, np.float32)
    starts = np.empty(size + 1, dtype=np.int64)
    cells = (table.starts, table.columns, table.weights)
    length = kernels.positive_cells(*cells, of_row, of_column, starts, columns, values)
    return sparse.csr_array((values[:length], columns[:length], starts), shape=(size, size))


def entropy_weights(counts: sparse.csr_array) -> Doubles:
    """1 + sum of p log p / log(documents), where p is P(document | word) (Dumais 1991).

    A word spread evenly over documents weighs next to nothing, one in a single document weighs 1.
    """
    totals = np.bincount(counts.indices, weights=counts.data, minlength=counts.shape[1])
    proportions = counts.data / totals[counts.indices]
    sums = np.bincount(counts.indices, weights=proportions * np.log(proportions), minlength=counts.shape[1])
    return np.asarray(np.maximum(_MIN_WEIGHT, 1 + sums / np.log(max(counts.shape[0], 2))))


def find_factors(matrix: sparse.csr_array, dimension: int, job: VectorJob) -> Factors:
    """The truncated SVD; raises `RecipeError` if the matrix has a lower rank."""
    with ThreadPoolExecutor(job.threads) as pool, one_blas_thread():
        factors = truncated_svd(matrix, dimension, job.seed, pool)
    rank = int(np.count_nonzero(factors.values > _MIN_VALUE * max(float(factors.values[0]), 1e-30)))
    if rank < dimension:
        raise RecipeError(f"the matrix has rank {rank}: set dimension={max(rank, 1)} or give more text.")
    return factors


def truncated_svd(matrix: sparse.csr_array, dimension: int, seed: int, pool: ThreadPoolExecutor) -> Factors:
    """The largest singular values and vectors; each left vector's largest entry is positive."""
    transposed = matrix.T.tocsr()
    sketch = min(dimension + _OVERSAMPLING, *matrix.shape)
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((matrix.shape[1], sketch), dtype=np.float32)
    with progress("singular vectors", total=2 * _POWER_ITERATIONS + 2, unit="products") as advance:

        def multiply(sparse_matrix: sparse.csr_array, dense: Floats) -> Floats:
            out = _multiply(sparse_matrix, dense, pool)
            advance(1)
            return out

        basis = multiply(matrix, start)
        for _ in range(_POWER_ITERATIONS):
            basis = multiply(transposed, _orthonormal(basis))
            basis = multiply(matrix, _orthonormal(basis))
        basis = _orthonormal(basis)
        right, values, mixed = np.linalg.svd(multiply(transposed, basis), full_matrices=False)
    left = basis @ mixed.T[:, :dimension]
    signs = np.sign(left[np.argmax(np.abs(left), axis=0), np.arange(dimension)])
    signs[signs == 0] = 1.0
    return Factors(left * signs, values[:dimension], right[:, :dimension] * signs)


def _orthonormal(basis: Floats) -> Floats:
    """An orthonormal basis of the same space: twice by Cholesky, or by Householder if that is not accurate enough.

    Cholesky is seven times as fast, but needs columns that are far from dependent.
    """
    result, unit = basis, np.eye(basis.shape[1])
    for _ in range(2):
        try:
            lower = np.linalg.cholesky((result.T @ result).astype(np.float64))
        except np.linalg.LinAlgError:
            break
        result = result @ np.linalg.inv(lower).T.astype(np.float32)
    if np.abs(result.T @ result - unit).max() > _ORTHOGONALITY:
        result = np.linalg.qr(basis).Q
    return np.ascontiguousarray(result)


def _multiply(matrix: sparse.csr_array, dense: Floats, pool: ThreadPoolExecutor) -> Floats:
    """The product of a sparse and a dense matrix, by blocks of rows in threads."""
    out = np.empty((matrix.shape[0], dense.shape[1]), dtype=np.float32)
    starts = matrix.indptr.astype(np.int64)
    columns = matrix.indices.astype(np.int32)

    def multiply_block(first: int) -> None:
        last = min(first + _BLOCK, len(out))
        kernels.multiply_rows(starts, columns, matrix.data, dense, first, last, out)

    list(pool.map(multiply_block, range(0, len(out), _BLOCK)))
    return out


def _require(dimension: int, count: int, what: str) -> None:
    if dimension > count:
        raise RecipeError(
            f"the text has {count} {what}, fewer than dimension={dimension}: set dimension={max(count, 1)} or less, "
            "or give more text."
        )


def _sum_of_squares(values: Floats) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
