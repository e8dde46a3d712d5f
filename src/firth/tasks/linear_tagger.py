"""LinearTagger: a linear-chain CRF on features of each word and its neighbours (Lafferty et al. 2001)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from firth.counts.em import add_prefix, strip_prefix
from firth.errors import ArtifactError
from firth.metrics.tags import fault_table
from firth.tasks.examples import Example, TagExample
from firth.tasks.predictor import MetricInputs, Prediction, Predictor, tag_metric_inputs
from firth.tasks.recipe import LinearRecipe
from firth.tasks.tag_features import FeatureExtractor, WordFeatures
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.word_classes import WordClasses

Floats = npt.NDArray[np.float64]
FORBIDDEN = -1e6  # score of a transition that violates the scheme
_MAX_TRANSITION = 500.0  # whose exponential is finite
_CLASSES = "classes"  # prefix of the arrays of word classes
_DAMAGED = "the arrays of the linear tagger are damaged: copy the folder again, or train it again."


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
        own: dict[str, npt.NDArray[Any]] = {
            "keys": self.extractor.keys,
            "weights": self.weights,
            "steps": self.transitions,
        }
        classes = self.extractor.classes
        return own if classes is None else own | add_prefix(_CLASSES, classes.arrays())

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
    classes = WordClasses.restore(strip_prefix(_CLASSES, arrays))
    arrays = {name: array for name, array in arrays.items() if not name.startswith(f"{_CLASSES}.")}
    types = {"keys": np.int64, "weights": np.float32, "steps": np.float64}
    if set(arrays) != set(types) or any(arrays[name].dtype != kind for name, kind in types.items()):
        raise ArtifactError(_DAMAGED)
    keys, weights, transitions = (arrays[name] for name in types)
    size = len(recipe.labels)
    has_shapes = weights.shape == (keys.size, size) and transitions.shape == (size + 1, size + 1)
    is_bounded = np.all(np.isfinite(weights)) and np.all(np.abs(transitions) <= _MAX_TRANSITION)
    if not (size and keys.ndim == 1 and has_shapes and is_bounded and np.all(keys[1:] > keys[:-1])):
        raise ArtifactError(_DAMAGED)
    if (classes is not None) != recipe.word_classes:
        raise ArtifactError(_DAMAGED)
    extractor = FeatureExtractor(recipe, tokenizer.segmenter, classes)
    extractor.keys = keys
    return LinearTagger(recipe, tokenizer, extractor, weights, transitions)
