"""Numba kernels that cut a text into sequences and pack sequences into rows.

A text is `starts` (whether each token begins a word), `sentences` (the first token of each, and the end) and
`documents` (the first sentence of each, and the end), the latter two as int64.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._draw_kernels import below, draw, share

_SENTENCE_SLACK = 16  # a sequence ends with a sentence if less than this part of its room stays empty for it
_WORD_SLACK = 8  # and else with a word, if so or with a few tokens less
_FEW = 3
_SHORT = 0.1  # of the pairs of segments are shorter than they could be (Devlin et al. 2019)


@njit(cache=True, nogil=True)
def _grown(cuts: Any, size: Any) -> Any:
    """The same array, or one of twice the size if it is full."""
    if size < len(cuts):
        return cuts
    wider = np.empty((2 * size, cuts.shape[1]), dtype=np.int64)
    wider[:size] = cuts
    return wider


@njit(cache=True, nogil=True)
def _word_end(begin: Any, stop: Any, slack: Any, starts: Any) -> Any:
    """Where to cut between words: at `stop` or up to `slack` tokens before it; at `stop` if there is no such place."""
    for place in range(stop, max(begin, stop - slack - 1), -1):
        if starts[place]:
            return place
    return stop


@njit(cache=True, nogil=True)
def _sequence_end(begin: Any, stop: Any, room: Any, sentence: Any, sentences: Any, starts: Any) -> Any:
    """Where a sequence from `begin` that can reach to `stop`, inside a document, ends; and the next sentence's number.

    `sentence` is the number of the first sentence that begins after `begin`.
    """
    while sentences[sentence] <= stop:
        sentence += 1
    end = sentences[sentence - 1]
    if end <= begin or stop - end > room // _SENTENCE_SLACK:
        end = _word_end(begin, stop, room // _WORD_SLACK + _FEW, starts)
    return end, sentence


@njit(cache=True, nogil=True)
def count_longer(sentences: Any, room: Any) -> Any:
    """How many sentences have more than `room` tokens."""
    count = 0
    for sentence in range(sentences.size - 1):
        if sentences[sentence + 1] - sentences[sentence] > room:
            count += 1
    return count


@njit(cache=True, nogil=True)
def cut_sentences(sentences: Any, starts: Any, room: Any) -> Any:
    """(sequences, 2): begin and end of each sentence; those of more than `room` tokens become several."""
    cuts, size = np.empty((sentences.size, 2), dtype=np.int64), 0
    for sentence in range(sentences.size - 1):
        begin, last = sentences[sentence], sentences[sentence + 1]
        while begin < last:
            end = last if last - begin <= room else _word_end(begin, begin + room, room // _WORD_SLACK + _FEW, starts)
            cuts = _grown(cuts, size)
            cuts[size, 0], cuts[size, 1] = begin, end
            size += 1
            begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def cut_documents(sentences: Any, documents: Any, starts: Any, room: Any) -> Any:
    """(sequences, 2): begin and end of as much of a document as fits into `room`, one after another."""
    cuts, size = np.empty((documents.size, 2), dtype=np.int64), 0
    for document in range(documents.size - 1):
        sentence = documents[document]
        begin, last = sentences[sentence], sentences[documents[document + 1]]
        while begin < last:
            end = last
            if last - begin > room:
                end, sentence = _sequence_end(begin, begin + room, room, sentence, sentences, starts)
            cuts = _grown(cuts, size)
            cuts[size, 0], cuts[size, 1] = begin, end
            size += 1
            begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def cut_text(sentences: Any, documents: Any, starts: Any, room: Any) -> Any:
    """The same over the bounds of documents, each of which takes one place of the room."""
    cuts, size = np.empty((1024, 2), dtype=np.int64), 0
    document, sentence, begin = 0, 0, sentences[0]
    while begin < sentences[-1]:
        end, left = begin, room
        while left > 0 and end < sentences[-1]:
            last = sentences[documents[document + 1]]
            if last - end > left:
                if left > room // _SENTENCE_SLACK or end == begin:
                    end, sentence = _sequence_end(end, end + left, room, sentence, sentences, starts)
                break
            left -= last - end + 1
            end, document = last, document + 1
            sentence = documents[document]
        cuts = _grown(cuts, size)
        cuts[size, 0], cuts[size, 1] = begin, end
        size += 1
        begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def _middle(begin: Any, end: Any, first: Any, sentence: Any, sentences: Any, starts: Any, bits: Any) -> Any:
    """Where the second segment begins: at one of the sentences from `first` on that begin inside, or at a word."""
    inside = sentence - first
    if inside > 0 and sentences[sentence - 1] == end:
        inside -= 1
    if inside > 0:
        return sentences[first + below(bits, inside)]
    half = begin + (end - begin + 1) // 2
    return _word_end(begin, half, half - begin, starts) if half < end else end


@njit(cache=True, nogil=True)
def cut_pairs(sentences: Any, documents: Any, starts: Any, room: Any, key: Any) -> Any:
    """(sequences, 3): begin, middle and end of two segments that have `room` tokens together, or fewer at random."""
    cuts, size = np.empty((documents.size, 3), dtype=np.int64), 0
    for document in range(documents.size - 1):
        sentence = documents[document]
        begin, last = sentences[sentence], sentences[documents[document + 1]]
        while begin < last:
            while sentences[sentence] <= begin:
                sentence += 1
            target = room
            if room > 2 and share(draw(key, 3 * size)) < _SHORT:
                target = 2 + below(draw(key, 3 * size + 1), room - 2)
            first, end = sentence, last
            if last - begin > target:
                end, sentence = _sequence_end(begin, begin + target, target, sentence, sentences, starts)
            else:
                sentence = documents[document + 1]
            cuts = _grown(cuts, size)
            cuts[size, 0], cuts[size, 2] = begin, end
            cuts[size, 1] = _middle(begin, end, first, sentence, sentences, starts, draw(key, 3 * size + 2))
            size += 1
            begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def pair_sentences(cuts: Any, sentences: Any, documents: Any, starts: Any) -> Any:
    """(sequences, 3): two by two the sentences (or parts of them) of each document; the last may have to be halved."""
    pairs, size, cut = np.empty((len(cuts), 3), dtype=np.int64), 0, 0
    for document in range(documents.size - 1):
        last = sentences[documents[document + 1]]
        while cut < len(cuts) and cuts[cut, 0] < last:
            begin, middle = cuts[cut, 0], cuts[cut, 1]
            cut += 1
            end = middle
            if middle < last:
                end = cuts[cut, 1]
                cut += 1
            else:
                middle = _middle(begin, end, 0, 0, sentences, starts, np.uint64(0))
            pairs[size, 0], pairs[size, 1], pairs[size, 2] = begin, middle, end
            size += 1
    return pairs[:size]


@njit(cache=True, nogil=True)
def _fullest(filled: Any, length: Any) -> Any:
    """The least number from `length` on whose bit is set in `filled`, or -1."""
    word = length >> 6
    bits = filled[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(length & 63))
    while bits == 0:
        word += 1
        if word == filled.size:
            return -1
        bits = filled[word]
    place = 0
    while not bits >> np.uint64(place) & np.uint64(1):
        place += 1
    return 64 * word + place


@njit(cache=True, nogil=True)
def best_fit(lengths: Any, order: Any, capacity: Any) -> Any:
    """The row of each sequence, and what each row holds: in the order, each goes to the fullest row with room for it.

    Rows with the same room left are a stack: the youngest is taken first, which is near in the text.
    """
    rows, count = np.empty(lengths.size, dtype=np.int64), 0
    under, left = np.empty(lengths.size, dtype=np.int64), np.empty(lengths.size, dtype=np.int64)
    tops = np.full(capacity + 1, -1, dtype=np.int64)
    filled = np.zeros(capacity // 64 + 1, dtype=np.uint64)
    for index in order:
        room = _fullest(filled, lengths[index])
        if room < 0:
            row = count
            count += 1
            room = capacity
        else:
            row = tops[room]
            tops[room] = under[row]
            if tops[room] < 0:
                filled[room >> 6] ^= np.uint64(1) << np.uint64(room & 63)
        rows[index] = row
        room -= lengths[index]
        left[row] = room
        under[row] = tops[room]
        tops[room] = row
        filled[room >> 6] |= np.uint64(1) << np.uint64(room & 63)
    return rows, capacity - left[:count]


@njit(cache=True, nogil=True)
def members_of(rows: Any, count: Any) -> Any:
    """Row r has the sequences `members[bounds[r]:bounds[r + 1]]`, in order."""
    bounds = np.zeros(count + 1, dtype=np.int64)
    for index in range(rows.size):
        bounds[rows[index] + 1] += 1
    for row in range(count):
        bounds[row + 1] += bounds[row]
    members, free = np.empty(rows.size, dtype=np.int64), bounds[:-1].copy()
    for index in range(rows.size):
        members[free[rows[index]]] = index
        free[rows[index]] += 1
    return bounds, members
