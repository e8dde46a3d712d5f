"""Links of a trie that was not counted from a text: pruned, merged or read from a file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.counts import _link_kernels as kernels
from firth.counts.trie import ROOT

_FEW = 1 << 14  # nodes that are not worth a second thread


def find_links(
    levels: npt.NDArray[np.int64],
    words: npt.NDArray[np.uint32],
    first: npt.NDArray[np.uint32],
    threads: int | None = None,
) -> npt.NDArray[np.uint32]:
    """For each node the longest of its proper suffixes that is a node itself; ROOT for unigrams.

    Suffixes may be missing, as in pruned models; prefixes may not, since a trie cannot do without them.

    >>> levels = np.array([0, 3, 5, 6])  # words 0 1 2, then 0 1 and 1 2, then 0 1 2
    >>> words = np.array([0, 1, 2, 1, 2, 2], dtype=np.uint32)
    >>> first = np.array([3, 4, 5, 5, 6, 6], dtype=np.uint32)
    >>> find_links(levels, words, first)[3:].tolist()
    [1, 2, 4]
    """
    links = np.full(words.size, ROOT, dtype=np.uint32)
    for n in range(1, levels.size - 1):
        begin, end = int(levels[n - 1]), int(levels[n])
        children = int(levels[n + 1]) - end
        workers = 1 if children < _FEW else cores(threads)
        _run(_split(first, begin, end, 4 * workers if workers > 1 else 1), workers, words, first, links)
    return links


def _split(first: npt.NDArray[np.uint32], begin: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of nodes with about the same number of children each."""
    shares = np.linspace(int(first[begin]), int(first[end]), parts + 1)[1:-1].astype(first.dtype)
    cuts = begin + np.searchsorted(first[begin:end], shares)
    bounds = [begin, *cuts.tolist(), end]
    return [(low, high) for low, high in pairwise(bounds) if low < high]


def _run(parts: list[tuple[int, int]], workers: int, words: Any, first: Any, links: Any) -> None:
    if workers == 1:
        for low, high in parts:
            kernels.link_children(words, first, links, low, high)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda part: kernels.link_children(words, first, links, *part), parts):
            pass
