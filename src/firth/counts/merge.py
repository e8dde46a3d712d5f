"""Adding and subtracting the counts of tries, with the same result as counting the resulting text.

Level by level, the nodes of all tries are merged by the key `number of the prefix << 32 | last word` in the merged
trie, and the counts of equal keys are summed. Every trie sorts its n-grams by their words, and so does the merged one:
for two nodes a < b of a level of one trie, the merged numbers have the same order (by induction: either the prefixes
differ, and their numbers are in order, or the last words do). So each trie yields its keys already sorted, and a merge
with a small buffer for each is enough; where word ids change, a trie is sorted again first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from firth.counts import _count_kernels as kernels
from firth.counts.trie import MAX_NODES, ROOT, Integers, Trie, WordIds
from firth.errors import CorpusError, RecipeError

REMOVED = ROOT  # in a mapping: a word that must not occur in the text

_BUFFER_NODES = 1 << 16  # per trie


def combine(tries: Sequence[Trie], signs: Sequence[int], mappings: Sequence[WordIds | None], vocab_size: int) -> Trie:
    """The trie of the summed counts: all texts with sign +1, without those with sign -1.

    It is equal, array by array, to counting the resulting text. `mappings[i][w]` is the new id of word w of trie i, or
    REMOVED; None keeps the ids. The tries must be unpruned.

    >>> from firth.counts.counting import count_sentences
    >>> one = count_sentences([[5, 6]], vocab_size=7, order=2)
    >>> two = count_sentences([[5, 5]], vocab_size=6, order=2)
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
    mapped = [_map_words(trie, mapping, vocab_size) for trie, mapping in zip(tries, mappings, strict=True)]
    if len(tries) == 1 and signs[0] > 0 and mapped[0].vocab_size == vocab_size:
        return mapped[0]
    merged = merge_tries(mapped, signs, vocab_size, ListSink, _BUFFER_NODES)
    if min(signs) > 0:
        return merged
    kept = merged.counts > 0  # prefix and suffix of an n-gram occur at least as often as the n-gram
    kept[merged.level(1)] = True
    return merged if kept.all() else merged.select(kept)


class Sink(Protocol):
    """An array that is written sequentially."""

    def write(self, part: npt.NDArray[Any]) -> None: ...

    def array(self) -> npt.NDArray[Any]:
        """Everything written; nothing can be added afterwards."""


