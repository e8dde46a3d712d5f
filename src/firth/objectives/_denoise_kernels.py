"""Numba kernels of BART's noise. See `_restoring_kernels` for the arrays."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._noise_kernels import MASK_ID, below, uniform
from firth.objectives._restoring_kernels import next_bits, put_source, put_target, sequence_end, shuffle

SEQUENCES, TOKENS, WORDS, BUDGET, MASKED, DELETED, SENTENCES, MOVED, ROTATED, SPANS, SPAN_WORDS, LENGTHS = range(12)
"""What the statistics of BART's noise count; from LENGTHS on the spans of 0, 1, ... words."""
LONGEST = 11  # words from which on spans are counted together


@njit(cache=True, nogil=True)
def _permute(tokens: Any, starts: Any, sentences: Any, count: Any, share: Any, seed: Any, state: Any, out: Any) -> Any:
    """Exchange a share of the sentences, rounded up, at random; the number of sentences and of those that moved."""
    firsts = np.empty(count + 1, dtype=np.int64)
    number = 0
    for index in range(count):
        if index == 0 or sentences[index]:
            firsts[number] = index
            number += 1
    firsts[number] = count
    chosen = min(number, np.int64(np.ceil(number * share - 1e-9)))
    slots = np.arange(number)
    shuffle(slots, number, chosen, seed, state)
    moved = slots[:chosen].copy()
    shuffle(moved, chosen, chosen, seed, state)
    order = np.arange(number)
    order[slots[:chosen]] = moved
    new_tokens, new_starts = out
    size, changed = 0, 0
    for slot in range(number):
        changed += order[slot] != slot
        for index in range(firsts[order[slot]], firsts[order[slot] + 1]):
            new_tokens[size], new_starts[size] = tokens[index], starts[index] or index == firsts[order[slot]]
            size += 1
    tokens[:count], starts[:count] = new_tokens[:count], new_starts[:count]
    return number, changed


@njit(cache=True, nogil=True)
def _rounded(amount: Any, seed: Any, state: Any) -> Any:
    """An amount rounded up or down at random, with itself as the mean."""
    return np.int64(amount + uniform(next_bits(seed, state)))


@njit(cache=True, nogil=True)
def _mask(tokens: Any, count: Any, rate: Any, seed: Any, state: Any) -> Any:
    """Mask random tokens; their number."""
    wanted = left = _rounded(rate * count, seed, state)
    for index in range(count):
        if uniform(next_bits(seed, state)) * (count - index) < left:
            tokens[index] = MASK_ID
            left -= 1
    return wanted


@njit(cache=True, nogil=True)
def _delete(tokens: Any, starts: Any, count: Any, rate: Any, seed: Any, state: Any) -> Any:
    """Delete random tokens; the number of those that are left."""
    left, size, begins = _rounded(rate * count, seed, state), 0, False
    for index in range(count):
        begins = begins or starts[index]
        if uniform(next_bits(seed, state)) * (count - index) < left:
            left -= 1
            continue
        tokens[size], starts[size] = tokens[index], begins
        size, begins = size + 1, False
    return size


