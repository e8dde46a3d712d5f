"""The algebra of counts: tries are added and subtracted, exactly as if the texts themselves had been.

Level by level, the nodes of all tries are put in order by `number of the prefix << 32 | last word` in the merged trie,
and the counts of equal ones are added up. Every trie sorts its n-grams by their words, and so does the merged one: for
two nodes a < b of a level of one trie, the merged numbers are in the same order (by induction: either the prefixes
differ, and their numbers are in order, or the last words do). So each trie gives its keys already sorted, and a merge
with a small buffer for each is enough; where word ids change, a trie is sorted anew first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from firth.counts import _merge_kernels as kernels
from firth.counts.trie import ROOT, Trie
from firth.errors import CorpusError, RecipeError

GONE = ROOT
"""In a mapping: a word that is not in the new vocabulary. It must never have been counted."""

_MOST_NODES = (1 << 32) - 2
_SLOTS = 1 << 16  # keys of each trie in memory at a time
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]


def combine(tries: Sequence[Trie], signs: Sequence[int], mappings: Sequence[Words | None], vocabulary: int) -> Trie:
    """The trie of the sum of counts: of all the texts with sign +1, without those with sign -1.

    It is equal, array by array, to the trie that counting the resulting text would give. `mappings[i][w]` is the new id
    of word w of trie i, or GONE; None keeps the ids. The tries must be complete: nothing may have been pruned.

    >>> from firth.counts.counting import count_sentences
    >>> one = count_sentences([[5, 6]], vocabulary=7, order=2)
    >>> two = count_sentences([[5, 5]], vocabulary=6, order=2)
    >>> both = combine([one, two], [1, 1], [None, None], 7)
    >>> int(both.counts[5])
    3
    >>> bool(np.array_equal(combine([both, two], [1, -1], [None, None], 7).words, one.words))
    True
    """
    if not len(tries) == len(signs) == len(mappings) > 0 or any(sign not in (1, -1) for sign in signs):
        raise ValueError("each of one or more tries needs a sign, 1 or -1, and a mapping or None")
    orders = sorted({trie.order for trie in tries})
    if len(orders) > 1:
        raise RecipeError(f"counts of orders {orders} cannot be added: train all models with the same order.")
    renumbered = [_renumbered(trie, mapping, vocabulary) for trie, mapping in zip(tries, mappings, strict=True)]
    if len(tries) == 1 and signs[0] > 0 and renumbered[0].vocabulary == vocabulary:
        return renumbered[0]
    merged = merge_tries(renumbered, signs, vocabulary, ListSink, _SLOTS)
    return without_zeros(merged) if min(signs) < 0 else merged


class Sink(Protocol):
    """An array that is written from front to back."""

    def write(self, part: npt.NDArray[Any]) -> None: ...

    def array(self) -> npt.NDArray[Any]:
        """All that was written; nothing can be added afterwards."""


class ListSink:
    """A sink in memory."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[npt.NDArray[Any]] = []

    def write(self, part: npt.NDArray[Any]) -> None:
        self._parts.append(part.astype(self._dtype))

    def array(self) -> npt.NDArray[Any]:
        joined = np.concatenate([np.zeros(0, dtype=self._dtype), *self._parts])
        self._parts.clear()
        return joined


NewSink = Callable[[npt.DTypeLike], Sink]


def merge_tries(tries: Sequence[Trie], signs: Sequence[int], vocabulary: int, new_sink: NewSink, slots: int) -> Trie:
    """The sum of tries that share their word ids; n-grams whose count became 0 are still nodes.

    No more than `slots` nodes of each trie are in memory at a time, whatever the sinks do.
    """
    writer = _Writer(_add_unigrams(tries, signs, vocabulary), new_sink, slots)
    buffers = _Buffers.of(len(tries), slots)
    numbers: list[Words] = [np.arange(vocabulary, dtype=np.uint32)] * len(tries)
    order = tries[0].order
    for n in range(2, order + 1):
        readers = [
            _Reader(trie, n, sign, number, new_sink, slots)
            for trie, sign, number in zip(tries, signs, numbers, strict=True)
        ]
        _merge_level(readers, buffers, writer)
        numbers = [reader.numbers.array() for reader in readers] if n < order else []
    return writer.trie()


def _add_unigrams(tries: Sequence[Trie], signs: Sequence[int], vocabulary: int) -> Numbers:
    counts = np.zeros(vocabulary, dtype=np.int64)
    for trie, sign in zip(tries, signs, strict=True):
        part = counts[: trie.vocabulary]
        (np.add if sign > 0 else np.subtract)(part, trie.counts[trie.level(1)], out=part)
    return counts


