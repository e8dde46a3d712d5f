"""LinearTagger: a conditional random field on what is seen in and around each word (Lafferty et al. 2001).

A feature is one whole number, mixed of its kind and digests of letters, so that its row of weights is found in a sorted
array; two of them are the same by chance once in 2^64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError
from firth.tasks.chain import decode
from firth.tasks.examples import Example, TagExample
from firth.tasks.linear import Whole
from firth.tasks.linear_recipe import LinearRecipe
from firth.tasks.metrics import measure_tags
from firth.tasks.schemes import is_fault
from firth.tasks.solver import Answer, Solver
from firth.tokens.tokenizer import Tokenizer

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FORBIDDEN = -1e6
"""What a step that breaks the scheme costs: more than any weights can make up for."""
_STEEPEST = 500.0  # a step whose exponential is still a number; learnt ones are far smaller
_AROUND = 2  # words to each side that are looked at
_AFFIXES = 4  # letters of the longest
_WORD, _SHAPE, _PREFIXES = 0, 1, 2  # the places in `word_parts`
_DAMAGED = "the numbers of the linear tagger are damaged: copy the folder again, or train it again."

Looks = tuple[tuple[int, int], ...]
"""What a feature is made of: parts of words, and the distances of the words."""
_SHARED: list[Looks] = [(), *[((_WORD, place),) for place in (-2, -1, 0, 1, 2)], ((_SHAPE, 0),)]
_WORDS: list[Looks] = [
    *_SHARED,
    *[((_PREFIXES + affix, 0),) for affix in range(2 * _AFFIXES)],
    *[((_SHAPE, place),) for place in (-1, 1)],
    *[((_WORD, place), (_WORD, place + 1)) for place in (-1, 0)],
    *[((_SHAPE, place), (_SHAPE, place + 1)) for place in (-1, 0)],
]
_CHARACTERS: list[Looks] = [
    *_SHARED,
    *[((_WORD, place), (_WORD, place + 1)) for place in (-2, -1, 0, 1)],
    ((_WORD, -1), (_WORD, 1)),
]


def shape(word: str) -> str:
    """How a word looks: X, x and c for letters (c has no case), 0 for digits, each run of them once.

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


def word_parts(word: str) -> list[str | None]:
    """The word in small letters, its shape, and its first and last 1 to 4 letters if it has more than those.

    >>> word_parts("Jan")
    ['jan', 'Xx', 'j', 'ja', None, None, 'n', 'an', None, None]
    """
    lower = word.lower()
    sizes = range(1, _AFFIXES + 1)
    prefixes = [lower[:size] if size < len(lower) else None for size in sizes]
    return [lower, shape(word), *prefixes, *(lower[-size:] if size < len(lower) else None for size in sizes)]


class Words(NamedTuple):
    """The words of sentences, one after the other."""

    features: npt.NDArray[np.int32]
    """A row for each word: the features that it has, -1 where one has no weights."""
    bounds: Numbers
    """Where each sentence begins, and the end of the last one."""


class Sights:
    """The features of words, of which those in `keys` have weights."""

    def __init__(self, recipe: LinearRecipe) -> None:
        self.looks = _CHARACTERS if recipe.features == "characters" else _WORDS
        self.keys = np.zeros(0, dtype=np.int64)

    def learn(self, examples: Sequence[TagExample], min_count: int) -> Numbers:
        """Takes the features that enough words have, and returns how many have each."""
        found = [np.unique(column, return_counts=True) for column in self.columns(examples)]
        keys = np.concatenate([keys for keys, _ in found])
        counts = np.concatenate([counts for _, counts in found])
        kept = (counts >= min_count) & (keys != 0)
        if not kept.any():
            raise CorpusError(f"no feature occurs {min_count} times: give more examples, or set min_count=1.")
        order = np.argsort(keys[kept])
        self.keys = keys[kept][order]
        return np.asarray(counts[kept][order])

    def find(self, examples: Sequence[TagExample]) -> Words:
        """The features of all words."""
        bounds = np.cumsum([0, *(len(one.words) for one in examples)])
        features = np.full((bounds[-1], len(self.looks)), -1, dtype=np.int32)
        for number, column in enumerate(self.columns(examples)):
            places = np.searchsorted(self.keys, column)
            known = (np.append(self.keys, 0)[places] == column) & (column != 0)
            features[known, number] = places[known]
        return Words(features, bounds)

    def columns(self, examples: Sequence[TagExample]) -> Iterator[Numbers]:
        """One kind of feature after the other, for all words; 0 where a word has none."""
        table, words, places = _read(examples)
        for number, look in enumerate(self.looks):
            mixed = np.full(places.size, number + 1, dtype=np.uint64)
            there = np.ones(places.size, dtype=np.bool_)
            for part, distance in look:
                digests = table[words[places + distance], part]
                there &= digests != 0
                mixed = _mix(mixed, digests)
            yield np.where(there, _mix(mixed, np.uint64(0)), np.uint64(0)).view(np.int64)