class ListSink:
    """A sink in memory."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._parts: list[npt.NDArray[Any]] = [np.zeros(0, dtype=dtype)]

    def write(self, part: npt.NDArray[Any]) -> None:
        self._parts.append(part.astype(self._parts[0].dtype))

    def array(self) -> npt.NDArray[Any]:
        joined = np.concatenate(self._parts)
        self._parts.clear()
        return joined


NewSink = Callable[[npt.DTypeLike], Sink]


def merge_tries(tries: Sequence[Trie], signs: Sequence[int], vocab_size: int, new_sink: NewSink, slots: int) -> Trie:
    """The sum of tries with the same word ids, `slots` nodes of each in memory; n-grams of count 0 remain nodes."""
    unigrams = np.zeros(vocab_size, dtype=np.int64)
    for trie, sign in zip(tries, signs, strict=True):
        part = unigrams[: trie.vocab_size]
        (np.add if sign > 0 else np.subtract)(part, trie.counts[trie.level(1)], out=part)
    writer = _TrieWriter(unigrams, new_sink, slots)
    buffers = _Buffers(
        *(np.empty((len(tries), slots), dtype=dtype) for dtype in (np.uint64, np.int64, np.uint32, np.uint32)),
        *(np.zeros(len(tries), dtype=np.int64) for _ in range(2)),
        *(np.empty(slots, dtype=dtype) for dtype in (np.uint64, np.int64, np.uint32)),
    )
    numbers: list[WordIds] = [np.arange(vocab_size, dtype=np.uint32)] * len(tries)
    order = tries[0].order
    for n in range(2, order + 1):
        readers = [
            _LevelReader(trie, n, sign, number, new_sink, slots)
            for trie, sign, number in zip(tries, signs, numbers, strict=True)
        ]
        _merge_level(readers, buffers, writer)
        numbers = [reader.numbers.array() for reader in readers] if n < order else []
    return writer.trie()


class _Buffers(NamedTuple):
    """One row per trie and one for the merged nodes, as the kernels define them."""

    keys: npt.NDArray[np.uint64]
    counts: Integers
    links: WordIds
    numbers: WordIds
    filled: Integers
    taken: Integers
    out_keys: npt.NDArray[np.uint64]
    out_counts: Integers
    out_links: WordIds


def _merge_level(readers: Sequence[_LevelReader], buffers: _Buffers, writer: _TrieWriter) -> None:
    buffers.filled[:] = buffers.taken[:] = 0
    while True:
        for row in np.flatnonzero(buffers.taken == buffers.filled).tolist():
            readers[row].refill(buffers, row)
        if not buffers.filled.any():
            break
        merged = kernels.merge_rows(writer.size, *buffers)
        writer.add(buffers.out_keys[:merged], buffers.out_counts[:merged], buffers.out_links[:merged])
    writer.end_level()


class _LevelReader:
    """Reads the nodes of one level of one trie, in the numbering of the merged trie."""

    def __init__(self, trie: Trie, n: int, sign: int, numbers: WordIds, new_sink: NewSink, slots: int) -> None:
        self._level, above = trie.level(n), trie.level(n - 1)
        self._node, self._parent, self._above = self._level.start, above.start, above.start
        self._first, self._words = _read_only(trie.first), _read_only(trie.words)
        self._upper = _read_only(numbers[: above.stop - above.start])
        self._counts, self._sign = trie.counts, sign
        self._has_more_levels = n < trie.order
        self.numbers = new_sink(np.uint32)  # the merged number of each node read
        # The lookups of suffix links are random reads. Before the merge they need one level of one trie in memory.
        links = new_sink(np.uint32)
        for begin in range(self._level.start, self._level.stop, slots):
            old = trie.links[begin : min(begin + slots, self._level.stop)]
            links.write(_map_links(self._upper, self._above, old))
        self._links = links.array()

    def refill(self, buffers: _Buffers, row: int) -> None:
        """Reads the next nodes into the row, after saving the merged numbers of the previous ones."""
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


def _map_links(numbers: WordIds, above: int, links: WordIds) -> WordIds:
    """Suffix links in the merged numbering; all lead to the level that begins with node `above`."""
    offsets = links - np.uint32(above)  # wraps around for lower levels
    if offsets.max(initial=0) >= numbers.size:
        raise RecipeError("counts that were pruned cannot be added or subtracted: train the model without pruning.")
    return np.asarray(numbers[offsets])


def _read_only(array: WordIds) -> WordIds:
    """A read-only view, so that kernels are compiled once for memory and for mapped files."""
    view = array[:]
    view.flags.writeable = False
    return view


class _TrieWriter:
    def __init__(self, unigrams: Integers, new_sink: NewSink, slots: int) -> None:
        self._slots = slots
        self._words, self._first, self._links = (new_sink(np.uint32) for _ in range(3))
        # No n-gram occurs more often than its words, so the unigrams decide the type of all counts.
        self._counts = new_sink(np.uint32 if unigrams.max(initial=0) <= np.iinfo(np.uint32).max else np.int64)
        self._parent = 0  # the first node whose children are not yet written
        self.size = unigrams.size
        self._levels = [0, self.size]
        _refuse_negative(unigrams)
        self._words.write(np.arange(self.size, dtype=np.uint32))
        self._links.write(np.full(self.size, ROOT, dtype=np.uint32))
        self._counts.write(unigrams)

    def add(self, keys: npt.NDArray[np.uint64], counts: Integers, links: WordIds) -> None:
        """Appends nodes to the level."""
        if self.size + keys.size > MAX_NODES:
            raise RecipeError("there are more than four thousand million n-grams: lower the order or count less text.")
        _refuse_negative(counts)
        parents = (keys >> kernels.HALF).astype(np.uint32)
        self._write_first(parents, int(parents[-1]) + 1)
        self._words.write(keys.astype(np.uint32))
        self._counts.write(counts)
        self._links.write(links)
        self.size += keys.size

    def end_level(self) -> None:
        self._write_first(np.zeros(0, dtype=np.uint32), self._levels[-1])
        self._levels.append(self.size)

    def _write_first(self, parents: WordIds, end: int) -> None:
        """Writes the first child of the nodes below `end`; `parents` are those of the nodes from `size` on."""
        for begin in range(self._parent, end, self._slots):
            some = np.arange(begin, min(begin + self._slots, end), dtype=np.uint32)
            self._first.write(np.searchsorted(parents, some) + self.size)
        self._parent = end

    def trie(self) -> Trie:
        self._first.write(np.array([self.size]))
        levels = np.array(self._levels, dtype=np.int64)
        return Trie(levels, *(sink.array() for sink in (self._words, self._first, self._links, self._counts)))


def _refuse_negative(counts: Integers) -> None:
    if counts.min(initial=0) < 0:
        raise CorpusError(
            "the text to remove was not part of the text that was counted: remove only documents that the model was "
            "trained on, unchanged."
        )


def _map_words(trie: Trie, mapping: WordIds | None, vocab_size: int) -> Trie:
    if mapping is None and trie.vocab_size <= vocab_size:
        return trie
    if mapping is None or mapping.size != trie.vocab_size:
        raise ValueError("a mapping must give a new id to every word")
    if mapping.size <= vocab_size and np.array_equal(mapping, np.arange(mapping.size)):
        return trie
    return renumber(trie, mapping, vocab_size)


def renumber(trie: Trie, mapping: WordIds, vocab_size: int) -> Trie:
    """The trie of the same text with other word ids; words mapped to the same id are merged."""
    mapping = np.asarray(mapping, dtype=np.uint32)
    stays = mapping != REMOVED
    unigrams = trie.counts[trie.level(1)].astype(np.int64)
    if mapping[stays].max(initial=0) >= max(vocab_size, 1) or unigrams[~stays].any():
        raise ValueError("a mapping must lead to the new vocabulary, or to REMOVED for words that do not occur")
    counts = np.zeros(vocab_size, dtype=np.int64)
    np.add.at(counts, mapping[stays], unigrams[stays])
    writer = _TrieWriter(counts, ListSink, max(int(trie.levels[-1]), vocab_size, 1))
    numbers = mapping
    for n in range(2, trie.order + 1):
        numbers = _renumber_level(trie, n, mapping, numbers, writer)
    return writer.trie()


def _renumber_level(trie: Trie, n: int, mapping: WordIds, numbers: WordIds, writer: _TrieWriter) -> WordIds:
    """Sorts a level again and sums equal n-grams; returns the new numbers of its nodes."""
    level, above = trie.level(n), trie.level(n - 1)
    keys = np.repeat(numbers.astype(np.uint64) << kernels.HALF, np.diff(trie.first[above.start : above.stop + 1]))
    keys |= mapping[trie.words[level]]
    order = np.argsort(keys)
    keys = keys[order]
    is_new = np.append(np.ones(min(keys.size, 1), dtype=np.bool_), keys[1:] != keys[:-1])
    begins = np.flatnonzero(is_new)
    new_numbers = np.empty(keys.size, dtype=np.uint32)
    new_numbers[order] = np.cumsum(is_new) + (writer.size - 1)
    if keys.size:
        counts = np.add.reduceat(trie.counts[level][order], begins, dtype=np.int64)
        links = _map_links(numbers, above.start, trie.links[level][order[begins]])
        writer.add(keys[begins], counts, links)
    writer.end_level()
    return new_numbers
