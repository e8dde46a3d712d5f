"""Columns of the structure of documents: repeated tokens, discourse markers, headlines and turns of dialogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.files import digest_bytes
from firth.text.dialogue import MIN_TURNS
from firth.text.discourse import MARKERS, RELATIONS
from firth.tokens import _structure_kernels as kernels
from firth.tokens._unit_kernels import word_key
from firth.tokens.annotations import AnnotatedText
from firth.tokens.columns import CapitalColumn, Column, ColumnText
from firth.tokens.gazetteer import PREFIXES, Gazetteer
from firth.tokens.units import EntityColumn, LinkColumn, PhraseColumn

_ENDS = frozenset(".。!！?？;；:：…,，、")  # characters that a headline does not end with
_CLOSING = frozenset("\"'”’」』)）]】")
_MAX_HEADLINE = 30  # tokens
_MAX_SPEAKER = 8  # tokens of a speaker and the colon
FIRST_SPEAKER, OTHER_SPEAKER = 1, 2
"""The values of turns: whether a turn is of the speaker who begins the dialogue."""


@dataclass(frozen=True)
class RepeatColumn(Column):
    """1 for tokens that occur in another sentence of their document, too."""

    name: ClassVar[str] = "repeats"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found = np.zeros(text.ids.size, dtype=np.uint8)
        kernels.mark_repeats(text.ids, text.sentences, text.documents, len(text.tokenizer), found)
        return found


@dataclass(frozen=True)
class DiscourseColumn(Column):
    """The number of the relation, from 1, for the tokens of the discourse marker that a sentence begins with."""

    name: ClassVar[str] = "discourse"

    @property
    def key(self) -> str:
        return f"{self.name}-{digest_bytes(repr(MARKERS).encode())}"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found = np.zeros(text.ids.size, dtype=np.uint8)
        marked = {marker: number for number, name in enumerate(RELATIONS, 1) for marker in MARKERS[name]}
        forms = {form: kind for marker, kind in marked.items() for form in (marker, marker.capitalize())}
        numbers = dict[int, int]()
        longest = 0
        for kind, tokens in zip(forms.values(), text.tokenizer.encode_batch(list(forms)), strict=True):
            ids = np.array(tokens.ids, dtype=np.int64)
            if ids.size:
                numbers[int(word_key(ids, 0, ids.size))] = kind
                longest = max(longest, ids.size)
        keys = np.array(sorted(numbers), dtype=np.uint64)
        kinds = np.array([numbers[int(key)] for key in keys], dtype=np.int64)
        follows = np.ones(text.sentences.size - 1, dtype=np.bool_)
        follows[text.documents[:-1]] = False
        commas = _is_one_of(text, ",，、")
        kernels.mark_openings(text.ids, text.word_starts, text.sentences, follows, keys, kinds, longest, commas, found)
        return found


@dataclass(frozen=True)
class HeadlineColumn(Column):
    """1 for the tokens of a headline: the first line of a document, if it is short and does not end like a sentence."""

    name: ClassVar[str] = "headlines"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found = np.zeros(text.ids.size, dtype=np.uint8)
        first, counts = text.documents[:-1], np.diff(text.documents)
        begins, ends = text.sentences[first], text.sentences[first + 1]
        closes = _is_one_of(text, "".join(_ENDS | _CLOSING))
        chosen = (counts > 1) & (ends - begins <= _MAX_HEADLINE) & ~closes[text.ids[ends - 1]]
        kernels.mark_ranges(begins[chosen], (ends - begins)[chosen], np.ones(int(chosen.sum()), dtype=np.uint8), found)
        return found


@dataclass(frozen=True)
class TurnColumn(Column):
    """The speaker of a turn in a dialogue, 1 for the first one and 2 for others, at the tokens of `speaker:`.

    A dialogue is a document whose first sentence begins with a speaker and a colon, as at least half of its sentences
    do, with three turns or more, of two speakers or more, of whom one has two turns.
    """

    name: ClassVar[str] = "turns"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        found = np.zeros(text.ids.size, dtype=np.uint8)
        lengths = kernels.find_colons(text.ids, text.sentences, _is_one_of(text, ":："), _MAX_SPEAKER)
        opens = lengths > 0
        turns, counts = np.add.reduceat(opens, text.documents[:-1]), np.diff(text.documents)
        likely = opens[text.documents[:-1]] & (turns >= MIN_TURNS) & (2 * turns >= counts)
        for document in np.flatnonzero(likely).tolist():
            inside = np.arange(text.documents[document], text.documents[document + 1])
            chosen = inside[opens[inside]]
            begins = text.sentences[chosen]
            speakers = [
                tuple(text.ids[begin : begin + length - 1].tolist())
                for begin, length in zip(begins.tolist(), lengths[chosen].tolist(), strict=True)
            ]
            if 1 < len(set(speakers)) < len(speakers):
                kinds = [FIRST_SPEAKER if one == speakers[0] else OTHER_SPEAKER for one in speakers]
                kernels.mark_ranges(begins, lengths[chosen], np.array(kinds, dtype=np.uint8), found)
        return found


def _is_one_of(text: ColumnText, characters: str) -> npt.NDArray[np.bool_]:
    """Whether each token of the vocabulary is one of these characters."""
    return np.array([PREFIXES.sub("", token) in set(characters) for token in text.tokenizer.vocabulary], dtype=np.bool_)


def make_columns(
    names: Sequence[str], gazetteer: Gazetteer | None = None, annotated: tuple[AnnotatedText, ...] = ()
) -> tuple[Column, ...]:
    """The columns of these names.

    >>> [column.name for column in make_columns(["phrases", "entities"])]
    ['phrases', 'entities']
    """
    plain = (CapitalColumn(), PhraseColumn(), RepeatColumn(), DiscourseColumn(), HeadlineColumn(), TurnColumn())
    made: dict[str, Column] = {
        one.name: one for one in (*plain, EntityColumn(gazetteer), LinkColumn(gazetteer, annotated))
    }
    return tuple(made[name] for name in names)
