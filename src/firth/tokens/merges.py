"""Training the merges of byte-pair encoding and of WordPiece on word counts.

Tokens and merges equal those of the `BpeTrainer` of the `tokenizers` library, ties included; where that library orders
randomly (the prefixed characters of WordPiece) the order is fixed here.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.errors import TokenizerError

Merge = tuple[str, str]
_CODES = 0x110000  # code points of Unicode


def learn_merges(
    words: Mapping[str, int], size: int, *, alphabet: Sequence[str] = (), prefix: str = "", min_count: int = 1
) -> tuple[list[str], list[Merge]]:
    """At most `size` tokens in the order of their ids, and the merges in order.

    The tokens are the characters of `words` and of `alphabet` by code point (or the `size` most frequent), then the
    merges of the most frequent adjacent pair (at equal counts the one with the smaller ids), while it occurs at least
    `min_count` times. With a `prefix`, as in WordPiece, all characters but the first of a word carry it.

    >>> tokens, merges = learn_merges({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 14)
    >>> tokens
    ['d', 'e', 'i', 'l', 'n', 'o', 'r', 's', 't', 'w', 'es', 'est', 'lo', 'low']
    >>> merges
    [('e', 's'), ('es', 't'), ('l', 'o'), ('lo', 'w')]
    """
    symbols = _Symbols(words)
    plain = symbols.count_characters()
    plain |= dict.fromkeys(alphabet, sum(plain.values()) + 1)  # more frequent than any
    inner = symbols.count_characters(symbols.inner) if prefix else {}
    counts = plain | {prefix + character: count for character, count in inner.items()}
    tokens = [*sorted(plain), *(prefix + character for character in sorted(inner))]
    if len(tokens) >= size:
        kept = set(sorted(tokens, key=lambda token: -counts[token])[:size])
        return [token for token in tokens if token in kept], []
    ids = {token: index for index, token in enumerate(tokens)}
    symbols.assign({character: ids[character] for character in plain})
    if prefix:
        symbols.assign({character: ids[prefix + character] for character in inner}, symbols.inner)
    return tokens, _learn(symbols, tokens, size, min_count, prefix=prefix)


def extend_merges(
    words: Mapping[str, int],
    tokens: Sequence[str],
    merges: Sequence[Merge],
    size: int,
    *,
    min_count: int = 1,
    new_characters: bool = False,
) -> tuple[list[str], list[Merge]]:
    """The tokens and merges of a byte-pair encoding extended on `words`, up to `size` tokens.

    Old tokens keep their ids. With `new_characters`, unknown characters follow by frequency and then code point; any
    that remain unknown are skipped. Then pairs are merged, after the old merges were applied.

    >>> extend_merges({"newer": 3, "wer": 2}, ["e", "n", "r", "w", "er"], [("e", "r")], 7)
    (['e', 'n', 'r', 'w', 'er', 'wer', 'ewer'], [('e', 'r'), ('w', 'er'), ('e', 'wer')])
    """
    symbols = _Symbols(words)
    extended = list(tokens)
    if new_characters:
        counts = symbols.count_characters()
        new = sorted(counts.keys() - set(tokens), key=lambda character: (-counts[character], character))
        extended += new[: max(size - len(tokens), 0)]
    if len(extended) >= size:
        return extended, list(merges)
    ids = {token: index for index, token in enumerate(extended)}
    symbols.assign({token: ids[token] for token in extended if len(token) == 1})
    symbols.merge(ids, merges)
    return extended, _learn(symbols, extended, size, min_count, merges=merges)


def _learn(
    symbols: _Symbols, tokens: list[str], size: int, min_count: int, *, prefix: str = "", merges: Iterable[Merge] = ()
) -> list[Merge]:
    """The given merges followed by new ones; new tokens are appended to `tokens`."""
    ids = {token: index for index, token in enumerate(tokens)}
    learned = dict.fromkeys(merges)
    answer = np.zeros(1, dtype=np.int64)
    for key in symbols.best_pairs(min_count, answer):
        left, right = tokens[key >> HALF], tokens[key & RIGHT]
        learned[left, right] = None
        merged = left + right.removeprefix(prefix)
        if merged not in ids:
            ids[merged] = len(tokens)
            tokens.append(merged)
        answer[0] = ids[merged] if len(tokens) < size else -1
    return list(learned)


class _Symbols:
    """All words as one array of symbols."""

    def __init__(self, words: Mapping[str, int]) -> None:
        counts = {word: count for word, count in words.items() if word and count > 0}
        if not counts:
            raise TokenizerError("there are no words to learn tokens from: give more text.")
        data = "".join(counts).encode("utf-32-le", "surrogatepass")
        lengths = np.fromiter(map(len, counts), dtype=np.int64, count=len(counts))
        self._codes = np.frombuffer(data, dtype=np.uint32)
        self._counts = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
        self._words = np.repeat(np.arange(len(counts), dtype=np.int32), lengths)
        self._symbols = np.full(self._codes.size, GONE, dtype=np.int32)
        self.inner = np.diff(self._words, prepend=-1) == 0  # characters that are not the first of their words

    def count_characters(self, where: npt.NDArray[np.bool_] | slice = slice(None)) -> dict[str, int]:
        counts = np.bincount(self._codes[where], weights=self._counts[self._words[where]])
        return {chr(code): int(counts[code]) for code in np.flatnonzero(counts).tolist()}

    def assign(self, ids: Mapping[str, int], where: npt.NDArray[np.bool_] | slice = slice(None)) -> None:
        """Set the symbols of characters to their ids; unknown characters are skipped."""
        table = np.full(_CODES, GONE, dtype=np.int32)
        table[[ord(character) for character in ids]] = list(ids.values())
        self._symbols[where] = table[self._codes[where]]

    def merge(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> None:
        """Merge symbols as an encoder with these merges does."""
        rows = np.empty((len(merges), 2), dtype=np.int64)
        for row, (left, right) in zip(rows, merges, strict=True):
            if not {left, right, left + right} <= ids.keys():
                raise TokenizerError(
                    f"the vocabulary lacks a token of the merge {left!r} + {right!r}: train the tokenizer anew."
                )
            row[:] = ids[left] << HALF | ids[right], ids[left + right]
        self._drop_gone()
        apply_merges(self._symbols, self._words, rows)

    def best_pairs(self, min_count: int, answer: npt.NDArray[np.int64]) -> Any:
        self._drop_gone()
        return best_pairs(self._symbols, self._words, self._counts, min_count, answer)

    def _drop_gone(self) -> None:
        kept = self._symbols != GONE
        self._symbols, self._words = self._symbols[kept], self._words[kept]


# All words are concatenated in `symbols`; `before` and `after` link the remaining symbols of a word, and a symbol that
# was merged into the one on its left becomes GONE. Pairs, one row each, are found by open addressing on
# `left << 32 | right`; a chain of nodes has the positions where a pair arose. Neither chains nor the heap are updated:
# positions are checked again when they are used, and counts at the top of the heap. New pairs, linked through their
# rows, arose since the heap was last filled.
GONE = -1
HALF = 32
RIGHT = (1 << HALF) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 1 << 12  # positions counted between two checks of the capacity
_END, _ABSENT = -1, -2  # values of links besides numbers
KEY, COUNT, CHAIN, NEWER = range(4)  # columns of a row; CHAIN is the first node
POSITION, NEXT = range(2)  # columns of a node
ROWS, NODES, NEWEST = range(3)  # numbers of rows and nodes in use, and the first new pair


@njit(cache=True)
def _find(slots: Any, rows: Any, key: Any) -> Any:
    mask = np.uint64(slots.size - 1)
    slot = ((np.uint64(key) * _GOLDEN) >> np.uint64(HALF)) & mask
    while slots[slot] >= 0 and rows[slots[slot], KEY] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def _make_slots(rows: Any, used: Any, capacity: Any) -> Any:
    """A hash table of the first `used` rows, at most half full with `capacity` rows."""
    size = 16
    while size < 2 * capacity:
        size *= 2
    slots = np.full(size, -1, np.int32)
    for row in range(used):
        slots[_find(slots, rows, rows[row, KEY])] = row
    return slots


@njit(cache=True)
def _grown(old: Any, used: Any, capacity: Any) -> Any:
    new = np.empty((capacity, old.shape[1]), old.dtype)
    for row in range(used):  # slices would take Numba seconds to compile
        for column in range(old.shape[1]):
            new[row, column] = old[row, column]
    return new


@njit(cache=True)
def _reserve(slots: Any, pairs: Any, nodes: Any, used: Any, more: Any) -> Any:
    """The same arrays, or larger ones with capacity for pairs at `more` positions."""
    if used[NODES] + more > len(nodes):
        nodes = _grown(nodes, used[NODES], 2 * (used[NODES] + more))
    if used[ROWS] + more > len(pairs):
        pairs = _grown(pairs, used[ROWS], 2 * (used[ROWS] + more))
        slots = _make_slots(pairs, used[ROWS], len(pairs))
    return slots, pairs, nodes


@njit(cache=True)
def _link(words: Any) -> Any:
    before = np.full(words.size, _END, np.int32)
    after = np.full(words.size, _END, np.int32)
    for position in range(1, words.size):
        if words[position - 1] == words[position]:
            before[position] = position - 1
            after[position - 1] = position
    return before, after


@njit(cache=True)
def _add(slots: Any, pairs: Any, nodes: Any, used: Any, position: Any, key: Any, count: Any) -> Any:
    """Count a pair at `position`, and prepend the position to the pair's chain."""
    slot = _find(slots, pairs, key)
    row = slots[slot]
    if row < 0:
        row = slots[slot] = used[ROWS]
        used[ROWS] += 1
        pairs[row, KEY], pairs[row, COUNT], pairs[row, CHAIN], pairs[row, NEWER] = key, 0, _END, _ABSENT
    pairs[row, COUNT] += count
    if pairs[row, NEWER] == _ABSENT:
        pairs[row, NEWER], used[NEWEST] = used[NEWEST], row
    node = used[NODES]
    used[NODES] += 1
    nodes[node, POSITION], nodes[node, NEXT] = position, pairs[row, CHAIN]
    pairs[row, CHAIN] = node


@njit(cache=True)
def _count(symbols: Any, words: Any, after: Any, counts: Any) -> Any:
    """All adjacent pairs, as slots, rows and nodes, and the numbers in use."""
    used = np.zeros(3, np.int64)
    used[NEWEST] = _END
    slots = np.full(16, -1, np.int32)
    pairs = np.empty((0, 4), np.int64)
    nodes = np.empty((words.size + _BLOCK, 2), np.int32)
    for position in range(words.size):
        if position % _BLOCK == 0:
            slots, pairs, nodes = _reserve(slots, pairs, nodes, used, _BLOCK)
        if after[position] >= 0:
            key = np.int64(symbols[position]) << HALF | symbols[after[position]]
            _add(slots, pairs, nodes, used, position, key, counts[words[position]])
    return slots, pairs, nodes, used


@njit(cache=True)
def _queue(heap: Any, pairs: Any, used: Any) -> Any:
    row = used[NEWEST]
    while row != _END:
        if pairs[row, COUNT] > 0:
            heappush(heap, (-pairs[row, COUNT], pairs[row, KEY]))
        newer = pairs[row, NEWER]
        pairs[row, NEWER] = _ABSENT
        row = newer
    used[NEWEST] = _END


@njit(cache=True)
def _take_positions(pair: Any, nodes: Any, positions: Any) -> Any:
    """Move the positions of a pair's chain to the end of `positions`, in ascending order, and return them."""
    begin = positions.size
    ascending = True
    node = pair[CHAIN]
    while node != _END:
        begin -= 1
        positions[begin] = nodes[node, POSITION]
        ascending &= begin + 1 == positions.size or positions[begin] < positions[begin + 1]
        node = nodes[node, NEXT]
    pair[CHAIN] = _END
    if not ascending:  # the pair arose at different times, because another merge gives the same symbol
        positions[begin:].sort()
    return positions[begin:]


@njit(cache=True)
def _merge(
    symbols: Any, words: Any, before: Any, after: Any, counts: Any,
    slots: Any, pairs: Any, nodes: Any, used: Any, positions: Any, key: Any, merged: Any,
) -> Any:  # fmt: skip
    """Merge a pair wherever it still occurs among `positions`; it and its adjacent pairs are recounted."""
    row = slots[_find(slots, pairs, key)]
    left, right = key >> HALF, key & RIGHT
    for position in positions:
        other = after[position]
        if symbols[position] != left or other < 0 or symbols[other] != right:
            continue
        count = counts[words[position]]
        pairs[row, COUNT] -= count
        previous, following = before[position], after[other]
        symbols[position], symbols[other], after[position] = merged, GONE, following
        if previous >= 0:
            beside = np.int64(symbols[previous]) << HALF
            pairs[slots[_find(slots, pairs, beside | left)], COUNT] -= count
            _add(slots, pairs, nodes, used, previous, beside | merged, count)
        if following >= 0:
            before[following] = position
            beside = np.int64(symbols[following])
            pairs[slots[_find(slots, pairs, right << HALF | beside)], COUNT] -= count
            _add(slots, pairs, nodes, used, position, merged << HALF | beside, count)


@njit(cache=True)
def best_pairs(symbols: Any, words: Any, counts: Any, min_count: Any, answer: Any) -> Any:
    """Yield the most frequent pair, as `left << 32 | right`, until it occurs less than `min_count` times.

    `words` gives the word of each symbol and `counts` the count of each word. Before the next step the caller sets
    `answer[0]` to the merged symbol, or to a negative number to stop: memory is freed only at the end.
    """
    before, after = _link(words)
    slots, pairs, nodes, used = _count(symbols, words, after, counts)
    positions = np.empty(words.size, np.int32)
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]
    _queue(heap, pairs, used)
    while len(heap) > 0:
        count, key = heappop(heap)
        pair = pairs[slots[_find(slots, pairs, key)]]
        if -count != pair[COUNT]:
            if 0 < pair[COUNT] < -count:  # if it has become more frequent there is another heap entry
                heappush(heap, (-pair[COUNT], key))
            continue
        if -count < min_count:
            break
        yield key
        if answer[0] < 0:
            break
        chosen = _take_positions(pair, nodes, positions)
        slots, pairs, nodes = _reserve(slots, pairs, nodes, used, 2 * chosen.size)
        _merge(symbols, words, before, after, counts, slots, pairs, nodes, used, chosen, key, answer[0])
        _queue(heap, pairs, used)