def _read(examples: Sequence[TagExample]) -> tuple[npt.NDArray[np.uint64], Numbers, Numbers]:
    """The digests of the parts of each different word, which words follow each other, and where the real ones are.

    Between sentences there are empty words, as many as can be seen from one word.
    """
    numbers = {"": 0}
    between = [0] * _AROUND
    words, places = [*between], []
    for one in examples:
        places.append(np.arange(len(words), len(words) + len(one.words)))
        words += [numbers.setdefault(word, len(numbers)) for word in one.words]
        words += between
    table = np.array([[_digest(part) for part in word_parts(word)] for word in numbers], dtype=np.uint64)
    return table, np.array(words), np.concatenate([np.zeros(0, dtype=np.int64), *places])


def _digest(part: str | None) -> int:
    """A number for some letters that is the same on any machine; 0 for none."""
    if part is None:
        return 0
    return int.from_bytes(blake2b(part.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mix(mixed: npt.NDArray[np.uint64], more: Any) -> npt.NDArray[np.uint64]:
    """Both numbers as one, by the finalizer of SplitMix64 (Steele et al. 2014)."""
    mixed = (mixed ^ more) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def faults(recipe: LinearRecipe) -> npt.NDArray[np.bool_]:
    """Which tag (column) may not follow which (row) in the scheme; the last of both are the beginning and the end."""
    tags = (*recipe.labels, "")
    return np.array([[is_fault(before, tag, recipe.scheme) for tag in tags] for before in tags])


class LinearTagger(Solver):
    """Weights of features for each tag, and of steps from tag to tag."""

    frame = Whole()

    def __init__(
        self,
        recipe: LinearRecipe,
        tokenizer: Tokenizer,
        sights: Sights,
        weights: npt.NDArray[np.float32],
        steps: Floats,
    ) -> None:
        """`weights` has a row for each feature; `steps` a row and a column for each tag and one more."""
        self.recipe, self.tokenizer, self.sights = recipe, tokenizer, sights
        self.weights, self.steps = weights, steps
        self.task: str = recipe.task
        self.labels, self.fields = recipe.labels, recipe.fields
        self._faults = faults(recipe)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""
        return {"keys": self.sights.keys, "weights": self.weights, "steps": self.steps}

    def answer_all(self, examples: Sequence[Example]) -> list[Answer]:
        """The answers to some examples."""
        return self.answers(self.sights.find(cast(Sequence[TagExample], examples)))

    def answers(self, words: Words) -> list[Answer]:
        """The best tags of each sentence that keep to the scheme, and the probability of each."""
        from firth.tasks._linear_kernels import emit

        legal = np.where(self._faults, FORBIDDEN, self.steps)
        emissions = emit(words.features, self.weights)
        told: list[Answer] = []
        for begin, end in zip(words.bounds[:-1], words.bounds[1:], strict=True):
            if begin == end:
                told.append({"tags": [], "probabilities": []})
                continue
            tags, chances = decode(emissions[begin:end], legal)
            told.append({"tags": [self.labels[tag] for tag in tags.tolist()], "probabilities": chances.tolist()})
        return told

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """How good answers are: metrics with intervals."""
        return measure_tags(examples, answers, seed=seed, samples=samples)


def restore(recipe: LinearRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer) -> LinearTagger:
    """The tagger of a saved artifact's arrays, after a look at their names, types and shapes."""
    types = {"keys": np.int64, "weights": np.float32, "steps": np.float64}
    if set(arrays) != set(types) or any(arrays[name].dtype != kind for name, kind in types.items()):
        raise ArtifactError(_DAMAGED)
    keys, weights, steps = (arrays[name] for name in types)
    size = len(recipe.labels)
    if not size or keys.ndim != 1 or weights.shape != (keys.size, size) or steps.shape != (size + 1, size + 1):
        raise ArtifactError(_DAMAGED)
    if not (np.all(keys[1:] > keys[:-1]) and np.all(np.isfinite(weights)) and np.all(np.abs(steps) <= _STEEPEST)):
        raise ArtifactError(_DAMAGED)
    sights = Sights(recipe)
    sights.keys = keys
    return LinearTagger(recipe, tokenizer, sights, weights, steps)
