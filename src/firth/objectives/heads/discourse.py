"""Discourse relations (Sun et al. 2020, after Sileo et al. 2019)."""

from __future__ import annotations

import numpy as np

from firth.objectives.heads.layouts import LaidOutHead, truncate
from firth.objectives.sequences import Integers, Sequences, StoredText


class DiscourseHead(LaidOutHead):
    """A class for each relation of `firth.text.discourse`."""

    def find(self, text: StoredText) -> Integers:
        """(examples, 4): begin and end of a sentence, the begin of the next one after its marker, and its end."""
        values, sentences = text.columns["discourse"], text.sentences
        second = np.flatnonzero(values[sentences[:-1]])
        begins = sentences[second].copy()
        open_ = np.ones(second.size, dtype=bool)
        while open_.any():  # a few tokens long
            open_ &= values[begins] > 0
            begins += open_
        return np.stack([sentences[second - 1], sentences[second], begins, sentences[second + 1]], axis=1)

    def lay_out(self, examples: Integers, text: StoredText, limit: int, rng: np.random.Generator) -> Sequences:
        starts, ends = examples[:, [0, 2]], truncate(examples[:, [0, 2]], examples[:, [1, 3]], limit)
        labels = text.columns["discourse"][examples[:, 1]].astype(np.int64) - 1
        return Sequences(starts, ends, limit, text.documents[:0], {}).with_labels(self.label_key, labels)