@dataclass(frozen=True)
class _Buffers:
    """A row for each trie and one for the merged nodes; see the kernels."""

    keys: npt.NDArray[np.uint64]
    counts: Numbers
    links: Words
    numbers: Words
    filled: Numbers
    taken: Numbers
    out_keys: npt.NDArray[np.uint64]
    out_counts: Numbers
    out_links: Words

    @classmethod
    def of(cls, rows: int, slots: int) -> _Buffers:
        square = (rows, slots)
        return cls(
            *(np.empty(square, dtype=dtype) for dtype in (np.uint64, np.int64, np.uint32, np.uint32)),
            *(np.zeros(rows, dtype=np.int64) for _ in range(2)),
            *(np.empty(slots, dtype=dtype) for dtype in (np.uint64, np.int64, np.uint32)),
        )


def bytes_of_buffers(rows: int, slots: int) -> int:
    """The memory that a merge of so many tries takes, but for a few arrays over the vocabulary."""
    return (24 * rows + 64) * slots


def _merge_level(readers: Sequence[_Reader], buffers: _Buffers, writer: _Writer) -> None:
    buffers.filled[:] = buffers.taken[:] = 0
    while True:
        for row in np.flatnonzero(buffers.taken == buffers.filled).tolist():
            readers[row].refill(buffers, row)
        if not buffers.filled.any():
            break
        merged = kernels.merge_rows(
            buffers.keys, buffers.counts, buffers.links, buffers.filled, buffers.taken, buffers.numbers, writer.size,
            buffers.out_keys, buffers.out_counts, buffers.out_links,
        )  # fmt: skip
        writer.add(buffers.out_keys[:merged], buffers.out_counts[:merged], buffers.out_links[:merged])
    writer.end_level()


class _Reader:
    """Hands out the nodes of one level of one trie, in the numbering of the merged trie."""

    def __init__(self, trie: Trie, n: int, sign: int, numbers: Words, new_sink: NewSink, slots: int) -> None:
        self._level, above = trie.level(n), trie.level(n - 1)
        self._node, self._parent, self._above = self._level.start, above.start, above.start
        self._first, self._words = _locked(trie.first), _locked(trie.words)
        self._upper = _locked(numbers[: above.stop - above.start])
        self._counts, self._sign = trie.counts, sign
        self._links = self._translate(trie.links, new_sink, slots)
        self._has_more_levels = n < trie.order
        self.numbers = new_sink(np.uint32)
        """The merged number of each node that was handed out."""

    def _translate(self, links: Words, new_sink: NewSink, slots: int) -> Words:
        """The links of the level in the new numbering.

        The suffix of an n-gram is on the level above, as its prefix is. Looking its number up jumps to and fro, so it
        is done trie by trie before the merge: then only the numbers of one level of one trie need be at hand.
        """
        sink = new_sink(np.uint32)
        for begin in range(self._level.start, self._level.stop, slots):
            old = links[begin : min(begin + slots, self._level.stop)]
            sink.write(_look_up(self._upper, self._above, old))
        return sink.array()

    def refill(self, buffers: _Buffers, row: int) -> None:
        """Puts the next nodes into the row, after keeping the numbers that those before were given."""
        if self._has_more_levels and buffers.filled[row]:
            self.numbers.write(buffers.numbers[row, : buffers.filled[row]])
        begin, end = self._node, min(self._node + buffers.keys.shape[1], self._level.stop)
        nodes, slots = slice(begin, end), slice(0, end - begin)
        self._parent = kernels.read_keys(
            self._first, self._words, self._upper, self._above, self._parent, begin, buffers.keys[row, slots]
        )
        if self._parent < 0:
            raise ValueError("the nodes of a trie are not sorted")
        np.multiply(self._counts[nodes], self._sign, out=buffers.counts[row, slots], casting="unsafe", dtype=np.int64)
        buffers.links[row, slots] = self._links[begin - self._level.start : end - self._level.start]
        buffers.filled[row], buffers.taken[row] = end - begin, 0
        self._node = end


def _look_up(numbers: Words, above: int, links: Words) -> Words:
    """The new numbers of the nodes that links lead to: all of the level that begins with node `above`."""
    places = links - np.uint32(above)  # wraps around for lower levels
    if places.max(initial=0) >= numbers.size:
        raise RecipeError("counts that were pruned cannot be added or subtracted: train the model without pruning.")
    return np.asarray(numbers[places])


def _locked(array: Words) -> Words:
    """A read-only view, so that kernels are compiled once for memory and for mapped files."""
    view = array[:]
    view.flags.writeable = False
    return view


