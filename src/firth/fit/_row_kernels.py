"""Numba kernels that fill the arrays of a batch.

The arrays have the shape (rows, length): ids, `starts` (whether a word begins), `sequence_ids`, `position_ids` in the
sequence, and `segments`. Padding is left as it was.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

END_ID = 3  # a literal, since kernels are compiled; checked in `rows`


@njit(cache=True, nogil=True)
def _document_begin(document: Any, ends: Any, sentences: Any, documents: Any) -> Any:
    """The offset of a document in the tokens or, with `ends` = 1, in the stream `EOS s1 EOS s2 EOS`.

    The stream has one EOS a sentence and one more a document.
    """
    return sentences[documents[document]] + ends * (documents[document] + document)


@njit(cache=True, nogil=True)
def _document_at(offset: Any, ends: Any, sentences: Any, documents: Any) -> Any:
    """The document at an offset of the tokens or, with `ends` = 1, of the stream."""
    low, high = 0, documents.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _document_begin(middle, ends, sentences, documents) <= offset:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _stream_sentence(offset: Any, document: Any, sentences: Any, documents: Any) -> Any:
    """The sentence of a document at an offset of the stream; its EOS belongs to it."""
    low, high = documents[document], documents[document + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if sentences[middle] + middle + document + 1 <= offset:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def fill_stream(
    tokens: Any, word_starts: Any, sentences: Any, documents: Any, begins: Any, counts: Any, overlap: Any, ids: Any,
    starts: Any, sequence_ids: Any, position_ids: Any,
) -> Any:  # fmt: skip
    """Write `counts` tokens of the circular stream from each of `begins`; the number of tokens of text.

    With `overlap` the first token of a row is not counted, since it is also the last of the row before.
    """
    text = 0
    for row in range(begins.size):
        document = _document_at(begins[row], 1, sentences, documents)
        is_opening = begins[row] == _document_begin(document, 1, sentences, documents)
        sentence = _stream_sentence(begins[row], document, sentences, documents)
        token = sentences[sentence] if is_opening else begins[row] - sentence - document - 1
        if overlap and not is_opening and token < sentences[sentence + 1]:
            text -= 1
        sequence, position = 0, 0
        for offset in range(counts[row]):
            sequence_ids[row, offset], position_ids[row, offset] = sequence, position
            position += 1
            if is_opening:
                ids[row, offset] = END_ID
                is_opening = False
            elif token < sentences[sentence + 1]:
                ids[row, offset], starts[row, offset] = tokens[token], word_starts[token]
                token += 1
                text += 1
            else:
                ids[row, offset] = END_ID
                sentence += 1
                if sentence == documents[document + 1]:
                    document = (document + 1) % (documents.size - 1)
                    sentence, is_opening = documents[document], True
                    sequence, position = sequence + 1, 0
                token = sentences[sentence]
    return text


@njit(cache=True, nogil=True)
def find_documents(offsets: Any, sentences: Any, documents: Any) -> Any:
    """The document at each offset of the stream."""
    found = np.empty(offsets.size, dtype=np.int64)
    for number in range(offsets.size):
        found[number] = _document_at(offsets[number], 1, sentences, documents)
    return found


@njit(cache=True, nogil=True)
def measure(begins: Any, ends: Any, crosses_documents: Any, sentences: Any, documents: Any) -> Any:
    """The length of each sequence: its tokens, the opening token, and EOS after each segment that is not empty.

    With `crosses_documents` there is one more EOS where a document begins within it.
    """
    lengths = np.ones(len(begins), dtype=np.int64)
    for sequence in range(len(begins)):
        for segment in range(begins.shape[1]):
            begin, end = begins[sequence, segment], ends[sequence, segment]
            if begin == end:
                continue
            lengths[sequence] += end - begin + 1
            if crosses_documents:
                document = _document_at(begin, 0, sentences, documents) + 1
                while sentences[documents[document]] < end:
                    lengths[sequence] += 1
                    document += 1
    return lengths


@njit(cache=True, nogil=True)
def fill_sequences(
    tokens: Any, word_starts: Any, sentences: Any, documents: Any, begins: Any, ends: Any, crosses_documents: Any,
    opening: Any, bounds: Any, members: Any, rows: Any, ids: Any, starts: Any, sequence_ids: Any, position_ids: Any,
    segments: Any,
) -> Any:  # fmt: skip
    """Write the sequences of rows; the number of tokens of text."""
    text = 0
    for index in range(rows.size):
        offset, row = 0, rows[index]
        for member in range(bounds[row], bounds[row + 1]):
            sequence, first = members[member], offset
            ids[index, offset] = opening
            offset += 1
            for segment in range(begins.shape[1]):
                begin, end = begins[sequence, segment], ends[sequence, segment]
                if begin == end:
                    continue
                document = _document_at(begin, 0, sentences, documents) + 1 if crosses_documents else documents.size - 1
                segment_begin = offset
                for token in range(begin, end):
                    if token == sentences[documents[document]]:
                        ids[index, offset] = END_ID
                        offset += 1
                        document += 1
                    ids[index, offset], starts[index, offset] = tokens[token], word_starts[token]
                    offset += 1
                ids[index, offset] = END_ID
                offset += 1
                segments[index, segment_begin:offset] = segment
                text += end - begin
            for position in range(first, offset):
                sequence_ids[index, position] = member - bounds[row]
                position_ids[index, position] = position - first
    return text


@njit(cache=True, nogil=True)
def mark_sentences(
    sentences: Any, documents: Any, begins: Any, ends: Any, crosses_documents: Any, bounds: Any, members: Any,
    rows: Any, sentence_starts: Any,
) -> None:  # fmt: skip
    """Mark the first token of each segment and of each sentence in rows as `fill_sequences` writes them."""
    for index in range(rows.size):
        offset, row = 0, rows[index]
        for member in range(bounds[row], bounds[row + 1]):
            sequence = members[member]
            offset += 1
            for segment in range(begins.shape[1]):
                begin, end = begins[sequence, segment], ends[sequence, segment]
                if begin == end:
                    continue
                document = _document_at(begin, 0, sentences, documents) + 1 if crosses_documents else documents.size - 1
                sentence = np.searchsorted(sentences, begin, side="right")
                sentence_starts[index, offset] = True
                for token in range(begin, end):
                    if token == sentences[documents[document]]:
                        offset += 1
                        document += 1
                    if token == sentences[sentence]:
                        sentence_starts[index, offset] = True
                        sentence += 1
                    offset += 1
                offset += 1
