"""OutputLayer: from states to the probabilities of tokens."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.tokens.tokenizer import BOS, MASK, PAD

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

NEVER = (PAD, BOS, MASK)
"""Tokens that are never predicted: their probability is 0 when a model is used."""

_HOMES = {
    "full": ("softmax", "Softmax"),
    "tied": ("softmax", "Softmax"),
    "direct": ("softmax", "Direct"),
    "classes": ("classes", "Classes"),
    "huffman": ("trees", "Huffman"),
    "tree": ("trees", "LearntTree"),
    "importance": ("sampled", "Importance"),
    "nce": ("sampled", "NoiseContrast"),
    "adaptive": ("adaptive", "Adaptive"),
}


class OutputLayer(nn.Module):
    """All of them are given states (places, width) and tell probabilities of tokens."""

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        """The sum of what is minimised in learning, one number: exact layers -log p, sampled ones an estimate.

        `previous` has the token before each target, for proposals that look at it. Without noise it is the exact sum of
        -log p.
        """
        raise NotImplementedError

    def log_probabilities(self, states: Tensor) -> Tensor:
        """(places, tokens): normalised; -inf for the tokens that are never predicted."""
        raise NotImplementedError

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        """(places): of the targets alone, the same numbers as in `log_probabilities`."""
        raise NotImplementedError

    def logits(self, states: Tensor) -> Tensor:
        """(places, tokens): numbers whose softmax is the distribution over all tokens."""
        return self.log_probabilities(states)

    def work(self) -> float:
        """Floating-point operations for one prediction in learning, forwards."""
        raise NotImplementedError


def make_output(recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> OutputLayer:
    """The output layer that a recipe asks for; `counts` say how often each token occurs."""
    module, name = _HOMES[recipe.output.kind]
    made = getattr(import_module(f"firth.nets.outputs.{module}"), name)(recipe, counts, embedding)
    assert isinstance(made, OutputLayer)
    return made
