"""Smooth inverse frequency (Arora et al. 2017): sentences as weighted means of word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.text.layout import Layout
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.vectors import _neighbour_kernels as kernels
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.lookup import saved_matrix, wrong_array
from firth.vectors.model import VectorModel, saved_vectors
from firth.vectors.neighbours import Floats
from firth.vectors.recipe import SifRecipe
from firth.vectors.text import TrainingText
from firth.vectors.word2vec import train_word2vec

_SENTENCES = 50_000  # of the training text whose principal components are found


def train_sif(recipe: SifRecipe, job: VectorJob) -> VectorResult:
    """Word vectors of a text, and the common component of its sentences."""
    recipe = replace(recipe, base=replace(recipe.base, tokenizer=recipe.tokenizer))
    trained = train_word2vec(recipe.base, replace(job, lr_field="base.lr"))
    base = trained.model
    recipe = replace(recipe, base=base.recipe)
    model: SifModel = job.build(
        SifModel, recipe, base.vectors, components=np.zeros((0, base.vectors.shape[1]), np.float32)
    )
    model.components = principal_components(model.weighted_means(*_some_sentences(job.text)), recipe.components)
    return VectorResult(model, trained.tokens, trained.metrics, trained.records)


def _some_sentences(text: TrainingText) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The ids of sentences from all over a text, and their bounds."""
    bounds = np.asarray(text.sentences).astype(np.int64)
    chosen = np.unique(np.linspace(0, bounds.size - 2, min(_SENTENCES, bounds.size - 1)).astype(np.int64))
    parts = [np.asarray(text.ids[bounds[one] : bounds[one + 1]], dtype=np.uint32) for one in chosen.tolist()]
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([part.size for part in parts])])


def principal_components(rows: Floats, count: int) -> Floats:
    """(count, dimension): the directions of the largest squares of rows, which are not centred, as in the paper.

    >>> found = principal_components(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0]], dtype=np.float32), 1)
    >>> abs(found).round(4).tolist()
    [[1.0, 0.0]]
    """
    used = rows[rows.any(axis=1)].astype(np.float64)
    _, directions = np.linalg.eigh(used.T @ used)
    found = directions[:, ::-1][:, :count].T
    signs = np.sign(found[np.arange(len(found)), np.abs(found).argmax(axis=1)])  # the same on every machine
    return np.ascontiguousarray(found * signs[:, None], dtype=np.float32)


class SifModel(VectorModel):
    """Word vectors, and texts as weighted means of them less the common components."""

    def __init__(self, *arguments: Any, components: Floats, **others: Any) -> None:
        """`arguments` and `others` are those of `VectorModel`."""
        super().__init__(*arguments, **others)
        self.components = components

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | {"components": self.components}

    @cached_property
    def weights(self) -> Floats:
        """The weight a / (a + p(w)) of each word."""
        assert self.counts is not None
        frequencies = self.counts / max(int(self.counts[FIRST_WORD:].sum()), 1)
        smoothing: float = self.recipe.smoothing
        return np.asarray(smoothing / (smoothing + frequencies), dtype=np.float32)

    @cached_property
    def _weighted(self) -> Floats:
        return np.ascontiguousarray(self.vectors * self.weights[:, None])

    def weighted_means(self, ids: npt.NDArray[np.uint32], bounds: npt.NDArray[np.int64]) -> Floats:
        """The mean of the weighted vectors of each text's known words; zeros if there are none."""
        means = np.zeros((bounds.size - 1, self.vectors.shape[1]), dtype=np.float32)
        kernels.mean_rows(self._weighted, ids, bounds, FIRST_WORD, means)
        return means

    def text_table(self) -> Floats | None:
        """The weighted vectors less their common components, which are taken off a mean alike."""
        if self.phrases is not None:
            return None
        rows = self._weighted - self._weighted @ self.components.T @ self.components
        rows[:FIRST_WORD] = 0
        return np.asarray(rows, dtype=np.float32)

    def embed(self, texts: Sequence[str]) -> Floats:
        """The weighted mean of each text's known words less the common components; zeros if there are none."""
        means = self.weighted_means(*self.encode(texts))
        for component in self.components:  # no matrix product, whose rounding depends on the number of texts
            means -= (means * component).sum(axis=1, keepdims=True) * component
        return means


def restore_sif(recipe: SifRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> SifModel:
    """The model of a saved artifact's arrays."""
    saved = saved_vectors(arrays, tokenizer)
    components = saved_matrix(arrays, "components")
    if components.shape != (recipe.components, saved["vectors"].shape[1]) or saved["counts"] is None:
        raise wrong_array("components")
    return SifModel(recipe, tokenizer, layout, **saved, components=components)
