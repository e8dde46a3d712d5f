"""Numba kernels that write rows of tokens.

They fill arrays of (rows, places): ids, `words` (whether a word begins), `parts` of the row, `positions` in the part
and `segments`. What they do not write stays as it was.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

END_ID = 3  # literal, because kernels are compiled; `rows` checks it


@njit(cache=True, nogil=True)
def _stream_begin(document: Any, sentences: Any, documents: Any) -> Any:
    """Where a document begins in the stream `EOS s1 EOS s2 EOS`: with an end a sentence and one more a document."""
    return sentences[documents[document]] + documents[document] + document


@njit(cache=True, nogil=True)
def _stream_document(place: Any, sentences: Any, documents: Any) -> Any:
    """The document that a place of the stream is in."""
    low, high = 0, documents.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _stream_begin(middle, sentences, documents) <= place:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _stream_sentence(place: Any, document: Any, sentences: Any, documents: Any) -> Any:
    """The sentence of a document that a place of the stream is in, its end included."""
    low, high = documents[document], documents[document + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if sentences[middle] + middle + document + 1 <= place:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def fill_stream(
    tokens: Any, starts: Any, sentences: Any, documents: Any, begins: Any, counts: Any, overlap: Any, ids: Any,
    words: Any, parts: Any, positions: Any,
) -> Any:  # fmt: skip
    """Writes `counts` places of the stream from each of `begins`, over its end too; returns how many tokens of text.

    With `overlap` the first token of a row is not counted, because the row before has it, too.
    """
    text = 0
    for row in range(begins.size):
        document = _stream_document(begins[row], sentences, documents)
        opens = begins[row] == _stream_begin(document, sentences, documents)
        sentence = _stream_sentence(begins[row], document, sentences, documents)
        token = sentences[sentence] if opens else begins[row] - sentence - document - 1
        if overlap and not opens and token < sentences[sentence + 1]:
            text -= 1
        part, position = 0, 0
        for place in range(counts[row]):
            parts[row, place], positions[row, place] = part, position
            position += 1
            if opens:
                ids[row, place] = END_ID
                opens = False
            elif token < sentences[sentence + 1]:
                ids[row, place], words[row, place] = tokens[token], starts[token]
                token += 1
                text += 1
            else:
                ids[row, place] = END_ID
                sentence += 1
                if sentence == documents[document + 1]:
                    document = (document + 1) % (documents.size - 1)
                    sentence, opens = documents[document], True
                    part, position = part + 1, 0
                token = sentences[sentence]
    return text


@njit(cache=True, nogil=True)
def _next_document(token: Any, sentences: Any, documents: Any) -> Any:
    """The first document that begins after a token."""
    low, high = 0, documents.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if sentences[documents[middle]] <= token:
            low = middle
        else:
            high = middle
    return high


@njit(cache=True, nogil=True)
def measure(begins: Any, ends: Any, over: Any, sentences: Any, documents: Any) -> Any:
    """Places that each sequence takes: its tokens, one before them, one after each segment that is not empty.

    With `over` there is one more wherever a document begins inside.
    """
    lengths = np.ones(len(begins), dtype=np.int64)
    for sequence in range(len(begins)):
        for segment in range(begins.shape[1]):
            begin, end = begins[sequence, segment], ends[sequence, segment]
            if begin == end:
                continue
            lengths[sequence] += end - begin + 1
            if over:
                document = _next_document(begin, sentences, documents)
                while sentences[documents[document]] < end:
                    lengths[sequence] += 1
                    document += 1
    return lengths


@njit(cache=True, nogil=True)
def fill_sequences(
    tokens: Any, starts: Any, sentences: Any, documents: Any, begins: Any, ends: Any, over: Any, opening: Any,
    bounds: Any, members: Any, rows: Any, ids: Any, words: Any, parts: Any, positions: Any, segments: Any,
) -> Any:  # fmt: skip
    """Writes the sequences of rows, each as a part; returns how many tokens of text."""
    text = 0
    for index in range(rows.size):
        place, row = 0, rows[index]
        for member in range(bounds[row], bounds[row + 1]):
            sequence, first = members[member], place
            ids[index, place] = opening
            place += 1
            for segment in range(begins.shape[1]):
                begin, end = begins[sequence, segment], ends[sequence, segment]
                if begin == end:
                    continue
                document = _next_document(begin, sentences, documents) if over else documents.size - 1
                segment_begin = place
                for token in range(begin, end):
                    if token == sentences[documents[document]]:
                        ids[index, place] = END_ID
                        place += 1
                        document += 1
                    ids[index, place], words[index, place] = tokens[token], starts[token]
                    place += 1
                ids[index, place] = END_ID
                place += 1
                segments[index, segment_begin:place] = segment
                text += end - begin
            for each in range(first, place):
                parts[index, each], positions[index, each] = member - bounds[row], each - first
    return text
