"""Phrases and entities of a text: spans that knowledge masking masks as a whole (Sun et al. 2019).

Phrases are collocations of adjacent words, as word2vec finds them (Mikolov et al. 2013):

    score(a, b) = (c(a b) - delta) * N / (c(a) c(b))

Chinese words are those of the segmenter, and units by themselves. Entities are runs of capitalised words, words that
the segmenter's dictionary tags as names, and the entries of a gazetteer, which precede the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.files import digest_bytes
from firth.text.files import find_files
from firth.text.readers import read_lines
from firth.text.segment import HAN
from firth.tokens import _unit_kernels as kernels
from firth.tokens.columns import BEGINS, CONTINUES, CapitalColumn, Column, ColumnText
from firth.tokens.tokenizer import SPACE_MARK, Tokenizer

assert (BEGINS, CONTINUES) == (kernels.BEGINS, kernels.CONTINUES)

_MAX_WORDS = 1 << 24  # words at the beginning of a text whose frequencies are counted
_DELTA, _THRESHOLD = 5.0, 100.0  # as in word2vec's phrases
_MAX_PHRASE = 4  # words
_MAX_ENTRIES = 10_000_000  # of a gazetteer
_MAX_ENTRY = 64  # tokens of an entity
_NAME_TAGS = ("nr", "ns", "nt", "nz")  # persons, locations, organisations, other proper nouns (ICTCLAS)
PREFIXES = re.compile(rf"^(?:##|{SPACE_MARK}|\u0120)")
"""The prefixes of tokens that are no part of the text."""


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
            self.gazetteer.mark(text, found)
        return found


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


@dataclass(frozen=True)
class Gazetteer:
    """A list of entities, from a file."""

    entries: tuple[str, ...]
    file: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the entries."""
        return digest_bytes("\n".join(self.entries).encode())

    def mark(self, text: ColumnText, values: npt.NDArray[np.uint8]) -> None:
        """Mark the entries that occur in a text."""
        vocabulary = text.tokenizer.vocabulary
        table, longest = self._table(text.tokenizer)
        found = np.zeros(table.size, dtype=np.bool_)
        kernels.mark_entries(
            text.ids, text.word_starts, text.sentences, is_character(vocabulary), table, longest, values, found
        )

    def _table(self, tokenizer: Tokenizer) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The sorted hashes of entries, and the most tokens of one that begins with each token."""
        keys, longest = set(), np.zeros(len(tokenizer), dtype=np.int64)
        # Where spaces are tokens or parts of them, an entity within a sentence has one before it.
        texts = [form for entry in self.entries for form in (entry, f" {entry}")]
        for tokens in tokenizer.encode_batch(texts):
            ids = np.array(tokens.ids, dtype=np.int64)
            if 0 < ids.size <= _MAX_ENTRY:
                keys.add(int(kernels.word_key(ids, 0, ids.size)))
                longest[ids[0]] = max(longest[ids[0]], ids.size)
        return np.array(sorted(keys), dtype=np.uint64), longest


def read_gazetteer(path: str | Path) -> Gazetteer:
    """The entities of a file: one a line, or the subjects and objects of the triples of a `.spo` file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".spo") as file:
    ...     _ = file.write("巴黎\\t首都\\t法国\\n")
    ...     file.flush()
    ...     read_gazetteer(file.name).entries
    ('巴黎', '法国')
    """
    sources = find_files([path])
    if len(sources) != 1:
        raise CorpusError(f"{path} is not a single file: name one with an entity on each line.")
    triples = ".spo" in Path(path).suffixes
    found: dict[str, None] = {}
    for number, line in read_lines(sources[0]):
        if not line.strip():
            continue
        parts = line.split("\t")
        if triples and len(parts) != 3:
            raise CorpusError(f"line {number + 1} of {path} has {len(parts)} columns: give subject, predicate, object.")
        for entry in (parts[0], parts[2]) if triples else (line,):
            if entry := entry.strip():
                found[entry] = None
    if not found:
        raise CorpusError(f"{path} holds no entity: put one on each line.")
    if len(found) > _MAX_ENTRIES:
        raise CorpusError(f"{path} has {len(found):,} entities: name at most {_MAX_ENTRIES:,}.")
    return Gazetteer(tuple(found), str(path))
