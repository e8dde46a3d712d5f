"""Numba kernels that find phrases and names in tokens.

A word is identified by a hash of its tokens, h <- (h + token + 1) x odd number. Tables of hashes are sorted.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

BEGINS, CONTINUES = 1, 2  # literal, because kernels are compiled; `units` checks them


@njit(cache=True, nogil=True)
def add_token(key: Any, token: Any) -> Any:
    """The hash of some tokens and one more."""
    return (key + np.uint64(token) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def pair_key(left: Any, right: Any) -> Any:
    """The hash of two adjacent words."""
    return (left ^ (right >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9) + right


@njit(cache=True, nogil=True)
def is_in(key: Any, table: Any) -> Any:
    """Whether a sorted table has a key."""
    low, high = 0, table.size
    while low < high:
        middle = (low + high) // 2
        if table[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low < table.size and table[low] == key


@njit(cache=True, nogil=True)
def word_end(position: Any, end: Any, starts: Any) -> Any:
    """Where the word at a position ends, in a sentence that ends at `end`."""
    position += 1
    while position < end and not starts[position]:
        position += 1
    return position


@njit(cache=True, nogil=True)
def word_key(ids: Any, begin: Any, end: Any) -> Any:
    """The hash of a word."""
    key = np.uint64(0)
    for position in range(begin, end):
        key = add_token(key, ids[position])
    return key


@njit(cache=True, nogil=True)
def hash_ranges(ids: Any, begins: Any, ends: Any) -> Any:
    """The hashes of ranges of tokens."""
    found = np.empty(begins.size, dtype=np.uint64)
    for number in range(begins.size):
        found[number] = word_key(ids, begins[number], ends[number])
    return found


@njit(cache=True, nogil=True)
def hash_words(ids: Any, starts: Any, sentences: Any, limit: Any) -> Any:
    """The hashes of the first words of a text, their first tokens, ends, and whether each begins a sentence."""
    keys, begins = np.empty(limit, dtype=np.uint64), np.empty(limit, dtype=np.int64)
    ends, initial = np.empty(limit, dtype=np.int64), np.empty(limit, dtype=np.bool_)
    count = 0
    for sentence in range(sentences.size - 1):
        position = sentences[sentence]
        while position < sentences[sentence + 1] and count < limit:
            end = word_end(position, sentences[sentence + 1], starts)
            keys[count], begins[count], ends[count] = word_key(ids, position, end), position, end
            initial[count] = position == sentences[sentence]
            count += 1
            position = end
    return keys[:count], begins[:count], ends[:count], initial[:count]


@njit(cache=True, nogil=True)
def _mark(values: Any, begin: Any, end: Any) -> None:
    values[begin:end] = CONTINUES
    values[begin] = BEGINS


@njit(cache=True, nogil=True)
def mark_phrases(ids: Any, starts: Any, sentences: Any, pairs: Any, longest: Any, values: Any) -> None:
    """Mark runs of at most `longest` words of which each two adjacent ones are a known pair."""
    for sentence in range(sentences.size - 1):
        position, first, words, before = sentences[sentence], sentences[sentence], 0, np.uint64(0)
        last = sentences[sentence + 1]
        while position < last:
            end = word_end(position, last, starts)
            key = word_key(ids, position, end)
            if words and words < longest and is_in(pair_key(before, key), pairs):
                words += 1
            else:
                if words > 1:
                    _mark(values, first, position)
                first, words = position, 1
            before, position = key, end
        if words > 1:
            _mark(values, first, last)


@njit(cache=True, nogil=True)
def mark_names(
    ids: Any, starts: Any, sentences: Any, capitals: Any, is_word: Any, is_letter: Any, proper: Any, names: Any,
    values: Any,
) -> None:  # fmt: skip
    """Mark runs of capitalised words, but no single letters, and single words of the table `names`.

    The first word of a sentence counts as capitalised only if it is in `proper`.
    """
    for sentence in range(sentences.size - 1):
        position, last, first = sentences[sentence], sentences[sentence + 1], np.int64(-1)
        while position < last:
            end = word_end(position, last, starts)
            key = word_key(ids, position, end)
            capital = capitals[position] and is_word[ids[position]]
            if capital and position == sentences[sentence]:
                capital = is_in(key, proper)
            if not capital and first >= 0:
                if position - first > 1 or not is_letter[ids[first]]:
                    _mark(values, first, position)
                first = np.int64(-1)
            elif capital and first < 0:
                first = position
            if not capital and is_in(key, names):
                _mark(values, position, end)
            position = end
        if first >= 0 and (last - first > 1 or not is_letter[ids[first]]):
            _mark(values, first, last)


@njit(cache=True, nogil=True)
def _is_bound(position: Any, end: Any, ids: Any, starts: Any, alone: Any) -> Any:
    """Whether an entry may begin or end before a token: between words, or beside a character that is a token."""
    return position == end or starts[position] or alone[ids[position]] or alone[ids[position - 1]]


@njit(cache=True, nogil=True)
def mark_entries(
    ids: Any, starts: Any, sentences: Any, alone: Any, table: Any, numbers: Any, longest: Any, spans: Any, links: Any
) -> None:
    """Find the longest entry of a gazetteer at each token, from left to right.

    `table` has the hashes of entries, `numbers` their entities, `longest` the maximal length of one that begins with
    each token. Entries are marked over any other of the `spans`; a span that an entry begins or ends within is
    removed. The first token of an entry has its entity in `links`. Spans or links of size 0 are not written.
    """
    for sentence in range(sentences.size - 1):
        position, last = sentences[sentence], sentences[sentence + 1]
        while position < last:
            length, which = np.int64(0), np.int64(0)
            if longest[ids[position]] and _is_bound(position, last, ids, starts, alone):
                key = np.uint64(0)
                for step in range(min(longest[ids[position]], last - position)):
                    key = add_token(key, ids[position + step])
                    after = position + step + 1
                    if is_in(key, table) and _is_bound(after, last, ids, starts, alone):
                        length, which = np.int64(step + 1), np.searchsorted(table, key)
            if not length:
                position += 1
                continue
            if links.size:
                links[position] = numbers[which]
            if spans.size:
                _clear(spans, position, position + length, sentences[sentence], last)
                _mark(spans, position, position + length)
            position += length


@njit(cache=True, nogil=True)
def _clear(values: Any, begin: Any, end: Any, first: Any, last: Any) -> None:
    """Remove the spans that a range cuts."""
    if values[begin] == CONTINUES:
        before = begin
        while before >= first and values[before] == CONTINUES:
            values[before] = 0
            before -= 1
        if before >= first:
            values[before] = 0
    while end < last and values[end] == CONTINUES:
        values[end] = 0
        end += 1