class _Writer:
    """Writes the merged trie from front to back."""

    def __init__(self, unigrams: Numbers, new_sink: NewSink, slots: int) -> None:
        self._slots = slots
        self._words, self._first, self._links = (new_sink(np.uint32) for _ in range(3))
        self._counts = new_sink(fitting(unigrams))
        self._levels = [0]
        self._parent = 0  # the first node that has not been told its children
        self.size = unigrams.size
        _refuse_negative(unigrams)
        self._words.write(np.arange(self.size, dtype=np.uint32))
        self._links.write(np.full(self.size, ROOT, dtype=np.uint32))
        self._counts.write(unigrams)
        self._levels.append(self.size)

    def add(self, keys: npt.NDArray[np.uint64], counts: Numbers, links: Words) -> None:
        """The next nodes of the level."""
        if self.size + keys.size > _MOST_NODES:
            raise RecipeError("there are more than four thousand million n-grams: lower the order or count less text.")
        _refuse_negative(counts)
        parents = (keys >> _HALF).astype(np.uint32)
        self._tell_parents(parents, int(parents[-1]) + 1)
        self._words.write(keys.astype(np.uint32))
        self._counts.write(counts)
        self._links.write(links)
        self.size += keys.size

    def end_level(self) -> None:
        """All nodes of the level have been added."""
        self._tell_parents(np.zeros(0, dtype=np.uint32), self._levels[-1])
        self._levels.append(self.size)

    def _tell_parents(self, parents: Words, end: int) -> None:
        """Writes where the children of the nodes below `end` begin; `parents` are those of the nodes from `size` on."""
        for begin in range(self._parent, end, self._slots):
            some = np.arange(begin, min(begin + self._slots, end), dtype=np.uint32)
            self._first.write(np.searchsorted(parents, some) + self.size)
        self._parent = end

    def trie(self) -> Trie:
        self._first.write(np.array([self.size]))
        levels = np.array(self._levels, dtype=np.int64)
        return Trie(levels, *(sink.array() for sink in (self._words, self._first, self._links, self._counts)))


def fitting(unigrams: npt.NDArray[Any]) -> npt.DTypeLike:
    """The type of all counts: uint32, or int64 where that is too small. No n-gram occurs more often than its words."""
    return np.uint32 if unigrams.max(initial=0) <= np.iinfo(np.uint32).max else np.int64


def _refuse_negative(counts: Numbers) -> None:
    if counts.min(initial=0) < 0:
        raise CorpusError(
            "the text to remove was not part of the text that was counted: remove only documents that the model was "
            "trained on, unchanged."
        )


def without_zeros(trie: Trie) -> Trie:
    """The trie without the n-grams that no longer occur; words of the vocabulary stay.

    What is left of a complete trie is complete: prefix and suffix of an n-gram occur at least as often as itself.
    """
    kept = trie.counts > 0
    kept[trie.level(1)] = True
    if kept.all():
        return trie
    before = np.zeros(kept.size + 1, dtype=np.uint32)
    np.cumsum(kept, out=before[1:])
    links = trie.links[kept]
    links[trie.vocabulary :] = before[links[trie.vocabulary :]]
    first = np.append(before[trie.first[:-1][kept[: trie.contexts]]], before[-1])
    return Trie(before[trie.levels].astype(np.int64), trie.words[kept], first, links, trie.counts[kept])


def _renumbered(trie: Trie, mapping: Words | None, vocabulary: int) -> Trie:
    if mapping is None and trie.vocabulary <= vocabulary:
        return trie
    if mapping is None or mapping.size != trie.vocabulary:
        raise ValueError("a mapping must give a new id to every word")
    if mapping.size <= vocabulary and np.array_equal(mapping, np.arange(mapping.size)):
        return trie
    return renumber(trie, mapping, vocabulary)


def renumber(trie: Trie, mapping: Words, vocabulary: int) -> Trie:
    """The trie of the same text with other word ids; words that are mapped to one id become one word."""
    mapping = np.asarray(mapping, dtype=np.uint32)
    stays = mapping != GONE
    unigrams = trie.counts[trie.level(1)].astype(np.int64)
    if mapping[stays].max(initial=0) >= max(vocabulary, 1) or unigrams[~stays].any():
        raise ValueError("a mapping must lead to the new vocabulary, or to GONE for words that do not occur")
    counts = np.zeros(vocabulary, dtype=np.int64)
    np.add.at(counts, mapping[stays], unigrams[stays])
    writer = _Writer(counts, ListSink, max(int(trie.levels[-1]), vocabulary, 1))
    numbers = mapping
    for n in range(2, trie.order + 1):
        numbers = _renumber_level(trie, n, mapping, numbers, writer)
    return writer.trie()


def _renumber_level(trie: Trie, n: int, mapping: Words, numbers: Words, writer: _Writer) -> Words:
    """Sorts a level anew and adds up what became equal; returns the new numbers of its nodes."""
    level, above = trie.level(n), trie.level(n - 1)
    keys = np.repeat(numbers.astype(np.uint64) << _HALF, np.diff(trie.first[above.start : above.stop + 1]))
    keys |= mapping[trie.words[level]]
    order = np.argsort(keys)
    keys = keys[order]
    fresh = np.append(np.ones(min(keys.size, 1), dtype=np.bool_), keys[1:] != keys[:-1])
    begins = np.flatnonzero(fresh)
    new_numbers = np.empty(keys.size, dtype=np.uint32)
    new_numbers[order] = np.cumsum(fresh) + (writer.size - 1)
    if keys.size:
        counts = np.add.reduceat(trie.counts[level][order], begins, dtype=np.int64)
        links = _look_up(numbers, above.start, trie.links[level][order[begins]])
        writer.add(keys[begins], counts, links)
    writer.end_level()
    return new_numbers
