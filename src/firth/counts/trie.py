"""Trie: every n-gram of a text up to an order, as a few flat arrays.

A node is an n-gram. Nodes are numbered level by level: the unigrams first, of which there is one for every word of the
vocabulary (its number is the word's id), then the bigrams, and so on. Within a level they are sorted by their words, so
the children of a node, the n-grams that go on from it, stand side by side in the order of their last words.

    words[g]               the last word of node g
    first[g]:first[g+1]    the children of node g; only nodes below the highest level have any
    links[g]               the longest end of the n-gram, short of the whole, that is a node; ROOT for unigrams
    counts[g]              how often the n-gram occurs in the text
    levels[n-1]:levels[n]  the nodes of level n

A sentence is counted as `<s> w1 ... wm </s>`: `<s>` stands in histories and is never predicted, so that the
probabilities of all sentences sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK

ROOT = np.uint32(0xFFFFFFFF)
"""The node of the empty n-gram: where the links of all unigrams lead."""

NEVER_PREDICTED = (PAD, BOS, MASK)
"""Tokens that no sentence holds after its beginning."""


@dataclass(frozen=True)
class Trie:
    """The n-grams of a text and how often each occurs."""

    levels: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint32]
    first: npt.NDArray[np.uint32]
    links: npt.NDArray[np.uint32]
    counts: Any
    """uint32 or int64, one a node; or packed, until they are asked for."""

    @property
    def order(self) -> int:
        return int(self.levels.size) - 1

    @property
    def vocabulary(self) -> int:
        """Words of the vocabulary, special ones included: the size of level 1."""
        return int(self.levels[1])

    @property
    def contexts(self) -> int:
        """Nodes that may have children: all below the highest level."""
        return int(self.levels[-2])

    def level(self, n: int) -> slice:
        """The nodes of the n-grams of length `n`."""
        return slice(int(self.levels[n - 1]), int(self.levels[n]))

    def find(self, words: list[int] | tuple[int, ...]) -> int | None:
        """The node of an n-gram, or None if it never occurs.

        >>> from firth.counts.counting import count_sentences
        >>> trie = count_sentences([[5, 6, 5], [5, 7]], vocabulary=8, order=2)
        >>> [int(trie.counts[trie.find(gram)]) for gram in ([5], [5, 6], [2, 5], [7, 3])]
        [3, 1, 2, 1]
        """
        node: int | None = None
        for word in words:
            if node is None:
                node = word
                continue
            if node >= self.contexts:
                return None
            begin, end = int(self.first[node]), int(self.first[node + 1])
            place = begin + int(np.searchsorted(self.words[begin:end], np.uint32(word)))
            if place == end or self.words[place] != word:
                return None
            node = place
        return node

    def gram(self, node: int) -> list[int]:
        """The words of a node."""
        n = int(np.searchsorted(self.levels, node, side="right"))
        words = []
        for _ in range(n):
            words.append(int(self.words[node]))
            if len(words) < n:
                node = int(np.searchsorted(self.first, np.uint32(node), side="right")) - 1
        return words[::-1]


def predictable(vocabulary: int, unknown: bool = True) -> npt.NDArray[np.bool_]:
    """Which words may follow: all but `<pad>`, `<s>`, `<mask>`, and `<unk>` where the vocabulary is closed."""
    mask = np.ones(vocabulary, dtype=np.bool_)
    mask[list(NEVER_PREDICTED)] = False
    if not unknown:
        mask[UNK] = False
    assert mask[EOS]
    return mask
