"""Spelling: how probable the letters of an unknown word are.

A model over words gives every unknown word the one probability of `<unk>`, so a smaller vocabulary would look better
in bits per byte. Charging unknown words for their letters makes models with different vocabularies comparable.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

END = 256
"""Follows the last byte of a word; also stands before its first."""


class Spelling:
    """A bigram model over the bytes of words with add-one smoothing: a distribution over all words.

    >>> spelling = Spelling.train(["ab", "ab", "b"])
    >>> probability = (1 + 1) / (3 + 257) * (3 + 1) / (3 + 257)  # begins with b; b is the last letter
    >>> round(float(np.exp(spelling.log_probability("b"))) / probability, 9)
    1.0
    """

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        self.counts = counts  # (byte before, byte), both with END
        self._log = np.log(counts + 1.0) - np.log(counts.sum(axis=1, keepdims=True) + counts.shape[1])

    @classmethod
    def train(cls, words: Iterable[str]) -> Spelling:
        """From the words of a text that are most like unknown ones: those that occur once."""
        counts = np.zeros((END + 1, END + 1), dtype=np.int64)
        data = "\n".join(words).encode()
        if data:
            codes = np.frombuffer(b"\n" + data + b"\n", dtype=np.uint8).astype(np.int64)
            codes[codes == ord("\n")] = END
            np.add.at(counts, (codes[:-1], codes[1:]), 1)
        return cls(counts)

    def log_probability(self, word: str) -> float:
        """Natural logarithm of the probability of the word's bytes and its end."""
        codes = [END, *word.encode(), END]
        return float(self._log[codes[:-1], codes[1:]].sum())
