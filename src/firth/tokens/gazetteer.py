"""Gazetteer: the names of entities, which are found in tokens by longest match.

A name is found as the tokens that it is encoded to. Names of a knowledge graph have entity numbers, from 1; a
name of several entities means the one with the highest prior.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.files import digest_bytes
from firth.text.files import find_files
from firth.text.readers import read_lines
from firth.text.segment import HAN
from firth.tokens import _unit_kernels as kernels
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import FIRST_WORD, SPACE_MARK, Tokenizer

Numbers = npt.NDArray[np.int32]
PREFIXES = re.compile(rf"^(?:##|{SPACE_MARK}|\u0120)")
"""The prefixes of tokens that are no part of the text."""
MAX_TOKENS = 64
"""Tokens of a name, at most; longer ones are not found."""
_MAX_ENTRIES = 10_000_000
_CHUNK = 1 << 14  # names encoded at once: an encoding takes some kilobytes
_NO_NUMBERS = np.zeros(0, dtype=np.int32)
_NO_SPANS = np.zeros(0, dtype=np.uint8)


class NameTable(NamedTuple):
    """The names of a gazetteer as tokens."""

    keys: npt.NDArray[np.uint64]
    """The sorted hashes of names."""
    numbers: Numbers
    """The entity of each; 0 where entities have no numbers."""
    longest: npt.NDArray[np.int64]
    """(vocabulary,): the most tokens of a name that begins with each token."""

    def mark(
        self,
        ids: npt.NDArray[Any],
        starts: npt.NDArray[np.bool_],
        sentences: npt.NDArray[np.int64],
        alone: npt.NDArray[np.bool_],
        spans: npt.NDArray[np.uint8] = _NO_SPANS,
        links: Numbers = _NO_NUMBERS,
    ) -> None:
        """Find names in sentences, which are from one offset to the next.

        `starts` says where words begin, `alone` which tokens of the vocabulary are words by themselves. Names are
        marked in `spans`, and the first token of each has its entity in `links`; either may be left out.
        """
        kernels.mark_entries(ids, starts, sentences, alone, *self, spans, links)


@dataclass(frozen=True)
class Gazetteer:
    """The names of entities; of equal names the first one counts."""

    entries: tuple[str, ...]
    file: str = field(default="", compare=False)
    """Where they are from, for messages."""
    numbers: Numbers = field(default_factory=lambda: _NO_NUMBERS, compare=False)
    """The entity of each name, from 1; empty: they have none."""

    @property
    def joined(self) -> bytes:
        """The names in UTF-8, with line breaks between them."""
        return "\n".join(self.entries).encode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the names and their entities."""
        return digest_bytes(self.joined + self.numbers.tobytes())

    def _chunks(self) -> Iterator[Sequence[str]]:
        return (self.entries[begin : begin + _CHUNK] for begin in range(0, len(self.entries), _CHUNK))

    def table(self, tokenizer: Tokenizer) -> NameTable:
        """The names in the tokens of a tokenizer; those with unknown tokens are left out.

        Of names that are encoded alike, such as those that differ in case, the first one counts.
        """
        numbers = self.numbers if self.numbers.size else np.zeros(len(self.entries), dtype=np.int32)
        encoder = _NameEncoder(tokenizer)
        found = [encoder.encode(names) for names in self._chunks()]
        keys = np.concatenate([keys for keys, _ in found] or [np.zeros(0, dtype=np.uint64)])
        owners = [owner + number * _CHUNK for number, (_, owner) in enumerate(found)]
        distinct, firsts = np.unique(keys, return_index=True)  # the first of equal ones
        order = np.concatenate(owners or [np.zeros(0, dtype=np.int64)])[firsts]
        return NameTable(distinct, np.ascontiguousarray(numbers[order]), encoder.longest)


