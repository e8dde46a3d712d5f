"""Sentence distance (Sun et al. 2020)."""

from __future__ import annotations

import numpy as np

from firth.objectives._layout_kernels import pair_distances
from firth.objectives.heads.layouts import LaidOutHead, truncate
from firth.objectives.sequences import Integers, Sequences, StoredText


class DistanceHead(LaidOutHead):
    """Class 0: adjacent; 1: of one document; 2: of two documents."""

    def find(self, text: StoredText) -> Integers:
        """The documents, if one has two sentences."""
        counts = np.diff(text.documents)
        return np.arange(counts.size) if (counts > 1).any() else np.zeros(0, dtype=np.int64)

    def lay_out(self, examples: Integers, text: StoredText, limit: int, rng: np.random.Generator) -> Sequences:
        most = text.sentences.size
        starts, ends = (np.zeros((most, 2), dtype=np.int64) for _ in range(2))
        labels = np.zeros(most, dtype=np.int64)
        count = pair_distances(
            text.sentences, text.documents, rng.integers(0, 2**64, dtype=np.uint64), starts, ends, labels
        )
        starts, ends = starts[:count], truncate(starts[:count], ends[:count], limit)
        return Sequences(starts, ends, limit, text.documents[:0], {}).with_labels(self.label_key, labels[:count])
