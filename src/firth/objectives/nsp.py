"""Next-sentence prediction: does the second segment follow the first, or is it from elsewhere (Devlin et al. 2019)?"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from firth.objectives._pairing_kernels import exchange
from firth.objectives.judging import UNASKED, PairJudgement
from firth.objectives.sequences import Sequences


class NextSentence(PairJudgement):
    """Label 0: it follows. Label 1: it is from another document."""

    name: ClassVar[str] = "nsp"

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Half of the sequences exchange their second segments among each other.

        So every token is still read once. Those that exchange have second segments of the same length or nearly so, so
        that both fit and length tells nothing, and are of different documents, if there are enough; in a small text the
        end of a segment may be left out, and if it is one document, both may be from it.
        """
        asked = sequences.consecutive
        begins, ends = sequences.begins.copy(), sequences.ends.copy()
        labels = np.where(asked, 0, UNASKED)
        chosen = np.flatnonzero(asked & (rng.random(asked.size) < 0.5))
        lengths = ends[chosen, 1] - begins[chosen, 1]
        order = chosen[np.lexsort((rng.random(chosen.size), lengths))]
        documents = np.searchsorted(sequences.documents, begins[order, 0], side="right")
        exchange(begins, ends, order, documents, sequences.room, labels)
        return sequences._replace(begins=begins, ends=ends).with_labels(self.mark, labels)
