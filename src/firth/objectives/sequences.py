"""Sequences: segments of text before they are packed into rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
SENTENCES, DOCUMENTS = "sentences", "documents"
"""Labels of the sequences of consecutive sentences: the number of each in the text, and that of its document."""


class StoredText(NamedTuple):
    """The text of a token store, for objectives that make sequences of their own."""

    ids: npt.NDArray[Any]
    word_starts: npt.NDArray[np.bool_]
    sentences: Integers
    """The offset of each sentence, and the end."""
    documents: Integers
    """The first sentence of each document, and the end."""
    columns: Mapping[str, npt.NDArray[Any]]


class SentenceGroups(NamedTuple):
    """Groups of sentences that are in one batch together, as ranges of a token store."""

    starts: Integers
    """(groups, members): the first token of each sentence."""
    ends: Integers
    """(groups, members): after the last token."""
    labels: Integers | None = None
    """The label of each group, if it has one."""


class Sequences(NamedTuple):
    """Sequences of one or two segments, as ranges of a token store.

    The second segment is the text that follows the first in the same document. Objectives may replace or reorder
    segments, and set `labels`.
    """

    starts: Integers
    """(sequences, segments): the first token of each segment."""
    ends: Integers
    """(sequences, segments): after the last token; equal to the start of an empty segment."""
    max_tokens: int
    """Maximal tokens of all segments of a sequence together."""
    documents: Integers
    """The first token of each document, and the end of the text; empty for sequences of one segment."""
    labels: dict[str, Integers]
    """A number for each sequence by key; batches have it under the same key for each sequence."""

    @property
    def has_next_segment(self) -> npt.NDArray[np.bool_]:
        """Which sequences have a second segment that follows the first one in the text."""
        if self.starts.shape[1] < 2:
            return np.zeros(len(self.starts), dtype=bool)
        return np.asarray((self.ends[:, 0] == self.starts[:, 1]) & (self.starts[:, 1] < self.ends[:, 1]))

    def with_labels(self, key: str, labels: Integers) -> Sequences:
        """The same with the labels of an objective."""
        return self._replace(labels=self.labels | {key: labels})
