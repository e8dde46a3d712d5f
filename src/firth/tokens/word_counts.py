"""Words and bytes of sentences, the same for every tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.text.segment import Segmenter, count_words
from firth.tokens import _kernels
from firth.tokens.lines import MAY_HOLD_HAN, Lines

if TYPE_CHECKING:
    from firth.tokens.encoder import Chunker


class SentenceCounts(NamedTuple):
    """The sizes of sentences, which do not depend on the tokenizer."""

    words: npt.NDArray[np.int64]
    """Words as `firth check` counts them: punctuation counts as words, and Chinese is segmented by default."""
    bytes: npt.NDArray[np.int64]
    """Bytes in UTF-8."""


class WordCounter:
    """Counts the words of lines as `firth check` does, whatever the tokenizer; each distinct chunk is counted once.

    The chunks of a line have its words, except in Chinese that was not segmented by the default segmenter.
    """

    def __init__(self, chunker: Chunker, segmenter: Segmenter) -> None:
        self._chunker = chunker
        self._segments_alike = chunker.segments and segmenter.is_default
        self._counts = np.zeros(0, dtype=np.int32)

    def count(self, lines: Lines, chunks: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """The number of words of each line; `chunks` are those of the lines."""
        if self._counts.size < len(self._chunker.table):
            self._counts = np.append(self._counts, _count_chunks(self._chunker.table.texts(self._counts.size)))
        words = np.zeros(len(lines), dtype=np.int64)
        _kernels.sum_by_line(chunks, self._counts, words)
        unsure = lines.flags & MAY_HOLD_HAN > 0
        if self._segments_alike and unsure.any():
            unsure &= self._chunker.whole_lines(lines)
        if unsure.any():
            words[unsure] = count_words([lines.line(index).decode() for index in np.flatnonzero(unsure).tolist()])
        return words


def _count_chunks(chunks: Sequence[str]) -> npt.NDArray[np.int32]:
    """The number of words of each chunk without segmentation; most are plainly one word, which is soon seen.

    >>> _count_chunks([" word", "don't.", "3.50"]).tolist()
    [1, 2, 1]
    """
    texts = [chunk.strip() for chunk in chunks]
    others = [index for index, text in enumerate(texts) if not (text.isascii() and text.isalnum())]
    counts = np.ones(len(texts), dtype=np.int32)
    counts[others] = count_words([texts[index] for index in others], Segmenter())
    return counts
