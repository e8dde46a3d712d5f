"""Sentence order: which of two consecutive segments comes first (Lan et al. 2020)?"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from firth.objectives.judging import UNASKED, PairJudgement
from firth.objectives.sequences import Sequences


class SentenceOrder(PairJudgement):
    """Label 0: as in the text. Label 1: the other way round."""

    name: ClassVar[str] = "sop"

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Half of the sequences have their segments in the wrong order."""
        asked = sequences.consecutive
        turned = asked & (rng.random(asked.size) < 0.5)
        columns = np.where(turned[:, None], [1, 0], [0, 1])
        begins = np.take_along_axis(sequences.begins, columns, 1)
        ends = np.take_along_axis(sequences.ends, columns, 1)
        labels = np.where(asked, turned.astype(np.int64), UNASKED)
        return sequences._replace(begins=begins, ends=ends).with_labels(self.mark, labels)
