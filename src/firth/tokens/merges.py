"""Learning the merges of byte-pair encoding and of WordPiece from the counts of words.

Tokens and merges come out as the `BpeTrainer` of the `tokenizers` library gives them, to the last tie; where that
library leaves the order to chance (the prefixed characters of WordPiece) it is fixed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import TokenizerError
from firth.tokens import _merge_kernels

Merge = tuple[str, str]
_CODES = 0x110000  # code points of Unicode


def learn_merges(
    words: Mapping[str, int], size: int, *, alphabet: Sequence[str] = (), prefix: str = "", least: int = 1
) -> tuple[list[str], list[Merge]]:
    """At most `size` tokens in the order of their ids, and the pairs of tokens that were joined, in that order.

    The tokens are the characters of `words` and of `alphabet` by code point, then one for each new result of joining
    the most frequent pair of neighbours (of equally frequent pairs the one with the smaller ids), until the best pair
    occurs less than `least` times. With a `prefix`, as WordPiece has it, all characters but the first of a word carry
    it; they follow the plain ones. If there are more characters than `size` the most frequent are kept.

    >>> tokens, merges = learn_merges({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 14)
    >>> tokens
    ['d', 'e', 'i', 'l', 'n', 'o', 'r', 's', 't', 'w', 'es', 'est', 'lo', 'low']
    >>> merges
    [('e', 's'), ('es', 't'), ('l', 'o'), ('lo', 'w')]
    """
    text = _Text(words)
    plain = text.count_characters()
    plain |= dict.fromkeys(alphabet, sum(plain.values()) + 1)  # more frequent than any
    inner = text.count_characters(text.inner) if prefix else {}
    counts = plain | {prefix + character: count for character, count in inner.items()}
    tokens = [*sorted(plain), *(prefix + character for character in sorted(inner))]
    if len(tokens) >= size:
        kept = set(sorted(tokens, key=lambda token: -counts[token])[:size])
        return [token for token in tokens if token in kept], []
    ids = {token: place for place, token in enumerate(tokens)}
    text.spell({character: ids[character] for character in plain})
    if prefix:
        text.spell({character: ids[prefix + character] for character in inner}, text.inner)
    return tokens, _learn(text, tokens, size, least, prefix=prefix)


def more_merges(
    words: Mapping[str, int],
    tokens: Sequence[str],
    merges: Sequence[Merge],
    size: int,
    *,
    least: int = 1,
    new_characters: bool = False,
) -> tuple[list[str], list[Merge]]:
    """The tokens and merges of a byte-pair encoding with those that `words` add to them, up to `size` tokens.

    Old tokens keep their places. With `new_characters` the characters that they lack come next, by frequency and then
    code point; any that are still lacking are passed over. Then pairs are joined, beginning with the old merges.

    >>> more_merges({"newer": 3, "wer": 2}, ["e", "n", "r", "w", "er"], [("e", "r")], 7)
    (['e', 'n', 'r', 'w', 'er', 'wer', 'ewer'], [('e', 'r'), ('w', 'er'), ('e', 'wer')])
    """
    text = _Text(words)
    grown = list(tokens)
    if new_characters:
        counts = text.count_characters()
        fresh = sorted(counts.keys() - set(tokens), key=lambda character: (-counts[character], character))
        grown += fresh[: max(size - len(tokens), 0)]
    if len(grown) >= size:
        return grown, list(merges)
    ids = {token: place for place, token in enumerate(grown)}
    text.spell({token: ids[token] for token in grown if len(token) == 1})
    text.join(ids, merges)
    return grown, _learn(text, grown, size, least, merges=merges)


def _learn(
    text: _Text, tokens: list[str], size: int, least: int, *, prefix: str = "", merges: Iterable[Merge] = ()
) -> list[Merge]:
    """The merges with new ones after them; new tokens are appended to `tokens`."""
    ids = {token: place for place, token in enumerate(tokens)}
    learnt = dict.fromkeys(merges)
    answer = np.zeros(1, dtype=np.int64)
    for key in text.best_pairs(least, answer):
        left, right = tokens[key >> _merge_kernels.HALF], tokens[key & _merge_kernels.RIGHT]
        learnt[left, right] = None
        joined = left + right.removeprefix(prefix)
        if joined not in ids:
            ids[joined] = len(tokens)
            tokens.append(joined)
        answer[0] = ids[joined] if len(tokens) < size else -1
    return list(learnt)


class _Text:
    """Words as one array of symbols."""

    def __init__(self, words: Mapping[str, int]) -> None:
        counts = {word: count for word, count in words.items() if word and count > 0}
        if not counts:
            raise TokenizerError("there are no words to learn tokens from: give more text.")
        data = "".join(counts).encode("utf-32-le", "surrogatepass")
        lengths = np.fromiter(map(len, counts), dtype=np.int64, count=len(counts))
        self._codes = np.frombuffer(data, dtype=np.uint32)
        self._counts = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
        self._words = np.repeat(np.arange(len(counts), dtype=np.int32), lengths)
        self._symbols = np.full(self._codes.size, _merge_kernels.GONE, dtype=np.int32)
        self.inner = np.diff(self._words, prepend=-1) == 0
        """Which characters are not the first of their words."""

    def count_characters(self, where: npt.NDArray[np.bool_] | slice = slice(None)) -> dict[str, int]:
        """How often each character occurs."""
        counts = np.bincount(self._codes[where], weights=self._counts[self._words[where]])
        return {chr(code): int(counts[code]) for code in np.flatnonzero(counts).tolist()}

    def spell(self, ids: Mapping[str, int], where: npt.NDArray[np.bool_] | slice = slice(None)) -> None:
        """Puts the ids of characters in their places; those that have none are passed over."""
        table = np.full(_CODES, _merge_kernels.GONE, dtype=np.int32)
        table[[ord(character) for character in ids]] = list(ids.values())
        self._symbols[where] = table[self._codes[where]]

    def join(self, ids: Mapping[str, int], merges: Sequence[Merge]) -> None:
        """Joins symbols as an encoder with these merges does."""
        rows = np.empty((len(merges), 2), dtype=np.int64)
        for row, (left, right) in zip(rows, merges, strict=True):
            if not {left, right, left + right} <= ids.keys():
                raise TokenizerError(
                    f"the vocabulary lacks a token of the merge {left!r} + {right!r}: train the tokenizer anew."
                )
            row[:] = ids[left] << _merge_kernels.HALF | ids[right], ids[left + right]
        self._drop_gone()
        _merge_kernels.apply_merges(self._symbols, self._words, rows)

    def best_pairs(self, least: int, answer: npt.NDArray[np.int64]) -> Any:
        """The pairs to join; see the kernel."""
        self._drop_gone()
        return _merge_kernels.best_pairs(self._symbols, self._words, self._counts, least, answer)

    def _drop_gone(self) -> None:
        kept = self._symbols != _merge_kernels.GONE
        self._symbols, self._words = self._symbols[kept], self._words[kept]