@njit(cache=True, nogil=True)
def _infill(
    tokens: Any, starts: Any, count: Any, rate: Any, cumulative: Any, limit: Any, seed: Any, state: Any, out: Any,
    statistics: Any,
) -> Any:  # fmt: skip
    """Replace spans of words by a mask each; the number of tokens, which are written to `out`.

    Lengths are drawn until they cover the budget, a share of the words rounded up; the last is cut to it. A span of no
    word is a mask between others. Spans begin at different words; one that reaches another deletes its mask.
    """
    words = np.empty(count + 1, dtype=np.int64)
    number = 0
    for index in range(count):
        if index == 0 or starts[index]:
            words[number] = index
            number += 1
    words[number] = count
    budget = np.int64(np.ceil(rate * number - 1e-9))
    statistics[WORDS] += number
    statistics[BUDGET] += budget
    lengths = np.empty(budget, dtype=np.int64)
    spans, covered, insertions = 0, 0, 0
    while covered < budget:
        length = np.searchsorted(cumulative, uniform(next_bits(seed, state)), side="right")
        statistics[SPANS] += 1
        statistics[SPAN_WORDS] += length
        statistics[LENGTHS + min(length, LONGEST)] += 1
        length = min(length, budget - covered)
        covered += length
        if length == 0:
            insertions += 1
        else:
            lengths[spans] = length
            spans += 1
    firsts = np.arange(number)
    shuffle(firsts, number, spans, seed, state)
    kinds = np.zeros(number, dtype=np.int8)  # 1 the first word of a span, 2 a deleted one
    for span in range(spans):
        kinds[firsts[span]] = max(kinds[firsts[span]], 1)
        kinds[firsts[span] + 1 : firsts[span] + lengths[span]] = 2
    size = 0
    for word in range(number):
        if kinds[word] == 1:
            out[size] = MASK_ID
            size += 1
        elif kinds[word] == 0:
            for index in range(words[word], words[word + 1]):
                out[size] = tokens[index]
                size += 1
    for _ in range(min(insertions, limit - size)):
        slot = below(next_bits(seed, state), size + 1)
        for index in range(size, slot, -1):
            out[index] = out[index - 1]
        out[slot] = MASK_ID
        size += 1
    return size


@njit(cache=True, nogil=True)
def denoise_rows(
    ids: Any, word_starts: Any, sentence_starts: Any, sequence_ids: Any, seeds: Any, rates: Any, cumulative: Any,
    limit: Any, source: Any, target: Any, targets: Any, statistics: Any,
) -> Any:  # fmt: skip
    """BART's noise: permute sentences, mask, delete, infill, rotate by `rates`; the used lengths of both sides.

    `cumulative` has the probabilities that a span has at most 0, 1, ... words. Sources have `limit` tokens at most.
    """
    rows, width = ids.shape
    permute, mask, delete, infill, rotate = rates
    state = np.zeros(1, dtype=np.uint64)
    tokens, starts, noised = np.empty(width, np.int64), np.empty(width, np.bool_), np.empty(2 * width, np.int64)
    spare = (np.empty(width, np.int64), np.empty(width, np.bool_))
    used = np.zeros(2, dtype=np.int64)
    for row in range(rows):
        begin, from_offset, to_offset, state[0] = 0, 0, 0, 0
        while begin < width:
            end = sequence_end(sequence_ids[row], begin)
            count, sequence, seed = end - begin - 2, sequence_ids[row, begin], seeds[row]
            if count < 1:
                break
            original = ids[row, begin + 1 : end - 1]
            tokens[:count], starts[:count] = original, word_starts[row, begin + 1 : end - 1]
            statistics[SEQUENCES] += 1
            statistics[TOKENS] += count
            if permute > 0:
                sentences = sentence_starts[row, begin + 1 : end - 1]
                number, moved = _permute(tokens, starts, sentences, count, permute, seed, state, spare)
                statistics[SENTENCES] += number
                statistics[MOVED] += moved
            if mask > 0:
                statistics[MASKED] += _mask(tokens, count, mask, seed, state)
            size = count
            if delete > 0:
                size = _delete(tokens, starts, count, delete, seed, state)
                statistics[DELETED] += count - size
            if infill > 0:
                size = _infill(tokens, starts, size, infill, cumulative, limit, seed, state, noised, statistics)
            else:
                noised[:size] = tokens[:size]
            if rotate > 0 and uniform(next_bits(seed, state)) < rotate and size > 1:
                first = below(next_bits(seed, state), size)
                noised[:size] = np.concatenate((noised[first:size], noised[:first]))
                statistics[ROTATED] += 1
            from_offset = put_source(source, row, from_offset, sequence, noised, size)
            to_offset = put_target(target, targets, row, to_offset, sequence, original, count)
            begin = end
        used[0], used[1] = max(used[0], from_offset), max(used[1], to_offset)
    return used
