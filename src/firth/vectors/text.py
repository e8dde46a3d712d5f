"""TrainingText: the token ids of a corpus as vector trainers read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.memory import drop_page_cache
from firth.progress import progress
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer

_CHUNK = 1 << 20  # ids counted at once
_SORTED = 1 << 23  # tokens whose bigrams are sorted at once


@dataclass(frozen=True, eq=False)
class TrainingText:
    """Memory-mapped token ids with sentence and document bounds."""

    ids: npt.NDArray[Any]  # uint16 or uint32, all tokens concatenated; those below `FIRST_WORD` have no vectors
    sentences: npt.NDArray[np.uint64]  # the first token of each sentence, and the end
    documents: npt.NDArray[np.uint64]  # the first sentence of each document, and the end
    words: list[str]  # the word of each id

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """The frequency of each word; 0 for special tokens."""
        counts = np.zeros(len(self.words), dtype=np.int64)
        for begin in range(0, len(self.ids), _CHUNK):
            counts += np.bincount(self.ids[begin : begin + _CHUNK], minlength=len(self.words))
            self.drop_page_cache()
        counts[:FIRST_WORD] = 0
        return counts

    @cached_property
    def total(self) -> int:
        """The number of tokens that have vectors."""
        return int(self.counts.sum())

    def split_blocks(self, size: int, max_length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Bounds of blocks of about `size` tokens, in segments, and bounds of the segments, in tokens.

        A segment is a sentence, or a part of one longer than `max_length`.
        """
        segments = np.asarray(self.sentences).astype(np.int64)
        drop_page_cache(self.sentences)
        lengths = np.diff(segments)
        if lengths.size and int(lengths.max()) > max_length:
            parts = np.maximum(-(-lengths // max_length), 1)
            within = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
            segments = np.append(np.repeat(segments[:-1], parts) + within * max_length, segments[-1])
        begins = np.searchsorted(segments, np.arange(0, int(segments[-1]), size))
        return np.append(np.unique(begins[begins < segments.size - 1]), segments.size - 1), segments

    def drop_page_cache(self) -> None:
        """Releases the memory of ids that were read from disk."""
        drop_page_cache(self.ids)

    def require_words(self, words: int) -> None:
        """Raises `CorpusError` unless there are two distinct words and `words` in all."""
        distinct = int(np.count_nonzero(self.counts))
        if distinct < 2:
            raise CorpusError(
                f"the text has {distinct} word that is frequent enough for a vector: give more text, "
                "or lower tokenizer.min_count."
            )
        if self.total < words:
            raise CorpusError(f"the text has only {self.total} words for windows of {words}: give more text.")


def training_text(store: TokenStore, tokenizer: Tokenizer) -> TrainingText:
    """The text of a token store."""
    return TrainingText(store.ids, store.sentences, store.documents, tokenizer.vocabulary)


def bounds_of(lengths: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The start of each of some consecutive parts, and the end.

    >>> bounds_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def runs_of(bounds: npt.NDArray[Any], size: int) -> Iterator[tuple[int, int]]:
    """Runs (begin, end) of consecutive parts of about `size` in all, at least one part each.

    >>> list(runs_of(bounds_of([2, 2, 9, 1]), 4))
    [(0, 2), (2, 3), (3, 4)]
    """
    begin, last = 0, len(bounds) - 1
    while begin < last:
        end = int(np.searchsorted(bounds, bounds[begin] + bounds.dtype.type(size), side="right")) - 1
        end = max(end, begin + 1)
        yield begin, end
        begin = end


class BigramCounts(NamedTuple):
    """Pairs of adjacent words, sorted by their ids, and their counts."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


_Run = tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]  # distinct keys in ascending order, and their counts


def count_bigrams(text: TrainingText, chunk: int = _SORTED) -> BigramCounts:
    """The pairs of adjacent words in sentences; special tokens separate words.

    >>> text = TrainingText(np.array([5, 6, 5, 6, 6, 1, 5], dtype=np.uint16), np.array([0, 4, 7], dtype=np.uint64),
    ...     np.array([0, 2], dtype=np.uint64), ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "a", "b"])
    >>> [array.tolist() for array in count_bigrams(text)]
    [[5, 6], [6, 5], [2, 1]]
    """
    size = np.uint64(len(text.words))
    runs: list[_Run] = []
    with progress("counting pairs", total=len(text.ids), unit="words") as advance:
        for begin in range(0, len(text.ids), chunk):
            runs.append(np.unique(_pair_keys(text, begin, begin + chunk, size), return_counts=True))
            # Only runs of similar size are merged, so that each pair is merged at most log(runs) times.
            while len(runs) > 1 and runs[-2][0].size <= 2 * runs[-1][0].size:
                runs.append(_merge(runs.pop(), runs.pop()))
            advance(chunk)
    while len(runs) > 1:
        runs.append(_merge(runs.pop(), runs.pop()))
    keys, counts = runs[0] if runs else (np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))
    return BigramCounts((keys // size).astype(np.int64), (keys % size).astype(np.int64), counts)


def _pair_keys(text: TrainingText, begin: int, end: int, size: np.uint64) -> npt.NDArray[np.uint64]:
    """left * size + right of the pairs whose left word is in `begin:end`."""
    ids: npt.NDArray[Any] = np.asarray(text.ids[begin : end + 1])
    joined = (ids[:-1] >= FIRST_WORD) & (ids[1:] >= FIRST_WORD)
    first, last = np.searchsorted(text.sentences, np.array([begin + 1, begin + ids.size], dtype=np.uint64))
    joined[text.sentences[first:last].astype(np.int64) - begin - 1] = False
    return np.asarray(ids[:-1][joined] * size + ids[1:][joined])


def _merge(one: _Run, two: _Run) -> _Run:
    keys = np.concatenate([one[0], two[0]])
    order = np.argsort(keys, kind="stable")  # merges the two sorted runs
    keys, counts = keys[order], np.concatenate([one[1], two[1]])[order]
    firsts = np.flatnonzero(np.concatenate([np.ones(min(keys.size, 1), dtype=np.bool_), keys[1:] != keys[:-1]]))
    return keys[firsts], np.add.reduceat(counts, firsts) if firsts.size else counts
