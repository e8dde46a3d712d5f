"""LinearTagger: a linear-chain CRF on features of each word and its neighbours (Lafferty et al. 2001).

A feature is a 64-bit hash of its template and strings, whose row of weights is found by binary search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.errors import ArtifactError, CorpusError
from firth.metrics.tags import fault_table
from firth.tasks.examples import Example, TagExample
from firth.tasks.predictor import MetricInputs, Prediction, Predictor, tag_metric_inputs
from firth.tasks.recipe import LinearRecipe
from firth.tokens.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FORBIDDEN = -1e6  # score of a transition that violates the scheme
_MAX_TRANSITION = 500.0  # whose exponential is finite
_CONTEXT = 2  # words on each side
_AFFIXES = 4  # maximum length of prefixes and suffixes
_WORD, _SHAPE, _PREFIXES = 0, 1, 2  # indices in `word_strings`
_DAMAGED = "the arrays of the linear tagger are damaged: copy the folder again, or train it again."

Template = tuple[tuple[int, int], ...]
"""The strings of a feature: an index in `word_strings` and the offset of the word, for each."""
_SHARED: list[Template] = [(), *[((_WORD, offset),) for offset in (-2, -1, 0, 1, 2)], ((_SHAPE, 0),)]
_WORDS: list[Template] = [
    *_SHARED,
    *[((_PREFIXES + affix, 0),) for affix in range(2 * _AFFIXES)],
    *[((_SHAPE, offset),) for offset in (-1, 1)],
    *[((_WORD, offset), (_WORD, offset + 1)) for offset in (-1, 0)],
    *[((_SHAPE, offset), (_SHAPE, offset + 1)) for offset in (-1, 0)],
]
_CHARACTERS: list[Template] = [
    *_SHARED,
    *[((_WORD, offset), (_WORD, offset + 1)) for offset in (-2, -1, 0, 1)],
    ((_WORD, -1), (_WORD, 1)),
]


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


class WordFeatures(NamedTuple):
    """The features of the words of sentences, one after the other."""

    features: npt.NDArray[np.int32]  # (words, templates): indices of features; -1 for unknown ones
    bounds: Ints  # offsets of the sentences, and the end of the last one


class FeatureExtractor:
    """Extracts features of words; the known ones are in `keys`, sorted."""

    def __init__(self, recipe: LinearRecipe) -> None:
        self.templates = _CHARACTERS if recipe.features == "characters" else _WORDS
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
        table, words, indices = _hashed_words(examples)
        for number, template in enumerate(self.templates):
            hashes = np.full(indices.size, number + 1, dtype=np.uint64)
            exists = np.ones(indices.size, dtype=np.bool_)
            for string, offset in template:
                digests = table[words[indices + offset], string]
                exists &= digests != 0
                hashes = _mix(hashes, digests)
            yield np.where(exists, _mix(hashes, np.uint64(0)), np.uint64(0)).view(np.int64)


def _hashed_words(examples: Sequence[TagExample]) -> tuple[npt.NDArray[np.uint64], Ints, Ints]:
    """Digests (distinct words, strings), the indices of all words in it, and the positions of the real words.

    Sentences are separated by as many empty words as the context has.
    """
    numbers = {"": 0}
    padding = [0] * _CONTEXT
    words, positions = [*padding], []
    for one in examples:
        positions.append(np.arange(len(words), len(words) + len(one.words)))
        words += [numbers.setdefault(word, len(numbers)) for word in one.words]
        words += padding
    table = np.array([[_digest(string) for string in word_strings(word)] for word in numbers], dtype=np.uint64)
    return table, np.array(words), np.concatenate([np.zeros(0, dtype=np.int64), *positions])


def _digest(string: str | None) -> int:
    """A platform-independent 64-bit hash; 0 for None."""
    if string is None:
        return 0
    return int.from_bytes(blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mix(hashes: npt.NDArray[np.uint64], more: Any) -> npt.NDArray[np.uint64]:
    """The hash of two numbers by the finalizer of SplitMix64 (Steele et al. 2014)."""
    hashes = (hashes ^ more) + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


class LinearTagger(Predictor):
    """Feature weights and transition scores."""

    def __init__(
        self,
        recipe: LinearRecipe,
        tokenizer: Tokenizer,
        extractor: FeatureExtractor,
        weights: npt.NDArray[np.float32],
        transitions: Floats,
    ) -> None:
        """weights: (features, tags). transitions: (tags + 1, tags + 1), as in `_tagger_kernels`."""
        self.recipe, self.tokenizer, self.extractor = recipe, tokenizer, extractor
        self.weights, self.transitions = weights, transitions
        self.task: str = recipe.task
        self.labels, self.columns = recipe.labels, recipe.columns
        self._faults = fault_table(recipe.labels, recipe.scheme)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the artifact."""
        return {"keys": self.extractor.keys, "weights": self.weights, "steps": self.transitions}

    def predict_chunk(self, examples: Sequence[Example]) -> list[Prediction]:
        return self.predict_features(self.extractor.extract(cast(Sequence[TagExample], examples)))

    def predict_features(self, words: WordFeatures) -> list[Prediction]:
        """The best valid tags of each sentence and their marginal probabilities."""
        from firth.tasks._crf_kernels import decode

        found: list[Prediction] = []
        for emissions in self.emissions(words):
            if not len(emissions):
                found.append({"tags": [], "probabilities": []})
                continue
            tags, probabilities = decode(emissions, self.valid_transitions)
            found.append({"tags": [self.labels[tag] for tag in tags.tolist()], "probabilities": probabilities.tolist()})
        return found

    @property
    def valid_transitions(self) -> Floats:
        """The transitions; those that violate the scheme are forbidden."""
        return np.where(self._faults, FORBIDDEN, self.transitions)

    def emissions(self, words: WordFeatures) -> list[Floats]:
        """(words, tags) for each sentence."""
        from firth.tasks._crf_kernels import emit

        return np.split(emit(words.features, self.weights), words.bounds[1:-1])

    def scores(self, examples: Sequence[Example]) -> list[Floats]:
        """(words, tags) for each example: the emissions."""
        return self.emissions(self.extractor.extract(cast(Sequence[TagExample], examples)))

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return tag_metric_inputs(examples, answers)


def restore_tagger(recipe: LinearRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer) -> LinearTagger:
    """The tagger of the arrays of an artifact, whose names, types and shapes are checked."""
    types = {"keys": np.int64, "weights": np.float32, "steps": np.float64}
    if set(arrays) != set(types) or any(arrays[name].dtype != kind for name, kind in types.items()):
        raise ArtifactError(_DAMAGED)
    keys, weights, transitions = (arrays[name] for name in types)
    size = len(recipe.labels)
    has_shapes = weights.shape == (keys.size, size) and transitions.shape == (size + 1, size + 1)
    is_bounded = np.all(np.isfinite(weights)) and np.all(np.abs(transitions) <= _MAX_TRANSITION)
    if not (size and keys.ndim == 1 and has_shapes and is_bounded and np.all(keys[1:] > keys[:-1])):
        raise ArtifactError(_DAMAGED)
    extractor = FeatureExtractor(recipe)
    extractor.keys = keys
    return LinearTagger(recipe, tokenizer, extractor, weights, transitions)
