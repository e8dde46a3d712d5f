"""Numba kernel that fills the arrays of a batch with the sources or the targets of pairs."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

from numba import njit

END_ID = 3  # a literal, since kernels are compiled; checked in `parallel`


@njit(cache=True, nogil=True)
def fill_side(
    tokens: Any, word_starts: Any, begins: Any, ends: Any, opening: Any, closed: Any, bounds: Any, members: Any,
    rows: Any, ids: Any, starts: Any, sequence_ids: Any, position_ids: Any,
) -> Any:  # fmt: skip
    """Write one side of the pairs of rows, with `opening` before each and, if `closed`, EOS after; its tokens."""
    text = 0
    for index in range(rows.size):
        offset, row = 0, rows[index]
        for member in range(bounds[row], bounds[row + 1]):
            pair, first = members[member], offset
            ids[index, offset] = opening
            offset += 1
            for token in range(begins[pair], ends[pair]):
                ids[index, offset], starts[index, offset] = tokens[token], word_starts[token]
                offset += 1
            if closed:
                ids[index, offset] = END_ID
                offset += 1
            text += ends[pair] - begins[pair]
            for position in range(first, offset):
                sequence_ids[index, position] = member - bounds[row]
                position_ids[index, position] = position - first
    return text
