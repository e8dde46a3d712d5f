"""Phrases and entities of a text: spans that knowledge masking masks as a whole (Sun et al. 2019).

Phrases are collocations of adjacent words, as word2vec finds them (Mikolov et al. 2013):

    score(a, b) = (c(a b) - delta) * N / (c(a) c(b))

Chinese words are those of the segmenter, and units by themselves. Entities are runs of capitalised words, words that
the segmenter's dictionary tags as names, and the entries of a gazetteer, which precede the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.files import digest_bytes
from firth.text.segment import HAN
from firth.tokens import _unit_kernels as kernels
from firth.tokens.annotations import AnnotatedText, link_annotated
from firth.tokens.columns import BEGINS, CONTINUES, CapitalColumn, Column, ColumnText
from firth.tokens.gazetteer import PREFIXES, Gazetteer, Numbers, WordBounds

assert (BEGINS, CONTINUES) == (kernels.BEGINS, kernels.CONTINUES)

_MAX_WORDS = 1 << 24  # words at the beginning of a text whose frequencies are counted
_DELTA, _THRESHOLD = 5.0, 100.0  # as in word2vec's phrases
_MAX_PHRASE = 4  # words
_NAME_TAGS = ("nr", "ns", "nt", "nz")  # persons, locations, organisations, other proper nouns (ICTCLAS)


@dataclass(frozen=True)
class PhraseColumn(Column):
    """Collocations."""

    name: ClassVar[str] = "phrases"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found = np.zeros(text.ids.size, dtype=np.uint8)
        pairs = collocations(text)
        kernels.mark_phrases(text.ids, text.word_starts, text.sentences, pairs, _MAX_PHRASE, found)
        return found


@dataclass(frozen=True)
class EntityColumn(Column):
    """Names, and the entries of a gazetteer."""

    gazetteer: Gazetteer | None = None
    name: ClassVar[str] = "entities"
    needs: ClassVar[tuple[type[Column], ...]] = (CapitalColumn,)

    @property
    def key(self) -> str:
        return self.name if self.gazetteer is None else f"{self.name}-{self.gazetteer.digest}"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found = np.zeros(text.ids.size, dtype=np.uint8)
        proper, names = _proper_words(text), _tagged_names(text)
        vocabulary, capitals = text.tokenizer.vocabulary, text.columns[CapitalColumn.name]
        is_word, is_letter = (
            is_word_token(vocabulary),
            np.array([len(PREFIXES.sub("", one)) == 1 for one in vocabulary]),
        )
        kernels.mark_names(
            text.ids, text.word_starts, text.sentences, capitals, is_word, is_letter, proper, names, found
        )
        if self.gazetteer is not None:
            alone = is_character(vocabulary)
            self.gazetteer.table(text.tokenizer).mark(text.ids, text.word_starts, text.sentences, alone, found)
        return found


@dataclass(frozen=True)
class LinkColumn(Column):
    """The entity of a name at its first token, 0 elsewhere: those of a gazetteer, by longest match."""

    gazetteer: Gazetteer | None = None
    annotated: tuple[AnnotatedText, ...] = ()
    """Documents whose entities are given."""
    name: ClassVar[str] = "links"
    dtype: ClassVar[str] = "uint32"

    @property
    def key(self) -> str:
        given = digest_bytes(repr(self.annotated).encode()) if self.annotated else ""
        return self.name if self.gazetteer is None else f"{self.name}-{self.gazetteer.digest}{given}"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found: Numbers = np.zeros(text.ids.size, dtype=np.int32)
        if self.gazetteer is not None:
            # As in use, where a network has tokens alone.
            starts = WordBounds(text.tokenizer.vocabulary).starts(text.ids)
            alone = np.zeros(len(text.tokenizer), dtype=np.bool_)
            self.gazetteer.table(text.tokenizer).mark(text.ids, starts, text.sentences, alone, links=found)
        if self.annotated:
            link_annotated(self.annotated, text, found)
        return found.view(np.uint32)


def is_word_token(vocabulary: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether each token begins with a letter or digit after the prefix of its tokenizer."""
    return np.array([PREFIXES.sub("", token)[:1].isalnum() for token in vocabulary], dtype=np.bool_)


