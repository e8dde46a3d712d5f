"""Softmax over the whole vocabulary, with its own weights or tied to the embedding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.int8 import int8_of
from firth.nets.linear import INIT_STD, linear, product
from firth.nets.outputs.output import Counts, OutputLayer, Transform, frequencies, mask_impossible, state_width
from firth.nets.outputs.sampling import stratified
from firth.nets.recipe import NetRecipe

_SCORES = 7_500_000  # computed at a time: 30 MB, larger buffers are requested from the system each time
_TOKENS = 128  # in sampled products, a multiple
_TINY = 1e-30
_MIN_STATES = 64  # at a time


class Softmax(OutputLayer):
    """p(w) is proportional to exp(s . v_w + b_w), where s is the state, transformed if the recipe says so."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        tied, width = recipe.output.kind == "tied", state_width(recipe)
        inner = recipe.embedding.width if tied and recipe.output.transform else width
        self.transform = Transform(recipe, width, inner) if recipe.output.transform else None
        if tied and embedding.table.shape[1] != inner:
            raise RecipeError(
                f"token vectors of dimension {embedding.table.shape[1]} cannot be tied to states of {inner}: "
                "set output.kind=full or output.transform=true, or make embedding.width the same."
            )
        self.weight = embedding.table if tied else nn.Parameter(torch.empty(counts.size, inner))
        if not tied:
            nn.init.normal_(self.weight, std=INIT_STD)
        self.bias = nn.Parameter(initial_bias(counts)) if recipe.output.bias else None
        self.scale = 1 / math.sqrt(width) if recipe.output.scaled else None
        self._frequencies, self._samples = frequencies(counts), recipe.output.training_samples

    def logits(self, states: Tensor) -> Tensor:
        return linear(self._transformed(states), self.weight, self.bias)

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        if rng is None or not 0 < self._samples < len(self.weight) or not len(targets):
            return cross_entropy(self._transformed(states), self.weight, self.bias, targets)
        tokens, correction = self._sample(targets, rng)
        bias = correction if self.bias is None else self.bias[tokens] + correction
        weight, indices = self.weight.index_select(0, tokens), torch.searchsorted(tokens, targets)
        return cross_entropy(self._transformed(states), weight, bias, indices)

    def _sample(self, targets: Tensor, rng: DropoutRng) -> tuple[Tensor, Tensor]:
        """The targets of a step and some other tokens, sorted, and what is added to the score of each.

        The last one is repeated with a score of -inf, up to a multiple of 128: products of few shapes are faster.

        The normaliser is the sum of exp(s_w) over the targets plus, for k samples of q, that of n_w / (k q(w)) exp(s_w)
        over the other tokens, drawn n_w times each: an unbiased estimate of the sum over the vocabulary (Bengio and
        Senecal 2008), whose exact terms reduce its variance.
        """
        drawn, counts = stratified(self._frequencies, self._samples, rng.generator)
        weights = np.zeros(len(self.weight))
        weights[drawn] = counts / (self._samples * self._frequencies[drawn])
        weights[targets.numpy()] = 1.0
        tokens = np.flatnonzero(weights)
        correction = np.log(weights[tokens])
        missing = -len(tokens) % _TOKENS
        tokens = np.append(tokens, np.repeat(tokens[-1:], missing))
        correction = np.append(correction, np.full(missing, -np.inf))
        return torch.from_numpy(tokens), torch.from_numpy(correction).to(self.weight.dtype)

    def smoothed_loss(self, states: Tensor, targets: Tensor, smoothing: LabelSmoothing) -> Tensor:
        """The sum of cross-entropies with smoothed labels."""
        return cross_entropy(self._transformed(states), self.weight, self.bias, targets, smoothing=smoothing)

    def loss_and_samples(self, states: Tensor, targets: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """As `loss`, and a token of the distribution of each state: the one at a number in [0, 1) of its CDF.

        Samples have no gradient. They are drawn while the probabilities are at hand.
        """
        samples = _Samples(numbers, torch.empty_like(targets))
        total = cross_entropy(self._transformed(states), self.weight, self.bias, targets, samples)
        return total, samples.ids

    def log_probabilities(self, states: Tensor) -> Tensor:
        return mask_impossible(self.logits(states)).log_softmax(-1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        found, multiply = [], linear if torch.is_grad_enabled() or int8_of(self.weight) is not None else product
        for some in _chunks(len(targets), len(self.weight)):
            scores = mask_impossible(multiply(self._transformed(states[some]), self.weight, self.bias))
            found.append(scores.gather(1, targets[some, None])[:, 0] - scores.logsumexp(-1))
        return torch.cat(found)

    def flops(self) -> float:
        before = 0.0 if self.transform is None else 2.0 * self.transform.dense.weight.numel()
        if not self._samples:
            return before + 2.0 * self.weight.numel()
        # As if there were as many targets as samples.
        distinct = 2.0 * float(np.minimum(self._samples * self._frequencies, 1).sum())
        return before + 2.0 * self.weight.shape[1] * min(distinct, len(self.weight))

    def _transformed(self, states: Tensor) -> Tensor:
        states = states if self.scale is None else states * self.scale
        return states if self.transform is None else cast(Tensor, self.transform(states))


class Direct(OutputLayer):
    """The states are the logits: a table from each token to the next (Xu and Rudnicky 2000)."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        if state_width(recipe) < counts.size:
            raise RecipeError(
                f"states of dimension {state_width(recipe)} cannot be the logits of {counts.size} tokens: "
                f"set embedding.width and encoder.width to {counts.size}."
            )
        self.tokens = counts.size
        self.bias = nn.Parameter(initial_bias(counts)) if recipe.output.bias else None

    def logits(self, states: Tensor) -> Tensor:
        scores = states[:, : self.tokens]
        return scores if self.bias is None else scores + self.bias

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        return f.cross_entropy(self.logits(states), targets, reduction="sum")

    def log_probabilities(self, states: Tensor) -> Tensor:
        return mask_impossible(self.logits(states)).log_softmax(-1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        return self.log_probabilities(states).gather(1, targets[:, None])[:, 0]

    def flops(self) -> float:
        return 0.0


def initial_bias(counts: Counts) -> Tensor:
    """Log-frequencies: the unigram model that a network starts from."""
    found = frequencies(counts)
    return torch.from_numpy(np.log(np.where(found > 0, found, found[found > 0].min(initial=1.0)))).float()


class _Samples(NamedTuple):
    """Tokens to be drawn from the distributions of states."""

    numbers: Tensor
    """(states,): where in the cumulative distribution."""
    ids: Tensor
    """(states,): the tokens, which are written here."""

    def draw(self, some: slice, p: Tensor) -> None:
        """Draw from the probabilities (states, vocabulary) of some states."""
        sums = p.cumsum(-1)
        numbers = self.numbers[some, None].to(p.dtype) * sums[:, -1:]  # rounding leaves sums near 1
        self.ids[some] = torch.searchsorted(sums, numbers, right=True)[:, 0].clamp_(max=p.shape[1] - 1)


class LabelSmoothing(NamedTuple):
    """The labels q = target 1[target] + every (Szegedy et al. 2016, section 7), which sum to one."""

    target: float
    every: float

    @classmethod
    def over_all(cls, rate: float, vocabulary: int) -> LabelSmoothing:
        """The rate spread over the whole vocabulary, as in the paper."""
        return cls(1 - rate, rate / vocabulary)

    @classmethod
    def over_others(cls, rate: float, vocabulary: int) -> LabelSmoothing:
        """The rate spread over all tokens but the target, as in tensor2tensor and fairseq."""
        every = rate / max(1, vocabulary - 1)
        return cls(1 - rate - every, every)


def cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    samples: _Samples | None = None,
    smoothing: LabelSmoothing | None = None,
) -> Tensor:
    """The sum of -log softmax(W s + b)[target], or with smoothed labels, without ever holding the scores of all states.

    The gradients are computed in the forward pass, while the scores of a chunk are at hand.
    """
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (states, weight, bias))
    options = (wanted, samples, smoothing)
    return cast(Tensor, _CrossEntropy.apply(states, weight, bias, targets, *options))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    """d/ds = W' (p - q), d/dW = sum of (p - q) s', d/db = sum of p - q, where q is 1[target] or smoothed."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        wanted: bool,
        samples: _Samples | None,
        smoothing: LabelSmoothing | None,
    ) -> Tensor:
        total = states.new_zeros(())
        d_states = torch.empty_like(states) if wanted else None
        d_weight = torch.zeros_like(weight) if wanted else None
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        for some in _chunks(len(targets), len(weight)):
            x, target = states[some], targets[some, None]
            p = product(x, weight, bias)
            # The sum of log p over V tokens is that of the scores minus V times their log-sum-exp, s[t] - log p[t].
            excess = None if smoothing is None else p.sum(-1) - p.shape[1] * p.gather(1, target)[:, 0]
            torch.softmax(p, -1, out=p)
            if samples is not None:
                samples.draw(some, p)
            logs = _log(p.gather(1, target)[:, 0], x, weight, bias, target)
            if smoothing is None or excess is None:
                total -= logs.sum()
            else:
                total -= (smoothing.target * logs + smoothing.every * (excess + p.shape[1] * logs)).sum()
            if d_states is not None and d_weight is not None:
                p.scatter_add_(1, target, p.new_full(target.shape, -1.0 if smoothing is None else -smoothing.target))
                if smoothing is not None:
                    p -= smoothing.every
                d_states[some] = product(p, weight.t())
                d_weight.addmm_(p.t(), x)
                if d_bias is not None:
                    d_bias += p.sum(0)
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if made is None else made * gradient for made in ctx.saved_tensors), None, None, None, None


def _log(p: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Logarithms of the targets' probabilities, recomputed from scores where these underflow."""
    logs, tiny = p.log(), p < _TINY
    if tiny.any():
        scores = product(states[tiny], weight, bias).log_softmax(-1)
        logs[tiny] = scores.gather(1, target[tiny])[:, 0]
    return logs


def _chunk_size(states: int, vocabulary: int) -> int:
    """States whose scores are computed at a time: chunks of equal size."""
    most = max(_MIN_STATES, _SCORES // vocabulary)
    return max(1, -(-states // max(1, -(-states // most))))


def _chunks(states: int, vocabulary: int) -> Iterator[slice]:
    """At least one chunk, which may be empty."""
    step = _chunk_size(states, vocabulary)
    return (slice(start, start + step) for start in range(0, max(1, states), step))
