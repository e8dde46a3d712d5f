"""Numba kernels that write sources and what a decoder predicts, for each packed sequence `[CLS] t [SEP]`.

Arrays of a side have the shape (rows, length): ids, sequence ids (-1: padding) and position ids. The source of a
sequence is `[CLS] noised [SEP]`; the decoder reads `EOS t` and predicts `targets`, the next token at each position.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

from numba import njit

from firth.objectives._noise_kernels import below, draw

BEGIN_ID, END_ID = 2, 3  # literal, because kernels are compiled; `heads.restoring` checks them


@njit(cache=True, nogil=True)
def next_bits(seed: Any, state: Any) -> Any:
    """The next random bits of a sequence; `state` counts them."""
    state[0] += 1
    return draw(seed, state[0])


@njit(cache=True, nogil=True)
def shuffle(values: Any, count: Any, chosen: Any, seed: Any, state: Any) -> None:
    """Move a random choice of the first `count` values, in random order, to the first `chosen` slots."""
    for slot in range(min(chosen, count - 1)):
        other = slot + below(next_bits(seed, state), count - slot)
        values[slot], values[other] = values[other], values[slot]


@njit(cache=True, nogil=True)
def sequence_end(sequence_ids: Any, begin: Any) -> Any:
    """The end of the sequence that begins at a position of a row; the same position for padding."""
    end = begin
    while end < sequence_ids.size and sequence_ids[begin] >= 0 and sequence_ids[end] == sequence_ids[begin]:
        end += 1
    return end


@njit(cache=True, nogil=True)
def put(side: Any, row: Any, offset: Any, sequence: Any, position: Any, token: Any) -> Any:
    """Write a token of a sequence; the offset after it."""
    ids, sequence_ids, position_ids = side
    ids[row, offset], sequence_ids[row, offset], position_ids[row, offset] = token, sequence, position
    return offset + 1


@njit(cache=True, nogil=True)
def put_source(side: Any, row: Any, offset: Any, sequence: Any, tokens: Any, count: Any) -> Any:
    """Write `[CLS] tokens [SEP]`; the offset after it."""
    offset = put(side, row, offset, sequence, 0, BEGIN_ID)
    for index in range(count):
        offset = put(side, row, offset, sequence, index + 1, tokens[index])
    return put(side, row, offset, sequence, count + 1, END_ID)


@njit(cache=True, nogil=True)
def put_target(side: Any, targets: Any, row: Any, offset: Any, sequence: Any, tokens: Any, count: Any) -> Any:
    """Write `EOS tokens` and the next tokens; the offset after it."""
    token = END_ID
    for index in range(count + 1):
        following = tokens[index] if index < count else END_ID
        targets[row, offset] = following
        offset = put(side, row, offset, sequence, index, token)
        token = following
    return offset
