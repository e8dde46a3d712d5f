"""Numba kernel that finds the longest proper suffix of every n-gram."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

ROOT = np.uint32(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _seek(words: Any, low: Any, high: Any, word: Any) -> Any:
    """The first place of the ascending `words[low:high]` that does not come before `word`."""
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def link_children(words: Any, first: Any, links: Any, begin: Any, end: Any) -> Any:
    """Fills `links` for the children of the nodes from `begin` to `end`, whose own links are known.

    The suffix of `h w` is `h' w`, or `h'' w` where that is no node, and so on down to `w`. The children of `h` and of
    `h'` are both in order, so the search goes on from where the last one ended.
    """
    for node in range(begin, end):
        shorter = links[node]
        place, stop = np.int64(0), np.int64(0)
        if shorter != ROOT:
            place, stop = np.int64(first[shorter]), np.int64(first[np.int64(shorter) + 1])
        for child in range(np.int64(first[node]), np.int64(first[node + 1])):
            word = words[child]
            place = _seek(words, place, stop, word)
            if place < stop and words[place] == word:
                links[child] = np.uint32(place)
                continue
            state = shorter
            found = np.uint32(word)
            while state != ROOT:
                state = links[state]
                if state == ROOT:
                    break
                last = np.int64(first[np.int64(state) + 1])
                other = _seek(words, np.int64(first[state]), last, word)
                if other < last and words[other] == word:
                    found = np.uint32(other)
                    break
            links[child] = found
