"""Numba kernel that fills batches of translations."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

from numba import njit

END_ID = 3  # a literal, since kernels are compiled; checked in `translations`


@njit(cache=True, nogil=True)
def fill_translations(
    tokens: Any, word_starts: Any, begins: Any, ends: Any, bounds: Any, members: Any, rows: Any, ids: Any, starts: Any,
    sequence_ids: Any, position_ids: Any, sides: Any,
) -> Any:  # fmt: skip
    """Write the pairs of rows, `EOS a EOS EOS b EOS`; the number of tokens of text. Padding is left as it was.

    Positions of b begin at 0 again, and `sides` has 0 or 1; both sides are one sequence.
    """
    text = 0
    for index in range(rows.size):
        offset, row = 0, rows[index]
        for member in range(bounds[row], bounds[row + 1]):
            pair = members[member]
            for side in range(2):
                first = offset
                ids[index, offset] = END_ID
                offset += 1
                for token in range(begins[pair, side], ends[pair, side]):
                    ids[index, offset], starts[index, offset] = tokens[token], word_starts[token]
                    offset += 1
                    text += 1
                ids[index, offset] = END_ID
                offset += 1
                for position in range(first, offset):
                    sequence_ids[index, position] = member - bounds[row]
                    position_ids[index, position] = position - first
                    sides[index, position] = side
    return text
