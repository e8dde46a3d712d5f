"""How often each word stands before each other one: counted by sorting, a part of the text at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.progress import progress
from firth.vectors.text import FIRST_WORD, TrainingText

_CHUNK = 1 << 23  # places of the text that are sorted at once


class Bigrams(NamedTuple):
    """Pairs of neighbours in the order of their ids, and how often each occurs."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


class _Run(NamedTuple):
    """Different keys in ascending order, and how often each was met."""

    keys: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]


def count_bigrams(text: TrainingText, chunk: int = _CHUNK) -> Bigrams:
    """The pairs of words that stand beside each other in a sentence; special tokens are nobody's neighbours.

    >>> text = TrainingText(np.array([5, 6, 5, 6, 6, 1, 5], dtype=np.uint16), np.array([0, 4, 7], dtype=np.uint64),
    ...     np.array([0, 2], dtype=np.uint64), ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "a", "b"])
    >>> [array.tolist() for array in count_bigrams(text)]
    [[5, 6], [6, 5], [2, 1]]
    """
    size = np.uint64(len(text.words))
    runs: list[_Run] = []
    with progress("counting pairs", total=len(text.ids), unit="words") as advance:
        for begin in range(0, len(text.ids), chunk):
            runs.append(_count(_pair_keys(text, begin, begin + chunk, size)))
            # Only runs of like size are put together, so that no pair is handled more than log(runs) times.
            while len(runs) > 1 and runs[-2].keys.size <= 2 * runs[-1].keys.size:
                runs.append(_merge(runs.pop(), runs.pop()))
            advance(chunk)
    while len(runs) > 1:
        runs.append(_merge(runs.pop(), runs.pop()))
    keys, counts = runs[0] if runs else _count(np.zeros(0, dtype=np.uint64))
    return Bigrams((keys // size).astype(np.int64), (keys % size).astype(np.int64), counts)


def _pair_keys(text: TrainingText, begin: int, end: int, size: np.uint64) -> npt.NDArray[np.uint64]:
    """left * size + right of the pairs whose left word stands in `begin:end`."""
    ids: npt.NDArray[Any] = np.asarray(text.ids[begin : end + 1])
    joined = (ids[:-1] >= FIRST_WORD) & (ids[1:] >= FIRST_WORD)
    first, last = np.searchsorted(text.sentences, np.array([begin + 1, begin + ids.size], dtype=np.uint64))
    joined[text.sentences[first:last].astype(np.int64) - begin - 1] = False
    return np.asarray(ids[:-1][joined] * size + ids[1:][joined])


def _count(keys: npt.NDArray[np.uint64]) -> _Run:
    keys.sort()
    firsts = np.flatnonzero(np.concatenate([np.ones(min(keys.size, 1), dtype=np.bool_), keys[1:] != keys[:-1]]))
    return _Run(keys[firsts], np.diff(firsts, append=keys.size))


def _merge(one: _Run, two: _Run) -> _Run:
    keys = np.concatenate([one.keys, two.keys])
    order = np.argsort(keys, kind="stable")  # which finds the two sorted parts
    keys, counts = keys[order], np.concatenate([one.counts, two.counts])[order]
    firsts = np.flatnonzero(np.concatenate([np.ones(min(keys.size, 1), dtype=np.bool_), keys[1:] != keys[:-1]]))
    return _Run(keys[firsts], np.add.reduceat(counts, firsts) if firsts.size else counts)
