"""OutputLayer: maps hidden states to token probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.errors import AbilityError
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.linear import make_linear
from firth.nets.norm import LayerNorm
from firth.nets.recipe import NetRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, MASK, PAD

Counts = npt.NDArray[np.int64]
NEVER_PREDICTED = (PAD, BOS, MASK)
"""Tokens whose probability is 0 in inference."""


class OutputLayer(nn.Module, ABC):
    """Token probabilities from hidden states (positions, width)."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        """`counts` are the occurrences of each token."""
        super().__init__()

    @abstractmethod
    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        """The summed training loss: -log p of exact layers, an estimate of sampled ones.

        `previous` has the token before each target, for bigram proposals. Without `rng` it is the exact sum of -log p.
        """

    @abstractmethod
    def log_probabilities(self, states: Tensor) -> Tensor:
        """(positions, vocabulary): normalised; -inf for tokens that are never predicted."""

    @abstractmethod
    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        """(positions,): of the targets alone, equal to those of `log_probabilities`."""

    def logits(self, states: Tensor) -> Tensor:
        """(positions, vocabulary): numbers whose softmax is the distribution over all tokens."""
        return self.log_probabilities(states)

    @abstractmethod
    def flops(self) -> float:
        """Floating-point operations of a forward pass per training prediction."""

    def prepare(self, store: TokenStore) -> None:
        """Collect statistics of the training text, before the first step of a new or resumed run."""

    def is_sound(self) -> bool:
        """Whether the tables of tokens in the layer are consistent; checked after they are loaded from a file."""
        return True

    def update_structure(self, progress: float) -> bool:
        """Called before each step with the fraction of training that is done; true if parameters were replaced.

        Their optimiser state must be discarded then. It depends on the fraction and the saved state alone, so that a
        resumed run does the same.
        """
        return False


class NoOutput(OutputLayer):
    """No layer, for a network that predicts no tokens."""

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        raise self._error()

    def log_probabilities(self, states: Tensor) -> Tensor:
        raise self._error()

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        raise self._error()

    def flops(self) -> float:
        return 0.0

    def _error(self) -> AbilityError:
        return AbilityError("this network predicts no tokens (output.kind=none): use one such as bert.")


class Transform(nn.Module):
    """A dense layer with activation and normalisation before the output (Devlin et al. 2019)."""

    def __init__(self, recipe: NetRecipe, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = make_linear(inputs, outputs)
        self.activation = ACTIVATIONS[recipe.encoder.activation]
        self.norm = LayerNorm(outputs, eps=recipe.encoder.eps)

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self.activation(self.dense(states))))


class ExactLayer(OutputLayer):
    """A layer with an exact -log p. Targets that are never predicted add nothing to the loss and have probability 0."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        width = state_width(recipe)
        self.transform = Transform(recipe, width, width) if recipe.output.transform else None
        self._transform_flops = 2.0 * width * width if recipe.output.transform else 0.0
        self._frequencies = frequencies(counts)

    @abstractmethod
    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        """(positions,): -log p of predictable targets, from transformed states."""

    @abstractmethod
    def all_logprobs(self, states: Tensor) -> Tensor:
        """(positions, vocabulary): log p of all tokens, from transformed states."""

    @abstractmethod
    def own_flops(self) -> float:
        """As `flops`, without the transform."""

    def transformed(self, states: Tensor) -> Tensor:
        """The states after the transform, if there is one."""
        return states if self.transform is None else cast(Tensor, self.transform(states))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        kept = is_predictable(targets)
        if not kept.all():
            states, targets = states[kept], targets[kept]
        return self.losses(self.transformed(states), targets).sum()

    def log_probabilities(self, states: Tensor) -> Tensor:
        return self.all_logprobs(self.transformed(states))

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        kept = is_predictable(targets)
        if kept.all():
            return -self.losses(self.transformed(states), targets)
        impossible = states.new_full(targets.shape, -torch.inf)
        return impossible.masked_scatter(kept, -self.losses(self.transformed(states[kept]), targets[kept]))

    def flops(self) -> float:
        return self._transform_flops + self.own_flops()


def state_width(recipe: NetRecipe) -> int:
    """The width of a state that predicts: the decoder's, or of two directions each half its own."""
    return recipe.width // recipe.directions if recipe.decoder is None else recipe.decoder.width


def predictable(vocabulary: int) -> npt.NDArray[np.int64]:
    """The ids that can be predicted.

    >>> predictable(8).tolist()
    [1, 3, 5, 6, 7]
    """
    return np.setdiff1d(np.arange(vocabulary), NEVER_PREDICTED)


def is_predictable(targets: Tensor) -> Tensor:
    """Which of some tokens can be predicted."""
    return torch.isin(targets, torch.tensor(NEVER_PREDICTED), invert=True)


def mask_impossible(scores: Tensor) -> Tensor:
    """Scores (positions, vocabulary) with -inf for tokens that are never predicted."""
    return scores.index_fill(1, torch.tensor(NEVER_PREDICTED, device=scores.device), -torch.inf)


def frequencies(counts: Counts) -> npt.NDArray[np.float64]:
    """The relative frequency of each predictable token, with add-one smoothing.

    >>> frequencies(np.array([9, 0, 9, 2, 9, 3])).tolist()
    [0.0, 0.125, 0.0, 0.375, 0.0, 0.5]
    """
    kept = predictable(counts.size)
    found = np.zeros(counts.size)
    found[kept] = counts[kept] + 1.0
    found /= found.sum()
    return found


def rank_tokens(frequency: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The predictable tokens from frequent to rare."""
    kept = predictable(frequency.size)
    return kept[np.argsort(-frequency[kept], kind="stable")]


def is_ranking(rows: npt.NDArray[np.int64]) -> bool:
    """Whether every predictable token has an index of its own and the others have -1.

    >>> is_ranking(np.array([-1, 1, -1, 0, -1, 2])), is_ranking(np.array([-1, 1, -1, 0, -1, 3]))
    (True, False)
    """
    kept = predictable(rows.size)
    ranks = np.sort(rows[kept])
    return np.array_equal(ranks, np.arange(kept.size)) and bool(np.all(np.delete(rows, kept) == -1))


def are_bounds(bounds: npt.NDArray[np.int64], end: int) -> bool:
    """Whether these are the bounds of parts, none of them empty, of what ends at `end`.

    >>> are_bounds(np.array([0, 2, 5]), 5), are_bounds(np.array([0, 2, 2]), 2)
    (True, False)
    """
    return bool(bounds[0] == 0 and bounds[-1] == end and np.all(bounds[1:] > bounds[:-1]))


def invert_order(order: npt.NDArray[np.int64], vocabulary: int) -> Tensor:
    """(vocabulary,): the index of each token in an order, -1 for tokens that are not in it."""
    rows = np.full(vocabulary, -1)
    rows[order] = np.arange(order.size)
    return torch.from_numpy(rows)
