"""Sentences of ids with their ends, and sums over them."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True, nogil=True)
def close_sentences(ids: Any, lengths: Any, first_word: Any, unk: Any, eos: Any, out: Any, bounds: Any) -> Any:
    """Copies the ids of sentences and closes each; special tokens written out in the text are unknown words."""
    place, at = 0, 0
    for sentence in range(lengths.size):
        for _ in range(lengths[sentence]):
            word = ids[place]
            out[at] = word if word >= first_word else unk
            place += 1
            at += 1
        out[at] = eos
        at += 1
        bounds[sentence + 1] = at


@njit(cache=True, nogil=True)
def count_in(flags: Any, bounds: Any, out: Any) -> Any:
    """How many flags are set between each two bounds, without the last place of each, which is the sentence's end."""
    place = 0
    for sentence in range(out.size):
        for _ in range(bounds[sentence + 1] - bounds[sentence] - 1):
            out[sentence] += flags[place]
            place += 1
