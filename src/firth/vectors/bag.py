"""Bags of words: sparse vectors of word counts, in any order.

`onehot`: each word is its own dimension, so that all words are equally dissimilar. `tfidf` (the vector space model):
words are represented by the documents that contain them, with the weights

    weight(word, document) = count * (log((1 + documents) / (1 + documents containing the word)) + 1)

and each document scaled to unit norm, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from firth.errors import ArtifactError
from firth.progress import note, progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.lookup import ScoredWords, WordModel, refuse_context, saved_counts, saved_vector
from firth.vectors.phrases import saved_phrases
from firth.vectors.recipe import BagRecipe
from firth.vectors.text import TrainingText, runs_of

_CHUNK = 1 << 23  # words counted at once
_TINY = 1e-30


class BagModel(WordModel):
    """One-hot words and bags of words."""

    def similarity(self, one: str, two: str) -> float:
        """1 for equal words, 0 for different ones."""
        return float(self.row(one) == self.row(two))

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> ScoredWords:
        """The most frequent words, all with a score of 0: one-hot words are equally dissimilar."""
        refuse_context(context)
        return self.best(self.row(word), np.zeros(len(self.words)), count)

    def embed(self, texts: Sequence[str]) -> sparse.csr_array:
        """(texts, words): the word counts of each text."""
        return count_words(*self.encode(texts), len(self.words))


class TfidfModel(BagModel):
    """The vector space model: words by documents, weighted by tf-idf."""

    def __init__(self, *arguments: Any, idf: npt.NDArray[np.float64], matrix: sparse.csr_array) -> None:
        """`arguments` are those of `WordModel`; `matrix` is (words, documents)."""
        super().__init__(*arguments)
        self.idf, self.matrix = idf, matrix

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {
            "idf": self.idf,
            "weights": self.matrix.data,
            "documents": self.matrix.indices.astype(np.int32),
            "begins": self.matrix.indptr.astype(np.int64),
        }

    @cached_property
    def norms(self) -> npt.NDArray[np.float64]:
        """The norm of each word's row."""
        return np.asarray(np.sqrt(self.matrix.astype(np.float64).power(2).sum(axis=1))).reshape(-1)

    def similarity(self, one: str, two: str) -> float:
        """The cosine of two words: 1 if they occur in the same documents equally often."""
        first, second = self.row(one), self.row(two)
        (here, weights), (there, others) = self._documents(first), self._documents(second)
        _, left, right = np.intersect1d(here, there, assume_unique=True, return_indices=True)
        return float(weights[left] @ others[right] / max(self.norms[first] * self.norms[second], _TINY))

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> ScoredWords:
        """The words that occur in the same documents, and their cosines."""
        refuse_context(context)
        row = self.row(word)
        vector = np.zeros(self.matrix.shape[1])
        documents, weights = self._documents(row)
        vector[documents] = weights
        cosines = np.asarray(self.matrix @ vector / np.maximum(self.norms * self.norms[row], _TINY))
        return self.best(row, cosines, count)

    def _documents(self, row: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
        begin, end = self.matrix.indptr[row], self.matrix.indptr[row + 1]
        return self.matrix.indices[begin:end], self.matrix.data[begin:end].astype(np.float64)

    def embed(self, texts: Sequence[str]) -> sparse.csr_array:
        """(texts, words): the tf-idf weights of each text, with unit norm."""
        return apply_idf(super().embed(texts), self.idf)


def count_words(ids: npt.NDArray[Any], bounds: npt.NDArray[np.int64], words: int) -> sparse.csr_array:
    """(documents, words): the counts of each document, without special tokens.

    >>> count_words(np.array([5, 6, 5, 1, 1]), np.array([0, 4, 5]), 7).toarray()[:, 5:].tolist()
    [[2.0, 1.0], [0.0, 0.0]]
    """
    known = ids >= FIRST_WORD
    begins = np.concatenate([[0], np.cumsum(known)])[bounds]
    ones = np.ones(int(begins[-1]), dtype=np.float32)
    counts = sparse.csr_array((ones, ids[known].astype(np.int32), begins), shape=(len(bounds) - 1, words))
    counts.sum_duplicates()
    return counts


def idf_weights(counts: sparse.csr_array) -> npt.NDArray[np.float64]:
    """log((1 + documents) / (1 + documents containing the word)) + 1."""
    frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.asarray(np.log((1 + counts.shape[0]) / (1 + frequencies)) + 1)


def apply_idf(counts: sparse.csr_array, idf: npt.NDArray[np.float64]) -> sparse.csr_array:
    """Counts times idf, each row scaled to unit norm."""
    weights = counts.data.astype(np.float64) * idf[counts.indices]
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    norms = np.sqrt(np.bincount(rows, weights=weights**2, minlength=counts.shape[0]))
    scaled = (weights / norms[rows]).astype(np.float32)
    return sparse.csr_array((scaled, counts.indices, counts.indptr), shape=counts.shape)


def train_bag(recipe: BagRecipe, job: VectorJob) -> VectorResult:
    """The bag of words model of a text."""
    job.refuse_budget("a bag of words reads all its text")
    text = job.text
    text.require_words(2)
    arguments = (recipe, job.tokenizer, job.layout, text.words, text.counts, job.phrases)
    words = int(np.count_nonzero(text.counts))
    if recipe.weighting == "onehot":
        return VectorResult(BagModel(*arguments), text.total, {"words": words})
    counts = sparse.vstack(list(count_documents(text)), format="csr")
    idf = idf_weights(counts)
    matrix = apply_idf(counts[np.diff(counts.indptr) > 0], idf).T.tocsr()
    metrics = {"words": words, "documents": counts.shape[0], "cells": int(matrix.nnz)}
    return VectorResult(TfidfModel(*arguments, idf=idf, matrix=matrix), text.total, metrics)


def document_bounds(text: TrainingText) -> npt.NDArray[np.int64]:
    """The token bounds of documents; a single document is split into its sentences."""
    if len(text.documents) == 2 and len(text.sentences) > 2:
        note("the text is a single document: each sentence counts as one")
        return text.sentences.astype(np.int64)
    return text.sentences[text.documents.astype(np.int64)].astype(np.int64)


def count_documents(text: TrainingText) -> Iterator[sparse.csr_array]:
    """The word counts of documents, in chunks."""
    bounds = document_bounds(text)
    with progress("counting words", total=int(bounds[-1]), unit="words") as advance:
        for begin, end in runs_of(bounds, _CHUNK):
            ids = np.asarray(text.ids[bounds[begin] : bounds[end]])
            yield count_words(ids, bounds[begin : end + 1] - bounds[begin], len(text.words))
            advance(ids.size)


def restore_bag(recipe: BagRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> BagModel:
    """The model of a saved artifact."""
    phrases, words = saved_phrases(arrays, tokenizer)
    size = len(words)
    arguments = (recipe, tokenizer, layout, words, saved_counts(arrays, "counts", size), phrases)
    if recipe.weighting == "onehot":
        return BagModel(*arguments)
    idf = saved_vector(arrays, "idf", np.float64, size)
    begins = saved_vector(arrays, "begins", np.int64, size + 1)
    weights = saved_vector(arrays, "weights", np.float32)
    documents = saved_vector(arrays, "documents", np.int32, weights.size)
    width = int(documents.max(initial=0)) + 1
    sound = np.all(np.isfinite(idf)) and np.all(np.isfinite(weights)) and np.all(documents >= 0)
    sound = sound and begins[0] == 0 and begins[-1] == weights.size and np.all(np.diff(begins) >= 0)
    if not sound or width > max(weights.size, 1):  # every document has a word
        raise ArtifactError("the weights of words in documents are damaged: train the model again.")
    matrix = sparse.csr_array((weights, documents, begins), shape=(size, width))
    if not matrix.has_canonical_format:
        raise ArtifactError("the documents of a word are not in ascending order: train the model again.")
    return TfidfModel(*arguments, idf=idf, matrix=matrix)
