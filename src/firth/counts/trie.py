"""Trie: every n-gram of a text up to an order, as a few flat arrays.

A node is an n-gram. Nodes are numbered level by level: the unigrams first, one for every word of the vocabulary (the
node number is the word id), then the bigrams, and so on. Within a level they are sorted by their words, so the children
of a node are contiguous and sorted by their last words.

    words[g]               the last word of node g
    first[g]:first[g+1]    the children of node g; nodes of the highest level have none
    links[g]               suffix link: the longest proper suffix of the n-gram that is a node; ROOT for unigrams
    counts[g]              the number of occurrences of the n-gram
    levels[n-1]:levels[n]  the nodes of the n-grams of length n

A sentence is counted as `<s> w1 ... wm </s>`: `<s>` occurs in histories and is never predicted, so that the
probabilities of all sentences sum to one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores, in_order
from firth.errors import ArtifactError
from firth.files import writing
from firth.tokens.tokenizer import BOS, MASK, PAD, UNK

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
WordIds = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

ROOT = np.uint32(0xFFFFFFFF)  # the node of the empty n-gram: the suffix link of all unigrams
MAX_NODES = (1 << 32) - 2
NEVER_PREDICTED = (PAD, BOS, MASK)  # tokens that never follow a history
_PARALLEL_NODES = 1 << 14  # levels with fewer children are linked in one thread
_LARGE = 255  # counts from here on are stored separately; nearly all are smaller
_PACK_BLOCK = 1 << 20  # counts packed at a time


@dataclass(frozen=True)
class Trie:
    """The n-grams of a text and their counts."""

    levels: Integers
    words: WordIds
    first: WordIds
    links: WordIds
    counts: Any  # uint32 or int64, one per node; or `PackedCounts`

    @property
    def order(self) -> int:
        return int(self.levels.size) - 1

    @property
    def vocab_size(self) -> int:
        """The size of level 1: all words, special tokens included."""
        return int(self.levels[1])

    @property
    def contexts(self) -> int:
        """The number of nodes that may have children: all below the highest level."""
        return int(self.levels[-2])

    def level(self, n: int) -> slice:
        """The nodes of the n-grams of length `n`."""
        return slice(int(self.levels[n - 1]), int(self.levels[n]))

    def find(self, words: Sequence[int]) -> int | None:
        """The node of an n-gram, or None if it does not occur.

        >>> from firth.counts.counting import count_sentences
        >>> trie = count_sentences([[5, 6, 5], [5, 7]], vocab_size=8, order=2)
        >>> [int(trie.counts[trie.find(ngram)]) for ngram in ([5], [5, 6], [2, 5], [7, 3])]
        [3, 1, 2, 1]
        """
        if not words:
            return None
        node = words[0]
        for word in words[1:]:
            if node >= self.contexts:
                return None
            begin, end = int(self.first[node]), int(self.first[node + 1])
            node = begin + int(np.searchsorted(self.words[begin:end], np.uint32(word)))
            if node == end or self.words[node] != word:
                return None
        return node

    def ngram(self, node: int) -> list[int]:
        n = int(np.searchsorted(self.levels, node, side="right"))
        words = [int(self.words[node])]
        for _ in range(n - 1):
            node = int(np.searchsorted(self.first, np.uint32(node), side="right")) - 1
            words.append(int(self.words[node]))
        return words[::-1]

    def select(self, kept: Mask) -> Trie:
        """The trie of the kept nodes: all unigrams, and with an n-gram its prefix and suffix."""
        before = np.zeros(kept.size + 1, dtype=np.uint32)
        np.cumsum(kept, out=before[1:])
        links = self.links[kept]
        links[self.vocab_size :] = before[links[self.vocab_size :]]
        first = np.append(before[self.first[:-1][kept[: self.contexts]]], before[-1])
        levels = before[self.levels].astype(np.int64)
        return Trie(levels, self.words[kept], first, links, np.asarray(self.counts)[kept])


def predictable_words(vocab_size: int, unknown: bool = True) -> Mask:
    """The mask of words that may follow: all but `<pad>`, `<s>`, `<mask>`, and `<unk>` in a closed vocabulary."""
    mask = np.ones(vocab_size, dtype=np.bool_)
    mask[list(NEVER_PREDICTED)] = False
    mask[UNK] = unknown
    return mask


def find_links(levels: Integers, words: WordIds, first: WordIds, threads: int | None = None) -> WordIds:
    """The suffix link of each node of a trie that was pruned or read from a file.

    Suffixes may be missing, as in pruned models; prefixes may not.

    >>> levels = np.array([0, 3, 5, 6])  # words 0 1 2, then 0 1 and 1 2, then 0 1 2
    >>> words = np.array([0, 1, 2, 1, 2, 2], dtype=np.uint32)
    >>> first = np.array([3, 4, 5, 5, 6, 6], dtype=np.uint32)
    >>> find_links(levels, words, first)[3:].tolist()
    [1, 2, 4]
    """
    from firth.counts._estimate_kernels import link_children

    links = np.full(words.size, ROOT, dtype=np.uint32)
    for n in range(1, levels.size - 1):
        begin, end = int(levels[n - 1]), int(levels[n])
        workers = 1 if int(levels[n + 1]) - end < _PARALLEL_NODES else cores(threads)
        parts = 4 * workers if workers > 1 else 1
        cuts = np.linspace(int(first[begin]), int(first[end]), parts + 1)[1:-1].astype(first.dtype)
        bounds = [begin, *(begin + np.searchsorted(first[begin:end], cuts)).tolist(), end]
        ranges = [(low, high) for low, high in pairwise(bounds) if low < high]
        list(in_order(lambda nodes: link_children(words, first, links, *nodes), ranges, workers))
    return links


class ArrayAllocator:
    """Allocates arrays in memory, or in unnamed files of a folder that disappear with the arrays, even after a kill.

    >>> ArrayAllocator().empty(3, np.float32).shape
    (3,)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def empty(self, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array: uninitialised in memory, zeros on disk."""
        if self.folder is None or size == 0:
            return np.empty(size, dtype=dtype)
        with writing(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
            file.truncate(size * np.dtype(dtype).itemsize)
            return np.asarray(np.memmap(file, dtype=dtype, mode="r+"))


class PackedCounts:
    """Counts that stay packed until they are read: scoring never needs them."""

    def __init__(self, small: npt.NDArray[np.uint8], indices: npt.NDArray[Any], large: npt.NDArray[Any]) -> None:
        self._small, self._indices, self._large = small, indices, large

    @property
    def size(self) -> int:
        return int(self._small.size)

    def __getitem__(self, item: Any) -> Any:
        return self.__array__()[item]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        fits = self._large.size == 0 or int(self._large.max()) < 1 << 32
        counts = self._small.astype(np.uint32 if fits else np.int64)
        counts[self._indices] = self._large
        return counts if dtype is None else counts.astype(dtype)


def pack_counts(counts: Any) -> dict[str, npt.NDArray[Any]]:
    """The arrays that store counts in an artifact.

    >>> {name: array.tolist() for name, array in pack_counts(np.array([1, 0, 300, 2])).items()}
    {'counts': [1, 0, 255, 2], 'large_indices': [2], 'large_counts': [300]}
    """
    if isinstance(counts, PackedCounts):
        return {"counts": counts._small, "large_indices": counts._indices, "large_counts": counts._large}
    indices = np.flatnonzero(counts >= _LARGE)
    small = np.empty(counts.size, dtype=np.uint8)
    for begin in range(0, small.size, _PACK_BLOCK):
        small[begin : begin + _PACK_BLOCK] = np.minimum(counts[begin : begin + _PACK_BLOCK], _LARGE)
    large = counts[indices].astype(np.int64)
    return {"counts": small, "large_indices": indices.astype(np.uint32), "large_counts": large}


def _is_large(counts: npt.NDArray[np.int64]) -> bool:
    """Whether these can be counts that are stored separately: their sum must not overflow."""
    return int(counts.min()) >= _LARGE and float(counts.sum(dtype=np.float64)) < 2.0**62


def unpack_counts(arrays: Mapping[str, Any], size: int) -> PackedCounts:
    """The packed counts of `pack_counts`; zeros if a model has none."""
    if "counts" not in arrays:
        return PackedCounts(np.zeros(size, np.uint8), np.zeros(0, np.uint32), np.zeros(0, np.int64))
    found: list[Any] = [arrays.get(name) for name in ("counts", "large_indices", "large_counts")]
    small, indices, large = found
    is_complete = not any(array is None for array in found)
    is_valid = is_complete and small.shape == (size,) and small.dtype == np.uint8 and indices.shape == large.shape
    is_valid = is_valid and indices.dtype == np.uint32 and large.dtype == np.int64 and large.ndim == 1
    if not is_valid or (indices.size and (int(indices.max()) >= size or not _is_large(large))):
        raise ArtifactError("the counts do not fit the n-grams: train the model again.")
    return PackedCounts(small, indices, large)
