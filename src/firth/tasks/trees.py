"""Sentence trees: facts about a word as branches beside a text, whose other tokens are read as if they were not there.

A branch is inserted after the last token of its head word. Positions are soft: a branch is numbered on from its head
word, and so is the rest of the text. Tokens of the text attend to one another; a branch attends to itself and to its
head word, which attends to it (Liu et al. 2020, 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
NONE = -1
"""The number of the head word, or of the branch, of a token that has none."""


class HeadWord(NamedTuple):
    """The tokens of a word, and the token ids of its branches."""

    begin: int
    end: int
    branches: tuple[Ints, ...]


class SentenceTree(NamedTuple):
    """Where each token of a sequence with branches belongs."""

    heads: Ints
    """The number of the head word that a token is part of or that its branch is about, or -1."""
    branches: Ints
    """The number of the branch that a token is part of, or -1 for the text itself."""

    def visible(self) -> npt.NDArray[np.bool_]:
        """(tokens, tokens): whether the query attends to the key.

        >>> SentenceTree(np.array([-1, 0, 0]), np.array([-1, -1, 0])).visible().astype(int).tolist()
        [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
        """
        trunk, heads = self.branches == NONE, self.heads
        about_same = (heads[:, None] == heads) & (heads != NONE)
        same_branch = self.branches[:, None] == self.branches
        return np.asarray(
            (trunk[:, None] & trunk) | (about_same & (same_branch | trunk[:, None] | trunk)), dtype=np.bool_
        )


class GrownSequence(NamedTuple):
    """A sequence with branches."""

    ids: Ints
    position_ids: Ints
    trunk: Ints
    """The index of each token of the text."""
    parents: Ints
    """For each token the index, in the text, of itself or of the last token of its head word."""
    tree: SentenceTree


def grow(ids: Ints, heads: Sequence[HeadWord]) -> GrownSequence:
    """The tokens of a text with the branches of its head words, which are sorted and do not overlap.

    >>> grown = grow(np.array([2, 7, 8, 3]), [HeadWord(1, 2, (np.array([5, 6]), np.array([9])))])
    >>> grown.ids.tolist(), grown.position_ids.tolist()
    ([2, 7, 5, 6, 9, 8, 3], [0, 1, 2, 3, 2, 2, 3])
    """
    inserted = np.zeros(ids.size + 1, dtype=np.int64)  # tokens before each token of the text
    for head in heads:
        inserted[head.end] += sum(branch.size for branch in head.branches)
    trunk = np.arange(ids.size) + np.cumsum(inserted)[: ids.size]
    size = ids.size + int(inserted.sum())
    grown, position_ids, parents = (np.empty(size, dtype=np.int64) for _ in range(3))
    tree = SentenceTree(np.full(size, NONE), np.full(size, NONE))
    grown[trunk], position_ids[trunk], parents[trunk] = ids, np.arange(ids.size), np.arange(ids.size)
    number = 0
    for index, head in enumerate(heads):
        tree.heads[trunk[head.begin : head.end]] = index
        begin = int(trunk[head.end - 1]) + 1
        for branch in head.branches:
            own = slice(begin, begin + branch.size)
            grown[own], position_ids[own] = branch, head.end + np.arange(branch.size)
            parents[own], tree.heads[own], tree.branches[own] = head.end - 1, index, number
            begin, number = own.stop, number + 1
    return GrownSequence(grown, position_ids, trunk, parents, tree)


def fit(heads: Iterable[HeadWord], room: int) -> tuple[list[HeadWord], int]:
    """The head words with those branches that fit into a number of tokens, first ones first; and how many do not.

    >>> kept, dropped = fit([HeadWord(0, 1, (np.array([5, 6]), np.array([9])))], 2)
    >>> [len(head.branches) for head in kept], dropped
    ([1], 1)
    """
    found, dropped = [], 0
    for head in heads:
        kept = []
        for branch in head.branches:
            if branch.size <= room:
                kept.append(branch)
                room -= branch.size
        dropped += len(head.branches) - len(kept)
        if kept:
            found.append(head._replace(branches=tuple(kept)))
    return found, dropped


def within(heads: Iterable[HeadWord], begin: int, end: int, offset: int) -> list[HeadWord]:
    """The head words between two tokens of a text that begins at another offset of a sequence."""
    inside = (head for head in heads if begin <= head.begin and head.end <= end)
    return [HeadWord(one.begin - begin + offset, one.end - begin + offset, one.branches) for one in inside]
