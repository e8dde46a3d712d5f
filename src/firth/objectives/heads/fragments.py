"""Masked fragments (Song et al. 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives import _fragment_kernels as kernels
from firth.objectives.heads.restoring import BatchSide, RestoringHead
from firth.objectives.sequences import Integers
from firth.tokens.tokenizer import MASK


class MaskedFragmentHead(RestoringHead):
    """The decoder predicts the fragment from the tokens before it; it does not attend to the masks of the source."""

    def __init__(
        self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, rates: tuple[float, ...]
    ) -> None:
        """`rates`: see the kernel."""
        super().__init__(objective, recipe, vocabulary)
        self.rates = tuple(map(float, rates))

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        super().corrupt(batch, rng)
        assert batch.source is not None
        batch.source.is_hidden = batch.source.ids == MASK

    def write_noise(
        self, batch: Batch, sequence_ids: Integers, seeds: Any, source: BatchSide, target: BatchSide, targets: Integers
    ) -> Integers:
        counts = np.zeros(kernels.KEPT + 1, dtype=np.int64)
        used = kernels.mask_fragments(
            batch.ids.numpy(), sequence_ids, seeds, self.rates, self.vocabulary, tuple(source), tuple(target), targets,
            counts,
        )  # fmt: skip
        batch.labels[f"{self.name}.statistics"] = torch.from_numpy(counts)
        return np.asarray(used)

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        counts = batch.labels[f"{self.name}.statistics"].tolist()
        chosen, sequences = counts[kernels.CHOSEN], counts[kernels.SEQUENCES]
        start, end = counts[kernels.AT_START], counts[kernels.AT_END]
        return {
            "chosen": (chosen, counts[kernels.MASKABLE]),
            "masked": (counts[kernels.MASKED], chosen),
            "random": (counts[kernels.RANDOM], chosen),
            "kept": (counts[kernels.KEPT], chosen),
            "fragments at the start": (start, sequences),
            "fragments at the end": (end, sequences),
            "fragments anywhere": (sequences - start - end, sequences),
        }
