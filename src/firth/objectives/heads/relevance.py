"""Relevance of texts to headlines, in place of queries and titles (Sun et al. 2020)."""

from __future__ import annotations

import numpy as np

from firth.objectives.heads.layouts import LaidOutHead
from firth.objectives.sequences import Integers, Sequences, StoredText

_PART = 4  # sentences of a body that one is compared with, at most


class RelevanceHead(LaidOutHead):
    """Class 0: the beginning of the text; 1: a later part of it; 2: another text."""

    def find(self, text: StoredText) -> Integers:
        """The documents with a headline."""
        first = text.sentences[text.documents[:-1]]
        return np.flatnonzero(text.columns["headlines"][first])

    def lay_out(self, examples: Integers, text: StoredText, limit: int, rng: np.random.Generator) -> Sequences:
        """A third of each class; where a body has no later part, or there is one headline, it is the beginning."""
        first, after = text.documents[examples], text.documents[examples + 1]
        labels = rng.permutation(np.arange(examples.size) % 3)
        later = first + 1 + rng.integers(1, np.maximum(after - first - 1, 2))
        labels = np.where((labels == 1) & (after - first < 3), 0, labels)
        body = np.where(labels == 1, np.minimum(later, after - 1), first + 1)
        others = np.flatnonzero(labels == 2)
        if others.size > 1:
            body[others] = body[np.roll(others, 1)]
            after = after.copy()
            after[others] = after[np.roll(others, 1)]
        else:
            labels = np.where(labels == 2, 0, labels)
        starts = np.stack([text.sentences[first], text.sentences[body]], axis=1)
        last = np.minimum(body + _PART, after)
        headline = np.minimum(text.sentences[first + 1], starts[:, 0] + limit // 2)
        room = starts[:, 1] + limit - (headline - starts[:, 0])
        ends = np.stack([headline, np.minimum(text.sentences[last], room)], axis=1)
        return Sequences(starts, ends, limit, text.documents[:0], {}).with_labels(self.label_key, labels)
