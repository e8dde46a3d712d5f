"""Numba kernel that chooses the middles of windows and wrong words for them."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.objectives._draw_kernels import below, draw
from firth.objectives._masking_kernels import FIRST_ID, is_text


@njit(cache=True, nogil=True)
def choose_middles(ids: Any, keys: Any, step: Any, vocabulary: Any) -> Any:
    """Every `step`-th place of each row, from a random one on, if it is text; and another word for each.

    Wrong words are drawn from all but the true one and special tokens.
    """
    rows, width = ids.shape
    places, words = np.empty(ids.size, dtype=np.int64), np.empty(ids.size, dtype=np.int64)
    size = 0
    for row in range(rows):
        for place in range(below(draw(keys[row], 0), step), width, step):
            token = ids[row, place]
            known = token >= FIRST_ID
            choices = vocabulary - FIRST_ID - (1 if known else 0)
            if not is_text(token) or choices < 1:
                continue
            word = FIRST_ID + below(draw(keys[row], place + 1), choices)
            places[size], words[size] = row * width + place, word + (1 if known and word >= token else 0)
            size += 1
    return places[:size].copy(), words[:size].copy()
