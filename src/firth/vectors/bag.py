"""Bags of words: a text is which words it has and how often, whatever their order.

`onehot`: every word is a direction of its own, so that no word is more like a second one than a third. `tfidf` (the
vector space model): words count the more the fewer documents have them, and a word is known by its documents:

    weight(word, document) = count * (log((1 + documents) / (1 + documents that have the word)) + 1)

each document then scaled to length 1, as scikit-learn does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from firth.errors import ArtifactError, BudgetError
from firth.progress import note, progress
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.job import Job, Result
from firth.vectors.lookup import Found, WordModel, refuse_context, saved_vector
from firth.vectors.phrases import Phrases, saved_phrases
from firth.vectors.recipe import BagRecipe
from firth.vectors.text import FIRST_WORD, TrainingText

_CHUNK = 1 << 23  # words that are counted at once
_TINY = 1e-30


class BagModel(WordModel):
    """Words as directions, texts as bags of words."""

    def similarity(self, one: str, two: str) -> float:
        """1 for a word and itself, 0 for any other."""
        return float(self.row(one) == self.row(two))

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> Found:
        """The most frequent words: by construction all are as unlike the word, so that all scores are 0."""
        refuse_context(context)
        return self.best(self.row(word), np.zeros(len(self.words)), count)

    def embed(self, texts: Sequence[str]) -> sparse.csr_array:
        """How often each text has each word: a sparse matrix with a column for each word."""
        return count_words(*self.encode(texts), len(self.words))


class TfidfModel(BagModel):
    """Words as the documents that have them, texts as the words that tell them from others."""

    def __init__(
        self,
        recipe: BagRecipe,
        tokenizer: Tokenizer,
        layout: Layout,
        words: list[str],
        counts: npt.NDArray[np.int64],
        phrases: Phrases | None,
        idf: npt.NDArray[np.float64],
        matrix: sparse.csr_array,
    ) -> None:
        """`matrix` has a row for each word and a column for each document that has one."""
        super().__init__(recipe, tokenizer, layout, words, counts, phrases)
        self.idf = idf
        self.matrix = matrix

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {
            "idf": self.idf,
            "weights": self.matrix.data,
            "documents": self.matrix.indices.astype(np.int32),
            "begins": self.matrix.indptr.astype(np.int64),
        }

    @cached_property
    def norms(self) -> npt.NDArray[np.float64]:
        """The length of each word's vector."""
        return np.asarray(np.sqrt(self.matrix.astype(np.float64).power(2).sum(axis=1))).reshape(-1)

    def similarity(self, one: str, two: str) -> float:
        """The cosine of the angle between two words: 1 if they occur in the same documents as often."""
        first, second = self.row(one), self.row(two)
        (here, weights), (there, others) = self._documents(first), self._documents(second)
        _, left, right = np.intersect1d(here, there, assume_unique=True, return_indices=True)
        return float(weights[left] @ others[right] / max(self.norms[first] * self.norms[second], _TINY))

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> Found:
        """The words that occur in the same documents, and their cosines."""
        refuse_context(context)
        row = self.row(word)
        return self.best(row, self._cosines(row), count)

    def _cosines(self, row: int) -> npt.NDArray[np.float64]:
        vector = np.zeros(self.matrix.shape[1])
        documents, weights = self._documents(row)
        vector[documents] = weights
        return np.asarray(self.matrix @ vector / np.maximum(self.norms * self.norms[row], _TINY))

    def _documents(self, row: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
        """The documents that have a word, and its weights in them."""
        begin, end = self.matrix.indptr[row], self.matrix.indptr[row + 1]
        return self.matrix.indices[begin:end], self.matrix.data[begin:end].astype(np.float64)

    def embed(self, texts: Sequence[str]) -> sparse.csr_array:
        """The weights of each text's words, of length 1: a sparse matrix with a column for each word."""
        return weigh(super().embed(texts), self.idf)


def count_words(ids: npt.NDArray[Any], bounds: npt.NDArray[np.int64], words: int) -> sparse.csr_array:
    """How often each document has each word: a row for each document; those below `FIRST_WORD` do not count.

    >>> count_words(np.array([5, 6, 5, 1, 1]), np.array([0, 4, 5]), 7).toarray()[:, 5:].tolist()
    [[2.0, 1.0], [0.0, 0.0]]
    """
    known = ids >= FIRST_WORD
    begins = np.concatenate([[0], np.cumsum(known)])[bounds]
    ones = np.ones(int(begins[-1]), dtype=np.float32)
    counts = sparse.csr_array((ones, ids[known].astype(np.int32), begins), shape=(len(bounds) - 1, words))
    counts.sum_duplicates()
    return counts


def weigh(counts: sparse.csr_array, idf: npt.NDArray[np.float64]) -> sparse.csr_array:
    """Counts times idf, each row scaled to length 1."""
    weights = counts.data.astype(np.float64) * idf[counts.indices]
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    norms = np.sqrt(np.bincount(rows, weights=weights**2, minlength=counts.shape[0]))
    scaled = (weights / norms[rows]).astype(np.float32)
    return sparse.csr_array((scaled, counts.indices, counts.indptr), shape=counts.shape)


def train_bag(recipe: BagRecipe, job: Job) -> Result:
    """The bag of words model of a text."""
    if job.tokens is not None or job.seconds is not None or job.flops is not None:
        raise BudgetError("a bag of words reads all its text: leave --budget out and give less text instead.")
    text, phrases = job.text, job.phrases
    text.require(2)
    if recipe.weighting == "onehot":
        model = BagModel(recipe, job.tokenizer, job.layout, text.words, text.counts, phrases)
        return Result(model, text.total, {"words": int(np.count_nonzero(text.counts))})
    counts = sparse.vstack(list(count_documents(text)), format="csr")
    having = np.bincount(counts.indices, minlength=len(text.words))
    idf = np.log((1 + counts.shape[0]) / (1 + having)) + 1
    matrix = weigh(counts[np.diff(counts.indptr) > 0], idf).T.tocsr()
    tfidf = TfidfModel(recipe, job.tokenizer, job.layout, text.words, text.counts, phrases, idf, matrix)
    metrics = {"words": int(np.count_nonzero(having)), "documents": counts.shape[0], "cells": int(matrix.nnz)}
    return Result(tfidf, text.total, metrics)


def document_bounds(text: TrainingText) -> npt.NDArray[np.int64]:
    """Where each document begins, and the end; a single document is cut into its sentences."""
    if len(text.documents) == 2 and len(text.sentences) > 2:
        note("the text is a single document: each sentence counts as one")
        return text.sentences.astype(np.int64)
    return text.sentences[text.documents.astype(np.int64)].astype(np.int64)


def count_documents(text: TrainingText) -> Iterator[sparse.csr_array]:
    """The counts of the documents, some at a time."""
    bounds = document_bounds(text)
    begin = 0
    with progress("counting words", total=int(bounds[-1]), unit="words") as advance:
        while begin < len(bounds) - 1:
            end = max(begin + 1, int(np.searchsorted(bounds, bounds[begin] + _CHUNK, side="right")) - 1)
            ids = np.asarray(text.ids[bounds[begin] : bounds[end]])
            yield count_words(ids, bounds[begin : end + 1] - bounds[begin], len(text.words))
            advance(ids.size)
            begin = end


def restore(recipe: BagRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> BagModel:
    """The model of a saved artifact."""
    phrases, words = saved_phrases(arrays, tokenizer)
    size = len(words)
    counts = saved_vector(arrays, "counts", np.int64, size)
    if recipe.weighting == "onehot":
        return BagModel(recipe, tokenizer, layout, words, counts, phrases)
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
    return TfidfModel(recipe, tokenizer, layout, words, counts, phrases, idf, matrix)
