"""The trie of a saved n-gram model: everything that a kernel follows is checked before it is used.

Digests tell that a file is the one that was written, not that its numbers make sense: a folder can be forged with valid
digests. So the check runs whenever a model is restored; it reads each node once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.cores import cores, in_order
from firth.counts.em import saved_array
from firth.counts.trie import ROOT, Trie, find_links, unpack_counts
from firth.errors import ArtifactError

_PARALLEL_NODES = 1 << 20  # levels with fewer nodes are checked in one thread
_CODES = 256  # of a quantised log-probability
_AGAIN = "copy the folder again, or train the model again"

Values = npt.NDArray[Any]


class SavedTable(NamedTuple):
    """The n-grams of a saved model and their values."""

    trie: Trie
    logp: Values
    bow: npt.NDArray[np.float64]
    codebooks: npt.NDArray[np.float64]  # empty if the log-probabilities are not quantised


def saved_table(arrays: Mapping[str, Any], order: int, vocab_size: int) -> SavedTable:
    """The n-grams of saved arrays, which stay on disk, after a check of types, shapes and indices."""
    levels = np.array(saved_array(arrays, "levels", np.int64, (order + 1,)))
    if levels[0] != 0 or levels[1] != vocab_size or np.any(levels[1:] < levels[:-1]) or levels[-1] >= ROOT:
        raise ArtifactError(f"the array 'levels' does not fit the vocabulary: {_AGAIN}.")
    size, contexts = int(levels[-1]), int(levels[-2])
    words, links = (saved_array(arrays, name, np.uint32, (size,)) for name in ("words", "links"))
    first = saved_array(arrays, "first", np.uint32, (contexts + 1,))
    check_nodes(levels, words, first, links)
    logp, codebooks = _saved_values(arrays, order, size)
    trie = Trie(levels, words, first, links, unpack_counts(arrays, size))
    return SavedTable(trie, logp, saved_array(arrays, "bow", np.float64, (contexts,)), codebooks)


def _saved_values(arrays: Mapping[str, Any], order: int, size: int) -> tuple[Values, npt.NDArray[np.float64]]:
    """The log-probabilities, and the codebook of each level if they are quantised."""
    found = arrays.get("logp")
    kind = np.float64 if found is None or found.dtype != np.float32 else np.float32
    if found is None or found.dtype != np.uint8:
        return saved_array(arrays, "logp", kind, (size,)), np.zeros((0, 0))
    codebooks = saved_array(arrays, "codebooks", np.float64, (order, _CODES))
    return saved_array(arrays, "logp", np.uint8, (size,)), np.array(codebooks)


def check_nodes(
    levels: npt.NDArray[np.int64],
    words: npt.NDArray[np.uint32],
    first: npt.NDArray[np.uint32],
    links: npt.NDArray[np.uint32],
) -> None:
    """Raise `ArtifactError` unless children, words and suffix links are those of a trie.

    The children of a level make up the next one, those of a node ascend by word, and a suffix link leads to a shorter
    n-gram, so that every walk ends.

    >>> of = np.array
    >>> words, first = of([0, 1, 0, 1], np.uint32), of([2, 4, 4], np.uint32)
    >>> check_nodes(of([0, 2, 4]), words, first, of([ROOT, ROOT, 0, 1], np.uint32))
    >>> check_nodes(of([0, 2, 4]), words, first, of([ROOT, ROOT, 0, 2], np.uint32))
    Traceback (most recent call last):
    ...
    firth.errors.ArtifactError: the 2-grams contradict each other: copy the folder again, or train the model again.
    """
    if np.any(first[levels[:-1]] != levels[1:]):
        raise ArtifactError(f"the array 'first' does not fit the array 'levels': {_AGAIN}.")
    for n, (begin, end) in enumerate(pairwise(levels.tolist()), start=1):
        children = int(levels[n + 1]) if n + 1 < levels.size else 0
        threads = 1 if end - begin < _PARALLEL_NODES else cores()
        cuts = np.linspace(begin, end, threads + 1).astype(np.int64).tolist()

        def has_fault(nodes: tuple[int, int], first_node: int = begin, end_of_children: int = children) -> bool:
            return bool(find_fault(words, first, links, *nodes, first_node, end_of_children, int(levels[1])))

        if any(in_order(has_fault, pairwise(cuts), threads)):
            raise ArtifactError(f"the {n}-grams contradict each other: {_AGAIN}.")


def check_links(trie: Trie) -> None:
    """Raise `ArtifactError` unless every suffix link is the longest suffix in the trie: for `firth verify`."""
    if not np.array_equal(find_links(trie.levels, trie.words, trie.first), trie.links):
        raise ArtifactError(f"a suffix link is not the longest suffix of its n-gram: {_AGAIN}.")


@njit(cache=True, nogil=True)
def find_fault(
    words: Any, first: Any, links: Any, begin: Any, end: Any, level_begin: Any, children_end: Any, vocab_size: Any
) -> Any:
    """Whether a node from `begin` to `end`, of the level from `level_begin` on, is not one of a trie.

    `children_end` is the end of the next level, 0 for the highest level.
    """
    for node in range(begin, end):
        if words[node] >= vocab_size:
            return True
        if level_begin == 0:
            if links[node] != ROOT or words[node] != node:
                return True
        elif links[node] >= level_begin:
            return True
        if children_end:
            low, high = np.int64(first[node]), np.int64(first[node + 1])
            if low > high or high > children_end:
                return True
            for child in range(low + 1, high):
                if words[child] <= words[child - 1]:
                    return True
    return False


def saved_json(arrays: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The JSON object in a saved array of bytes."""
    try:
        found = json.loads(saved_array(arrays, name, np.uint8, (None,)).tobytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ArtifactError(f"the array {name!r} holds no JSON object: {_AGAIN}.")
    return found