def is_character(vocabulary: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether each token is a Chinese character, the basic unit of Chinese.

    >>> is_character(["[MASK]", "the", "大", "##学", "大学"]).tolist()
    [False, False, True, True, False]
    """
    plain = (PREFIXES.sub("", token) for token in vocabulary)
    return np.array([len(token) == 1 and HAN.match(token) is not None for token in plain], dtype=np.bool_)


def _words(text: ColumnText) -> tuple[Any, ...]:
    """Hashes, begins and ends of the words that are counted, and whether each begins a sentence."""
    limit = min(int(np.count_nonzero(text.word_starts)) + text.sentences.size, _MAX_WORDS)
    found: tuple[Any, ...] = kernels.hash_words(text.ids, text.word_starts, text.sentences, limit)
    return found


def collocations(text: ColumnText) -> npt.NDArray[np.uint64]:
    """The sorted hashes of pairs of adjacent words above the threshold; punctuation is in none."""
    keys, begins, ends, _ = _words(text)
    if keys.size < 2:
        return np.zeros(0, dtype=np.uint64)
    is_word = is_word_token(text.tokenizer.vocabulary)[text.ids[begins]]
    distinct, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sentence = np.searchsorted(text.sentences, begins, side="right")
    together = is_word[:-1] & is_word[1:] & (ends[:-1] == begins[1:]) & (sentence[:-1] == sentence[1:])
    left, right = inverse[:-1][together].astype(np.int64), inverse[1:][together].astype(np.int64)
    pairs, pair_counts = np.unique(left * distinct.size + right, return_counts=True)
    left, right = np.divmod(pairs, distinct.size)
    scores = (pair_counts - _DELTA) * keys.size / (counts[left].astype(np.float64) * counts[right])
    chosen = scores > _THRESHOLD
    found = [kernels.pair_key(*pair) for pair in zip(distinct[left[chosen]], distinct[right[chosen]], strict=True)]
    return np.unique(np.array(found, dtype=np.uint64))


def _proper_words(text: ColumnText) -> npt.NDArray[np.uint64]:
    """Words that, within sentences, are capitalised more often than not."""
    keys, begins, _, initial = _words(text)
    inner = keys[~initial]
    capital = text.columns[CapitalColumn.name][begins[~initial]] > 0
    distinct, inverse = np.unique(inner, return_inverse=True)
    share = np.bincount(inverse, weights=capital, minlength=distinct.size) / np.maximum(np.bincount(inverse), 1)
    return np.ascontiguousarray(distinct[share > 0.5])


def _tagged_names(text: ColumnText) -> npt.NDArray[np.uint64]:
    """Chinese words that the dictionary of the segmenter tags as names."""
    if text.tokenizer.segmenter.name == "space":
        return np.zeros(0, dtype=np.uint64)
    keys, begins, ends, _ = _words(text)
    distinct, firsts = np.unique(keys, return_index=True)
    is_han = np.array([HAN.search(token) is not None for token in text.tokenizer.vocabulary], dtype=np.bool_)
    chosen = [number for number, first in enumerate(firsts.tolist()) if is_han[text.ids[begins[first]]]]
    names = []
    for number in chosen:
        first = firsts[number]
        word = text.tokenizer.decode(text.ids[begins[first] : ends[first]].tolist()).strip()
        if len(word) > 1 and _is_name(word):
            names.append(distinct[number])
    return np.array(names, dtype=np.uint64)


def _is_name(word: str) -> bool:
    import rjieba  # only for Chinese text: its dictionary takes 30 MB

    tags = rjieba.tag(word)
    return len(tags) == 1 and tags[0][1] in _NAME_TAGS