@njit(cache=True)
def _rank(heap: Any, symbols: Any, after: Any, slots: Any, merges: Any, position: Any) -> Any:
    """Push a position onto the heap if the pair there is among the merges."""
    if after[position] >= 0:
        row = slots[_find(slots, merges, np.int64(symbols[position]) << HALF | symbols[after[position]])]
        if row >= 0:
            heappush(heap, np.int64(row) << HALF | position)


@njit(cache=True)
def apply_merges(symbols: Any, words: Any, merges: Any) -> Any:
    """Merge pairs as an encoder does, the earliest merge first; a row of `merges` is a pair and its symbol."""
    slots = _make_slots(merges, len(merges), len(merges))
    before, after = _link(words)
    heap = [np.int64(0) for _ in range(0)]
    for last in range(words.size):
        _rank(heap, symbols, after, slots, merges, last)
        if after[last] >= 0:
            continue  # not the end of the word
        while len(heap) > 0:
            top = heappop(heap)
            position = top & RIGHT
            other = after[position]
            if symbols[position] == GONE or other < 0:
                continue
            row = slots[_find(slots, merges, np.int64(symbols[position]) << HALF | symbols[other])]
            if row < 0 or merges[row, 1] != merges[top >> HALF, 1]:
                continue
            symbols[position], symbols[other], after[position] = merges[row, 1], GONE, after[other]
            _rank(heap, symbols, after, slots, merges, position)
            if after[position] >= 0:
                before[after[position]] = position
            if before[position] >= 0:
                _rank(heap, symbols, after, slots, merges, before[position])
