"""Numba kernel of MASS: a fragment of each sequence is masked and predicted. See `_restoring_kernels`."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._noise_kernels import FIRST_ID, MASK_ID, below, uniform
from firth.objectives._restoring_kernels import BEGIN_ID, END_ID, next_bits, put, sequence_end

SEQUENCES, MASKABLE, CHOSEN, AT_START, AT_END, MASKED, RANDOM, KEPT = range(8)
"""What the statistics count."""


@njit(cache=True, nogil=True)
def mask_fragments(
    ids: Any, sequence_ids: Any, seeds: Any, rates: Any, vocabulary: Any, source: Any, target: Any, targets: Any,
    statistics: Any,
) -> Any:  # fmt: skip
    """Mask a fragment of each sequence, its first token never; the used lengths of both sides.

    `rates` are the share of a sequence, the probabilities of a fragment at its start and at its end, and those of a
    mask and of a random token. The decoder reads the tokens before those of the fragment, at their own positions.
    """
    rows, width = ids.shape
    share, at_start, at_end, mask, random = rates
    state = np.zeros(1, dtype=np.uint64)
    used = np.zeros(2, dtype=np.int64)
    for row in range(rows):
        begin, to_offset, state[0] = 0, 0, 0
        while begin < width:
            end = sequence_end(sequence_ids[row], begin)
            count, sequence, seed = end - begin, sequence_ids[row, begin], seeds[row]
            if count < 2:
                break
            size = min(max(np.int64(np.round(count * share)), 1), count - 1)
            slot, last = uniform(next_bits(seed, state)), count - size
            if slot < at_start:
                first = 1
                statistics[AT_START] += 1
            elif slot < at_start + at_end:
                first = last
                statistics[AT_END] += 1
            else:
                first = 1 + below(next_bits(seed, state), last)
            for position in range(count):
                token = ids[row, begin + position]
                if first <= position < first + size:
                    before = ids[row, begin + position - 1]
                    targets[row, to_offset] = token
                    before = END_ID if before == BEGIN_ID else before  # as the decoder begins in use
                    to_offset = put(target, row, to_offset, sequence, position - 1, before)
                    drawn = uniform(next_bits(seed, state))
                    if drawn < mask:
                        token = MASK_ID
                        statistics[MASKED] += 1
                    elif drawn < mask + random and vocabulary > FIRST_ID:
                        token = FIRST_ID + below(next_bits(seed, state), vocabulary - FIRST_ID)
                        statistics[RANDOM] += 1
                    else:
                        statistics[KEPT] += 1
                put(source, row, begin + position, sequence, position, token)
            statistics[SEQUENCES] += 1
            statistics[MASKABLE] += count
            statistics[CHOSEN] += size
            begin = end
        used[0], used[1] = max(used[0], begin), max(used[1], to_offset)
    return used