class _NameEncoder:
    """Hashes of the tokens of names."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encoder = TextEncoder(tokenizer)
        self._is_bare = np.array([PREFIXES.sub("", token) == "" for token in tokenizer.vocabulary], dtype=np.bool_)
        self.longest = np.zeros(len(tokenizer), dtype=np.int64)
        """The most tokens of a name so far that begins with each token."""

    def encode(self, names: Sequence[str]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The hashes of names, and the index of the name of each."""
        # Where spaces are tokens or parts of them, a name within a sentence has one before it.
        plain = (name.replace("\0", " ") for name in names)
        encoded = self._encoder.encode([form for name in plain for form in (name, f" {name}")])
        ids, ends = encoded.ids.astype(np.int64), np.cumsum(encoded.lengths)
        begins, owners = ends - encoded.lengths, np.arange(ends.size) // 2
        some = np.flatnonzero(encoded.lengths > 1)
        spaced = some[self._is_bare[ids[begins[some]]]]  # within Chinese text there is no space
        begins, ends = np.concatenate([begins, begins[spaced] + 1]), np.concatenate([ends, ends[spaced]])
        owners = np.concatenate([owners, owners[spaced]])
        unknown = np.concatenate([[0], np.cumsum(ids < FIRST_WORD)])
        lengths = ends - begins
        kept = (lengths > 0) & (lengths <= MAX_TOKENS) & (unknown[ends] == unknown[begins])
        kept = np.flatnonzero(kept)[np.argsort(owners[kept], kind="stable")]
        begins, ends = begins[kept], ends[kept]
        np.maximum.at(self.longest, ids[begins], ends - begins)
        return kernels.hash_ranges(ids, begins, ends), owners[kept]


class WordBounds:
    """Where words begin in tokens, by the tokens alone.

    A token begins a word unless its tokenizer has marked it as a continuation, or has put no space between two tokens
    that meet in letters or digits. Chinese characters are words by themselves.

    >>> bounds = WordBounds(["[PAD]", "new", "##ark", "york", ",", "大", "##学"])
    >>> bounds.starts(np.array([1, 2, 4, 3, 5, 6])).tolist()
    [True, False, True, True, True, True]
    >>> WordBounds(["a", "▁in", "to", ","]).starts(np.array([1, 2, 3, 2])).tolist()
    [True, False, True, True]
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        plain = [PREFIXES.sub("", token) for token in vocabulary]
        prefixes = [token[: len(token) - len(text)] for token, text in zip(vocabulary, plain, strict=True)]
        has_spaces = any(mark not in ("", "##") for mark in prefixes)
        continues = ("", "##") if has_spaces else ("##",)
        self._opens = np.array([mark not in continues for mark in prefixes], dtype=np.bool_)
        self._joins_before, self._joins_after = (
            np.array([_joins(text[edge : edge + 1] if edge == 0 else text[edge:]) for text in plain], dtype=np.bool_)
            for edge in (0, -1)
        )

    def starts(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether a word begins at each of consecutive tokens."""
        found: npt.NDArray[np.bool_] = self._opens[ids]
        found[1:] |= ~(self._joins_after[ids[:-1]] & self._joins_before[ids[1:]])
        found[:1] = True
        return found


def _joins(character: str) -> bool:
    """Whether a character is a part of a word with others."""
    return character.isalnum() and HAN.match(character) is None


def read_gazetteer(path: str | Path) -> Gazetteer:
    """The entities of a file: one a line, or the subjects and objects of the triples of a `.spo` file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".spo") as file:
    ...     _ = file.write("巴黎\\t首都\\t法国\\n")
    ...     file.flush()
    ...     read_gazetteer(file.name).entries
    ('巴黎', '法国')
    """
    triples = ".spo" in Path(path).suffixes
    found: dict[str, None] = {}
    for number, line in name_lines(path):
        parts = line.split("\t")
        if triples and len(parts) != 3:
            raise CorpusError(f"line {number + 1} of {path} has {len(parts)} columns: give subject, predicate, object.")
        for entry in (parts[0], parts[2]) if triples else (line,):
            if entry := entry.strip():
                found[entry] = None
    if not found:
        raise CorpusError(f"{path} holds no entity: put one on each line.")
    return Gazetteer(tuple(require_size(found, path)), str(path))


def name_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a file of names that are not blank, with their numbers from 0."""
    sources = find_files([path])
    if len(sources) != 1:
        raise CorpusError(f"{path} is not a single file: name one with an entity on each line.")
    lines = read_lines(replace(sources[0], format="text"))
    return ((number, line) for number, line in lines if line.strip())


def require_size(names: dict[str, Any], path: str | Path) -> Iterable[str]:
    """The names of a file, unless there are too many."""
    if len(names) > _MAX_ENTRIES:
        raise CorpusError(f"{path} has {len(names):,} entities: name at most {_MAX_ENTRIES:,}.")
    return names
