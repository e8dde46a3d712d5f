"""Causal networks beside an n-gram model of the same tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.lm.interpolation import InterpolatedModel
from firth.lm.language_model import LanguageModel
from firth.nets.causal import CausalNet, StreamNet
from firth.nets.hybrid import HybridNet
from firth.nets.model import NetModel
from firth.nets.ngrams_recipe import NgramsRecipe
from firth.nets.recipe import NetRecipe

NGRAMS = "ngrams."
"""Prefix of the arrays of the n-gram model."""
WEIGHTS = "mixture_weights"
"""The array of the weights of the network and of the n-gram model."""


class NgramNet(InterpolatedModel, CausalNet):
    """Scores and generates by the weighted sum of the network's probabilities and those of the n-gram model.

    All else is done by the network.
    """

    kind: ClassVar[type[CausalNet]] = CausalNet
    """The class of the network without the n-gram model."""

    def __init__(self, recipe: NetRecipe, *parts: Any, ngrams: LanguageModel, weights: npt.NDArray[np.float64]) -> None:
        CausalNet.__init__(self, recipe, *parts)
        self.alone = self.kind(replace(recipe, ngrams=NgramsRecipe()), *parts)
        """The network without the n-gram model."""
        self.ngrams, self.weights = ngrams, weights
        self.parts = [self.alone, ngrams]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        own = {NGRAMS + name: array for name, array in self.ngrams.arrays().items()}
        return CausalNet.arrays(self) | own | {WEIGHTS: self.weights}


class NgramStreamNet(NgramNet, StreamNet):
    """Trained on a stream of sentences."""

    kind: ClassVar[type[CausalNet]] = StreamNet


class NgramHybridNet(NgramNet, HybridNet):
    """Also fills masks and embeds from both sides."""

    kind: ClassVar[type[CausalNet]] = HybridNet


CLASSES: dict[type[CausalNet], type[NgramNet]] = {one.kind: one for one in (NgramNet, NgramStreamNet, NgramHybridNet)}


def without_ngrams(model: NetModel) -> NetModel:
    """The network of a model without its n-gram model, if it has one."""
    return model.alone if isinstance(model, NgramNet) else model
