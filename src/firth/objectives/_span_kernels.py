"""Numba kernels of span corruption and of the objectives that Raffel et al. (2020) compare with it.

See `_restoring_kernels` for the arrays.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._noise_kernels import FIRST_ID, MASK_ID, below, uniform
from firth.objectives._restoring_kernels import next_bits, put_source, put_target, sequence_end, shuffle

SPANS, PREFIX, BERT, DROP, DESHUFFLE = range(5)
SEQUENCES, TOKENS, CHOSEN, GROUPS, FIRST, LAST, SENTINELS = range(7)
"""What the statistics count; the last is the largest number of sentinels in a sequence."""
_RANDOM = 0.1  # of the chosen tokens of the style of BERT


@njit(cache=True, nogil=True)
def span_counts(tokens: Any, rate: Any, mean: Any) -> Any:
    """The number of corrupted tokens and of their spans, which a text of some tokens always has."""
    noise = min(max(np.int64(np.round(tokens * rate)), 1), tokens - 1)
    return noise, min(max(np.int64(np.round(noise / mean)), 1), max(tokens - noise, 0), noise)


@njit(cache=True, nogil=True)
def _compose(total: Any, parts: Any, seed: Any, state: Any, lengths: Any) -> None:
    """Write a random composition of a number into positive parts, all equally likely."""
    cuts = np.zeros(max(total - 1, 0), dtype=np.int64)
    cuts[: parts - 1] = 1
    shuffle(cuts, cuts.size, cuts.size, seed, state)
    part, size = 0, 1
    for cut in cuts:
        if cut:
            lengths[part] = size
            part, size = part + 1, 0
        size += 1
    lengths[part] = size


@njit(cache=True, nogil=True)
def _choose_spans(count: Any, rate: Any, mean: Any, roll: Any, seed: Any, state: Any, chosen: Any) -> None:
    """Mark the tokens of random spans: clean and corrupted ones alternate, the first is clean, the last corrupted."""
    chosen[:count] = False
    if count < 2:
        return
    noise, spans = span_counts(count, rate, mean)
    noisy, clean = np.empty(spans, dtype=np.int64), np.empty(spans, dtype=np.int64)
    _compose(noise, spans, seed, state, noisy)
    _compose(count - noise, spans, seed, state, clean)
    shift = below(next_bits(seed, state), count) if roll else 0
    position = 0
    for span in range(spans):
        position += clean[span]
        for _ in range(noisy[span]):
            chosen[(position + shift) % count] = True
            position += 1


@njit(cache=True, nogil=True)
def _split(tokens: Any, chosen: Any, count: Any, last: Any, source: Any, target: Any) -> Any:
    """Write the text with a sentinel for each span, and the spans, each after its sentinel; the sizes and sentinels.

    Sentinels descend from the id `last`; with `last` = 0 there are none.
    """
    read, written, sentinels = 0, 0, 0
    for index in range(count):
        if not chosen[index]:
            source[read] = tokens[index]
            read += 1
            continue
        if last and (index == 0 or not chosen[index - 1]):
            source[read], target[written] = last - sentinels, last - sentinels
            read, written, sentinels = read + 1, written + 1, sentinels + 1
        target[written] = tokens[index]
        written += 1
    return read, written, sentinels


@njit(cache=True, nogil=True)
def corrupt_spans(
    ids: Any, sequence_ids: Any, seeds: Any, style: Any, rate: Any, mean: Any, roll: Any, vocabulary: Any, words: Any,
    source: Any, target: Any, targets: Any, statistics: Any,
) -> Any:  # fmt: skip
    """Write the sources and targets of a style; the used lengths of both sides.

    `vocabulary` counts all tokens, of which those after `words` are sentinels.
    """
    rows, width = ids.shape
    state = np.zeros(1, dtype=np.uint64)
    chosen = np.empty(width, dtype=np.bool_)
    noised, wanted = np.empty(2 * width, dtype=np.int64), np.empty(2 * width, dtype=np.int64)
    used = np.zeros(2, dtype=np.int64)
    for row in range(rows):
        begin, from_offset, to_offset, state[0] = 0, 0, 0, 0
        while begin < width:
            end = sequence_end(sequence_ids[row], begin)
            count, sequence, seed = end - begin - 2, sequence_ids[row, begin], seeds[row]
            if count < 1:
                break
            tokens = ids[row, begin + 1 : end - 1]
            if style == SPANS:
                _choose_spans(count, rate, mean, roll, seed, state, chosen)
            elif style == PREFIX:
                first = 1 + below(next_bits(seed, state), count - 1) if count > 1 else 1
                chosen[:first], chosen[first:count] = False, True
            else:
                for index in range(count):
                    chosen[index] = style != DESHUFFLE and uniform(next_bits(seed, state)) < rate
            if style in (SPANS, PREFIX, DROP):
                last = vocabulary - 1 if style == SPANS else 0
                read, written, sentinels = _split(tokens, chosen, count, last, noised, wanted)
                statistics[SENTINELS] = max(statistics[SENTINELS], sentinels)
            else:
                read = written = count
                noised[:count], wanted[:count] = tokens, tokens
                for index in range(count):
                    if chosen[index]:
                        is_random = uniform(next_bits(seed, state)) < _RANDOM
                        drawn = FIRST_ID + below(next_bits(seed, state), max(words - FIRST_ID, 1))
                        noised[index] = drawn if is_random else MASK_ID
                if style == DESHUFFLE:
                    shuffle(noised, count, count, seed, state)
            statistics[SEQUENCES] += 1
            statistics[TOKENS] += count
            statistics[FIRST] += chosen[0]
            statistics[LAST] += chosen[count - 1]
            for index in range(count):
                statistics[CHOSEN] += chosen[index]
                statistics[GROUPS] += chosen[index] and (index == 0 or not chosen[index - 1])
            from_offset = put_source(source, row, from_offset, sequence, noised, read)
            to_offset = put_target(target, targets, row, to_offset, sequence, wanted, written)
            begin = end
        used[0], used[1] = max(used[0], from_offset), max(used[1], to_offset)
    return used
