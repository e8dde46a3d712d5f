"""Span corruption (Raffel et al. 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives import _span_kernels as kernels
from firth.objectives.heads.restoring import BatchSide, RestoringHead
from firth.objectives.sequences import Integers

_STYLES = {
    "spans": kernels.SPANS,
    "prefix": kernels.PREFIX,
    "bert": kernels.BERT,
    "drop": kernels.DROP,
    "deshuffle": kernels.DESHUFFLE,
}


class SpanCorruptionHead(RestoringHead):
    """The decoder predicts `<X> span <Y> span </s>` from a text with the sentinels <X>, <Y> instead of the spans."""

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        style: str,
        rate: float,
        span_length: float,
        roll: bool,
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.settings = (_STYLES[style], rate, span_length, roll)

    def write_noise(
        self, batch: Batch, sequence_ids: Integers, seeds: Any, source: BatchSide, target: BatchSide, targets: Integers
    ) -> Integers:
        counts = np.zeros(kernels.SENTINELS + 1, dtype=np.int64)
        words = self.vocabulary - self.recipe.tokenizer.sentinels
        used = kernels.corrupt_spans(
            batch.ids.numpy(), sequence_ids, seeds, *self.settings, self.vocabulary, words, tuple(source),
            tuple(target), targets, counts,
        )  # fmt: skip
        batch.labels[f"{self.name}.statistics"] = torch.from_numpy(counts)
        return np.asarray(used)

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        counts = batch.labels[f"{self.name}.statistics"].tolist()
        return {
            "chosen": (counts[kernels.CHOSEN], counts[kernels.TOKENS]),
            "first": (counts[kernels.FIRST], counts[kernels.SEQUENCES]),
            "last": (counts[kernels.LAST], counts[kernels.SEQUENCES]),
            "mean span": (counts[kernels.CHOSEN], counts[kernels.GROUPS]),
        }
