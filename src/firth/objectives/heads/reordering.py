"""Sentence reordering (Sun et al. 2020)."""

from __future__ import annotations

import numpy as np

from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.objectives._layout_kernels import permute_paragraphs
from firth.objectives.heads.layouts import LaidOutHead
from firth.objectives.layouts import LaidOutObjective
from firth.objectives.sequences import Integers, Sequences, StoredText


class ReorderingHead(LaidOutHead):
    """The class of n segments is 1! + ... + (n - 1)! + the rank of their order, 0 if they are as in the text."""

    tells_segments = False

    def __init__(self, objective: LaidOutObjective, recipe: NetRecipe, vocabulary: Vocabulary, segments: int) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.segments = segments

    def find(self, text: StoredText) -> Integers:
        """The documents of two sentences or more."""
        return np.flatnonzero(np.diff(text.documents) > 1)

    def lay_out(self, examples: Integers, text: StoredText, limit: int, rng: np.random.Generator) -> Sequences:
        most = int((text.documents[examples + 1] - text.documents[examples]).sum())
        starts, ends = (np.zeros((most, self.segments), dtype=np.int64) for _ in range(2))
        labels = np.zeros(most, dtype=np.int64)
        key = rng.integers(0, 2**64, dtype=np.uint64)
        count = permute_paragraphs(
            text.sentences, text.documents, examples, limit, self.segments, key, starts, ends, labels
        )
        made = Sequences(starts[:count], ends[:count], limit, text.documents[:0], {})
        return made.with_labels(self.label_key, labels[:count])
