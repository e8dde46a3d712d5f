"""Numba kernels that split a text into sequences.

A text is `word_starts` (whether each token begins a word), `sentences` (the first token of each, and the end) and
`documents` (the first sentence of each, and the end), the latter two as int64.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._noise_kernels import below, draw, uniform

_SENTENCE_SLACK = 16  # a sequence ends with a sentence if that leaves at most 1/16 of it unused
_WORD_SLACK = 8  # else with a word, if that leaves at most 1/8 and a few tokens unused
_FEW = 3
_SHORT = 0.1  # fraction of segment pairs that are shorter than possible (Devlin et al. 2019)


@njit(cache=True, nogil=True)
def _append(cuts: Any, size: Any, begin: Any, end: Any) -> Any:
    """The array with the begin and end of a sequence in row `size`; a copy of twice the size if it is full."""
    if size == len(cuts):
        grown = np.empty((2 * size, cuts.shape[1]), dtype=np.int64)
        grown[:size] = cuts
        cuts = grown
    cuts[size, 0], cuts[size, -1] = begin, end
    return cuts


@njit(cache=True, nogil=True)
def _word_end(begin: Any, stop: Any, slack: Any, word_starts: Any) -> Any:
    """The last word boundary from `stop - slack` to `stop`, or `stop` if there is none."""
    for token in range(stop, max(begin, stop - slack - 1), -1):
        if word_starts[token]:
            return token
    return stop


@njit(cache=True, nogil=True)
def _sequence_end(begin: Any, stop: Any, limit: Any, sentence: Any, sentences: Any, word_starts: Any) -> Any:
    """The end of a sequence from `begin` of at most `stop`, within a document, and the index of the next sentence.

    `sentence` is the index of the first sentence that begins after `begin`.
    """
    while sentences[sentence] <= stop:
        sentence += 1
    end = sentences[sentence - 1]
    if end <= begin or stop - end > limit // _SENTENCE_SLACK:
        end = _word_end(begin, stop, limit // _WORD_SLACK + _FEW, word_starts)
    return end, sentence


@njit(cache=True, nogil=True)
def count_longer(sentences: Any, limit: Any) -> Any:
    """The number of sentences of more than `limit` tokens."""
    count = 0
    for sentence in range(sentences.size - 1):
        if sentences[sentence + 1] - sentences[sentence] > limit:
            count += 1
    return count


@njit(cache=True, nogil=True)
def cut_sentences(sentences: Any, word_starts: Any, limit: Any) -> Any:
    """(sequences, 2): begin and end of each sentence; those of more than `limit` tokens are split."""
    cuts, size = np.empty((sentences.size, 2), dtype=np.int64), 0
    for sentence in range(sentences.size - 1):
        begin, last = sentences[sentence], sentences[sentence + 1]
        while begin < last:
            end = last
            if last - begin > limit:
                end = _word_end(begin, begin + limit, limit // _WORD_SLACK + _FEW, word_starts)
            cuts = _append(cuts, size, begin, end)
            size += 1
            begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def cut_documents(sentences: Any, documents: Any, word_starts: Any, limit: Any) -> Any:
    """(sequences, 2): begin and end of consecutive parts of each document of at most `limit` tokens."""
    cuts, size = np.empty((documents.size, 2), dtype=np.int64), 0
    for document in range(documents.size - 1):
        sentence = documents[document]
        begin, last = sentences[sentence], sentences[documents[document + 1]]
        while begin < last:
            end = last
            if last - begin > limit:
                end, sentence = _sequence_end(begin, begin + limit, limit, sentence, sentences, word_starts)
            cuts = _append(cuts, size, begin, end)
            size += 1
            begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def cut_text(sentences: Any, documents: Any, word_starts: Any, limit: Any) -> Any:
    """The same across document boundaries, each of which takes one token of the limit."""
    cuts, size = np.empty((1024, 2), dtype=np.int64), 0
    document, sentence, begin = 0, 0, sentences[0]
    while begin < sentences[-1]:
        end, left = begin, limit
        while left > 0 and end < sentences[-1]:
            last = sentences[documents[document + 1]]
            if last - end > left:
                if left > limit // _SENTENCE_SLACK or end == begin:
                    end, sentence = _sequence_end(end, end + left, limit, sentence, sentences, word_starts)
                break
            left -= last - end + 1
            end, document = last, document + 1
            sentence = documents[document]
        cuts = _append(cuts, size, begin, end)
        size += 1
        begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def _middle(begin: Any, end: Any, first: Any, sentence: Any, sentences: Any, word_starts: Any, bits: Any) -> Any:
    """The begin of the second segment: one of the sentences from `first` on that begin inside, or a word."""
    inside = sentence - first
    if inside > 0 and sentences[sentence - 1] == end:
        inside -= 1
    if inside > 0:
        return sentences[first + below(bits, inside)]
    half = begin + (end - begin + 1) // 2
    return _word_end(begin, half, half - begin, word_starts) if half < end else end


@njit(cache=True, nogil=True)
def cut_pairs(sentences: Any, documents: Any, word_starts: Any, limit: Any, key: Any) -> Any:
    """(sequences, 3): begin, middle and end of two segments of `limit` tokens together, or randomly fewer."""
    cuts, size = np.empty((documents.size, 3), dtype=np.int64), 0
    for document in range(documents.size - 1):
        sentence = documents[document]
        begin, last = sentences[sentence], sentences[documents[document + 1]]
        while begin < last:
            while sentences[sentence] <= begin:
                sentence += 1
            target = limit
            if limit > 2 and uniform(draw(key, 3 * size)) < _SHORT:
                target = 2 + below(draw(key, 3 * size + 1), limit - 2)
            first, end = sentence, last
            if last - begin > target:
                end, sentence = _sequence_end(begin, begin + target, target, sentence, sentences, word_starts)
            else:
                sentence = documents[document + 1]
            cuts = _append(cuts, size, begin, end)
            cuts[size, 1] = _middle(begin, end, first, sentence, sentences, word_starts, draw(key, 3 * size + 2))
            size += 1
            begin = end
    return cuts[:size]


@njit(cache=True, nogil=True)
def pair_sentences(cuts: Any, sentences: Any, documents: Any, word_starts: Any) -> Any:
    """(sequences, 3): consecutive pairs of sentences (or parts of them) of each document; an odd last one is halved."""
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
                middle = _middle(begin, end, 0, 0, sentences, word_starts, np.uint64(0))
            pairs[size, 0], pairs[size, 1], pairs[size, 2] = begin, middle, end
            size += 1
    return pairs[:size]
