"""Numba kernels of the structure of documents: repeated tokens and the first tokens of sentences."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.tokens._unit_kernels import add_token, is_in


@njit(cache=True, nogil=True)
def mark_repeats(ids: Any, sentences: Any, documents: Any, vocabulary: Any, values: Any) -> None:
    """Mark the tokens that occur in another sentence of their document, too."""
    first, repeated = np.full(vocabulary, -1, dtype=np.int64), np.full(vocabulary, -1, dtype=np.int64)
    for document in range(documents.size - 1):
        for sentence in range(documents[document], documents[document + 1]):
            for position in range(sentences[sentence], sentences[sentence + 1]):
                token = ids[position]
                if first[token] < documents[document]:
                    first[token] = sentence
                elif first[token] != sentence:
                    repeated[token] = document
        for position in range(sentences[documents[document]], sentences[documents[document + 1]]):
            values[position] = repeated[ids[position]] == document


@njit(cache=True, nogil=True)
def mark_openings(
    ids: Any, starts: Any, sentences: Any, chosen: Any, keys: Any, kinds: Any, longest: Any, commas: Any, values: Any
) -> None:
    """Mark the longest known beginning of chosen sentences, and a comma after it, with the kind of it.

    `keys` are sorted hashes of tokens, `kinds` their values. A beginning ends with a word, and is not the sentence.
    """
    for sentence in range(sentences.size - 1):
        begin, end = sentences[sentence], sentences[sentence + 1]
        if not chosen[sentence]:
            continue
        key, length, kind = np.uint64(0), np.int64(0), 0
        for step in range(min(longest, end - begin)):
            key = add_token(key, ids[begin + step])
            after = begin + step + 1
            if after < end and starts[after] and is_in(key, keys):
                length, kind = np.int64(step + 1), kinds[np.searchsorted(keys, key)]
        if length and begin + length < end and commas[ids[begin + length]]:
            length += 1
        if length and begin + length < end:
            values[begin : begin + length] = kind


@njit(cache=True, nogil=True)
def find_colons(ids: Any, sentences: Any, colons: Any, most: Any) -> Any:
    """The tokens up to and with the colon within the first `most` tokens of each sentence; 0 for none."""
    found = np.zeros(sentences.size - 1, dtype=np.int64)
    for sentence in range(sentences.size - 1):
        begin, end = sentences[sentence], sentences[sentence + 1]
        for position in range(begin + 1, min(begin + most, end - 1)):
            if colons[ids[position]]:
                found[sentence] = position + 1 - begin
                break
    return found


@njit(cache=True, nogil=True)
def mark_ranges(begins: Any, lengths: Any, kinds: Any, values: Any) -> None:
    """Write the kind of each range."""
    for number in range(begins.size):
        values[begins[number] : begins[number] + lengths[number]] = kinds[number]
