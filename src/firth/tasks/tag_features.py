"""Features of words and their neighbours for the linear tagger.

A feature is a 64-bit hash of its template and strings, whose row of weights is found by binary search. The strings of a
word are its spelling, shape and affixes; those of a character its own and the word that the segmenter finds around it.
Words also have classes, if a text has taught them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.tasks.examples import TagExample
from firth.tasks.recipe import LinearRecipe
from firth.text.segment import WORD_BREAK, Segmenter
from firth.tokens.word_classes import LEVELS, WordClasses, text_hash

Ints = npt.NDArray[np.int64]
_CONTEXT = 2  # words on each side
_AFFIXES = 4  # maximum length of prefixes and suffixes
_WORD, _SHAPE = 0, 1  # indices of strings
_PREFIXES, _CLASSES = 2, 2 + 2 * _AFFIXES  # the same, of words
_AROUND, _PLACE = 2, 3  # of characters

Template = tuple[tuple[int, int], ...]
"""The strings of a feature: an index in the strings of a unit and the offset of the unit, for each."""


def _unigrams(string: int, *offsets: int) -> list[Template]:
    return [((string, offset),) for offset in offsets]


def _bigrams(string: int, *offsets: int) -> list[Template]:
    return [((string, offset), (string, offset + 1)) for offset in offsets]


_SHARED = [(), *_unigrams(_WORD, -2, -1, 0, 1, 2), *_unigrams(_SHAPE, 0)]
# The number of a template is a part of the hash of its features: new ones are added at the end.
_WORDS: list[Template] = [
    *_SHARED,
    *[((_PREFIXES + affix, 0),) for affix in range(2 * _AFFIXES)],
    *_unigrams(_SHAPE, -1, 1),
    *_bigrams(_WORD, -1, 0),
    *_bigrams(_SHAPE, -1, 0),
]
_CHARACTERS: list[Template] = [
    *_SHARED,
    *_bigrams(_WORD, -2, -1, 0, 1),
    ((_WORD, -1), (_WORD, 1)),
    *_unigrams(_AROUND, -2, -1, 0, 1, 2),
    *_unigrams(_PLACE, -1, 0, 1),
    ((_AROUND, 0), (_PLACE, 0)),
]
_WORD_CLASSES: list[Template] = [
    *[one for level in range(LEVELS) for one in _unigrams(_CLASSES + level, -2, -1, 0, 1, 2)],
    *_bigrams(_CLASSES + LEVELS - 1, -1, 0),
]
"""The classes of all words in sight, at each level, and pairs of the finest ones."""


def shape(word: str) -> str:
    """The shape of a word: X upper case, x lower case, c other letters, 0 digits; runs are collapsed.

    >>> shape("U.N."), shape("McDonald"), shape("1996-08-22"), shape("语言")
    ('X.X.', 'XxXx', '0-0-0', 'c')
    """
    return "".join(kind for kind, _ in groupby(map(_kind, word)))


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    if not character.isalpha():
        return character
    return "X" if character.isupper() else "x" if character.islower() else "c"


def word_strings(word: str) -> list[str | None]:
    """The lower-cased word, its shape, and its proper prefixes and suffixes of 1 to 4 characters.

    >>> word_strings("Jan")
    ['jan', 'Xx', 'j', 'ja', None, None, 'n', 'an', None, None]
    """
    lower = word.lower()
    sizes = range(1, _AFFIXES + 1)
    prefixes = [lower[:size] if size < len(lower) else None for size in sizes]
    return [lower, shape(word), *prefixes, *(lower[-size:] if size < len(lower) else None for size in sizes)]


class Unit(NamedTuple):
    """What is tagged, as features see it."""

    text: str
    around: str = ""
    """Of a character: the word that it is a part of."""
    place: str = ""
    """Where it is in the word: at its beginning, in the middle, at the end, or all of it (BMES)."""


_PLACES = {(True, False): "B", (False, False): "M", (False, True): "E", (True, True): "S"}
"""Whether a character begins and ends a word -> its place."""


class WordFeatures(NamedTuple):
    """The features of the words of sentences, one after the other."""

    features: npt.NDArray[np.int32]  # (words, templates): indices of features; -1 for unknown ones
    bounds: Ints  # offsets of the sentences, and the end of the last one


class FeatureExtractor:
    """Extracts features of words; the known ones are in `keys`, sorted."""

    def __init__(
        self, recipe: LinearRecipe, segmenter: Segmenter | None = None, classes: WordClasses | None = None
    ) -> None:
        """`segmenter` finds words around characters; `classes` are those of words.

        Those of the words around characters are not used: on MSRA they were of no help.
        """
        self.segmenter, self.is_of_characters = segmenter, recipe.features == "characters"
        self.classes = None if self.is_of_characters else classes
        self.templates = list(_CHARACTERS if self.is_of_characters else _WORDS)
        if self.classes is not None:
            self.templates += _WORD_CLASSES
        self.keys = np.zeros(0, dtype=np.int64)

    def fit(self, examples: Sequence[TagExample], min_count: int) -> Ints:
        """Choose the features that occur often enough, and return their counts."""
        found = [np.unique(column, return_counts=True) for column in self.columns(examples)]
        keys = np.concatenate([keys for keys, _ in found])
        counts = np.concatenate([counts for _, counts in found])
        kept = (counts >= min_count) & (keys != 0)
        if not kept.any():
            raise CorpusError(f"no feature occurs {min_count} times: give more examples, or set min_count=1.")
        order = np.argsort(keys[kept])
        self.keys = keys[kept][order]
        return np.asarray(counts[kept][order])

    def extract(self, examples: Sequence[TagExample]) -> WordFeatures:
        """The features of all words."""
        bounds = np.cumsum([0, *(len(one.words) for one in examples)])
        features = np.full((bounds[-1], len(self.templates)), -1, dtype=np.int32)
        for number, column in enumerate(self.columns(examples)):
            indices = np.searchsorted(self.keys, column)
            known = (np.append(self.keys, 0)[indices] == column) & (column != 0)
            features[known, number] = indices[known]
        return WordFeatures(features, bounds)

    def columns(self, examples: Sequence[TagExample]) -> Iterator[Ints]:
        """The hashes of all words for each template; 0 where a word has no such feature."""
        units, indices, positions = self._units(examples)
        table = np.array(
            [[0 if string is None else text_hash(string) for string in strings] for strings in self._strings(units)],
            np.uint64,
        )
        for number, template in enumerate(self.templates):
            hashes = np.full(positions.size, number + 1, dtype=np.uint64)
            exists = np.ones(positions.size, dtype=np.bool_)
            for string, offset in template:
                digests = table[indices[positions + offset], string]
                exists &= digests != 0
                hashes = _mix(hashes, digests)
            yield np.where(exists, _mix(hashes, np.uint64(0)), np.uint64(0)).view(np.int64)

    def _units(self, examples: Sequence[TagExample]) -> tuple[list[Unit], Ints, Ints]:
        """The distinct units, the index of each unit of the examples, and the positions of real ones among these.

        Sentences are separated by as many empty units as the context has.
        """
        numbers = {Unit(""): 0}
        indices, positions = [0] * _CONTEXT, []
        for one in examples:
            units = self._around(one) if self.is_of_characters else map(Unit, one.words)
            positions.append(np.arange(len(indices), len(indices) + len(one.words)))
            indices += [numbers.setdefault(unit, len(numbers)) for unit in units]
            indices += [0] * _CONTEXT
        return list(numbers), np.array(indices), np.concatenate([np.zeros(0, dtype=np.int64), *positions])

    def _around(self, example: TagExample) -> Iterable[Unit]:
        """The characters of a sentence, each with the word around it."""
        if self.segmenter is None or example.spaced:
            return map(Unit, example.words)
        return words_around(example.words, self.segmenter)

    def _strings(self, units: Sequence[Unit]) -> Iterator[Sequence[str | None]]:
        """The strings of each unit that templates name by their indices."""
        if self.is_of_characters:
            for unit in units:
                yield [unit.text.lower(), shape(unit.text), unit.around or None, unit.place or None]
            return
        words = [unit.text for unit in units]
        for word, classes in zip(words, self._class_strings(words), strict=True):
            yield [*word_strings(word), *classes]

    def _class_strings(self, words: Sequence[str]) -> list[list[str | None]]:
        """The class of each word at each level, as a string."""
        if self.classes is None:
            return [[] for _ in words]
        found = self.classes.find(words).tolist()
        return [[None if one < 0 else f"{level} {one}" for level, one in enumerate(row)] for row in found]


def words_around(characters: Sequence[str], segmenter: Segmenter) -> list[Unit]:
    """Each character with the word that a segmenter finds around it.

    >>> from firth.text.segment import make_segmenter
    >>> [(unit.around, unit.place) for unit in words_around("我喜欢语言", make_segmenter())]
    [('我', 'S'), ('喜欢', 'B'), ('喜欢', 'E'), ('语言', 'B'), ('语言', 'E')]
    """
    marked = segmenter.mark("".join(one.replace("\n", " ") for one in characters)).split(WORD_BREAK)
    ends = np.cumsum([len(word) for word in marked])
    units, begin = [], 0
    for character in characters:
        index = min(int(np.searchsorted(ends, begin, side="right")), len(marked) - 1)
        first, end = int(ends[index]) - len(marked[index]), begin + len(character)
        place = _PLACES[(begin <= first, end >= int(ends[index]))]
        units.append(Unit(character, marked[index], place))
        begin = end
    return units


def _mix(hashes: npt.NDArray[np.uint64], more: Any) -> npt.NDArray[np.uint64]:
    """The hash of two numbers by the finalizer of SplitMix64 (Steele et al. 2014)."""
    hashes = (hashes ^ more) + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
