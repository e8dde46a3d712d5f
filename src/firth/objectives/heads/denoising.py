"""Denoising of documents (Lewis et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives import _denoise_kernels as kernels
from firth.objectives.heads.restoring import BatchSide, RestoringHead
from firth.objectives.sequences import Integers


class DenoisingHead(RestoringHead):
    """The decoder predicts the whole text from its noised version."""

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        rates: tuple[float, ...],
        span_probabilities: Sequence[float],
    ) -> None:
        """`rates` are those of permutation, masking, deletion, infilling and rotation."""
        super().__init__(objective, recipe, vocabulary)
        self.rates = tuple(map(float, rates))
        self.cumulative = np.cumsum(span_probabilities)[:-1]

    def write_noise(
        self, batch: Batch, sequence_ids: Integers, seeds: Any, source: BatchSide, target: BatchSide, targets: Integers
    ) -> Integers:
        starts = torch.zeros_like(batch.word_starts) if batch.sentence_starts is None else batch.sentence_starts
        counts = np.zeros(kernels.LENGTHS + kernels.LONGEST + 1, dtype=np.int64)
        limit = self.recipe.sequence.length - 2
        used = kernels.denoise_rows(
            batch.ids.numpy(), batch.word_starts.numpy(), starts.numpy(), sequence_ids, seeds, self.rates,
            self.cumulative, limit, tuple(source), tuple(target), targets, counts,
        )  # fmt: skip
        batch.labels[f"{self.name}.statistics"] = torch.from_numpy(counts)
        return np.asarray(used)

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        counts = batch.labels[f"{self.name}.statistics"].tolist()
        permute, mask, delete, infill, rotate = self.rates
        found = {
            "moved sentences": (permute, counts[kernels.MOVED], counts[kernels.SENTENCES]),
            "masked": (mask, counts[kernels.MASKED], counts[kernels.TOKENS]),
            "deleted": (delete, counts[kernels.DELETED], counts[kernels.TOKENS]),
            "words in spans": (infill, counts[kernels.BUDGET], counts[kernels.WORDS]),
            "mean span": (infill, counts[kernels.SPAN_WORDS], counts[kernels.SPANS]),
            "rotated": (rotate, counts[kernels.ROTATED], counts[kernels.SEQUENCES]),
        }
        for number, count in enumerate(counts[kernels.LENGTHS : -1]):
            found[f"spans of {number}"] = (infill, count, counts[kernels.SPANS])
        return {name: (part, whole) for name, (rate, part, whole) in found.items() if rate}
