"""Sequences: what is to be read together, before it is laid out in rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Sequences(NamedTuple):
    """Segments of a text as places in a token store, one or two to a sequence.

    Where two are asked for, the second is the text that follows the first in the same document. Objectives may give
    other second segments or another order, and note in `labels` what they have done.
    """

    begins: Integers
    """(sequences, segments): the first token of each segment."""
    ends: Integers
    """(sequences, segments): after the last token; where a segment begins if it is empty."""
    room: int
    """Tokens that all segments of a sequence may have together."""
    documents: Integers
    """The first token of each document, and the end of the text; empty where there is one segment to a sequence."""
    labels: dict[str, Integers]
    """Mark -> a number for each sequence; batches have it under the same name for each part."""

    @property
    def consecutive(self) -> npt.NDArray[np.bool_]:
        """Which sequences have a second segment that follows the first one in the text."""
        if self.begins.shape[1] < 2:
            return np.zeros(len(self.begins), dtype=bool)
        return np.asarray((self.ends[:, 0] == self.begins[:, 1]) & (self.begins[:, 1] < self.ends[:, 1]))

    def with_labels(self, name: str, labels: Integers) -> Sequences:
        """The same with what an objective notes."""
        return self._replace(labels=self.labels | {name: labels})
