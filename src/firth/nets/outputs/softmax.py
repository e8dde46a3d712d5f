"""Softmax over all tokens, with weights of its own or those of the embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.nets.encoders.transformer import ACTIVATIONS, make_linear
from firth.nets.linear import linear, product
from firth.nets.noise import Noise
from firth.nets.outputs.output import NEVER, OutputLayer, frequencies, state_width
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

_SPREAD = 0.02
_SCORES = 7_500_000  # numbers that are made at a time: 30 MB, more than that is fetched from the system each time
_TINY = 1e-30
_LEAST = 64  # states at a time, at least


class Transform(nn.Module):
    """One more layer between a state and the scores of tokens (Devlin et al. 2019)."""

    def __init__(self, recipe: NetRecipe, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = make_linear(inputs, outputs)
        self.activation = ACTIVATIONS[recipe.encoder.activation]
        self.norm = nn.LayerNorm(outputs, eps=recipe.encoder.eps)

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self.activation(self.dense(states))))


class Softmax(OutputLayer):
    """p(w) is proportional to exp(s . v_w + b_w), where s is the state or what one more layer makes of it."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__()
        tied, width = recipe.output.kind == "tied", state_width(recipe)
        inner = recipe.embedding.width if tied and recipe.output.transform else width
        self.transform = Transform(recipe, width, inner) if recipe.output.transform else None
        if tied and embedding.table.shape[1] != inner:
            raise RecipeError(
                f"tokens of {embedding.table.shape[1]} numbers cannot be tied to states of {inner}: "
                "set output.kind=full or output.transform=true, or make embedding.width the same."
            )
        self.weight = embedding.table if tied else nn.Parameter(torch.empty(counts.size, inner))
        if not tied:
            nn.init.normal_(self.weight, std=_SPREAD)
        self.bias = nn.Parameter(first_bias(counts)) if recipe.output.bias else None

    def logits(self, states: Tensor) -> Tensor:
        return linear(self._transformed(states), self.weight, self.bias)

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        return cross_entropy(self._transformed(states), self.weight, self.bias, targets)

    def log_probabilities(self, states: Tensor) -> Tensor:
        return _possible(self.logits(states)).log_softmax(-1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        found, compare = [], linear if torch.is_grad_enabled() else product
        for some in _pieces(len(targets), len(self.weight)):
            scores = _possible(compare(self._transformed(states[some]), self.weight, self.bias))
            found.append(scores.gather(1, targets[some, None])[:, 0] - scores.logsumexp(-1))
        return torch.cat(found)

    def work(self) -> float:
        before = 0.0 if self.transform is None else 2.0 * self.transform.dense.weight.numel()
        return before + 2.0 * self.weight.numel()

    def _transformed(self, states: Tensor) -> Tensor:
        return states if self.transform is None else cast(Tensor, self.transform(states))


class Direct(OutputLayer):
    """The states are the scores themselves: nothing is hidden between a token and the next (Xu and Rudnicky 2000)."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__()
        if state_width(recipe) < counts.size:
            raise RecipeError(
                f"states of {state_width(recipe)} numbers cannot be the scores of {counts.size} tokens: "
                f"set embedding.width and encoder.width to {counts.size}."
            )
        self.tokens = counts.size
        self.bias = nn.Parameter(first_bias(counts)) if recipe.output.bias else None

    def logits(self, states: Tensor) -> Tensor:
        scores = states[:, : self.tokens]
        return scores if self.bias is None else scores + self.bias

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        return f.cross_entropy(self.logits(states), targets, reduction="sum")

    def log_probabilities(self, states: Tensor) -> Tensor:
        return _possible(self.logits(states)).log_softmax(-1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        return self.log_probabilities(states).gather(1, targets[:, None])[:, 0]

    def work(self) -> float:
        return 0.0


def first_bias(counts: npt.NDArray[np.int64]) -> Tensor:
    """Scores by which each token is as probable as it is frequent: what a network knows before it has learnt."""
    shares = frequencies(counts)
    return torch.from_numpy(np.log(np.where(shares > 0, shares, shares[shares > 0].min(initial=1.0)))).float()


def cross_entropy(states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """The sum of -log softmax(W s + b)[target], without ever holding the scores of all states.

    The gradients are made in the same pass, while the scores of a piece are at hand.
    """
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (states, weight, bias))
    return cast(Tensor, _CrossEntropy.apply(states, weight, bias, targets, wanted))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    """d/dx = W' (p - 1[target]), d/dW = sum of (p - 1[target]) s', d/db = sum of p - 1[target]."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, wanted: bool) -> Tensor:
        total = states.new_zeros(())
        d_states = torch.empty_like(states) if wanted else None
        d_weight = torch.zeros_like(weight) if wanted else None
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        for some in _pieces(len(targets), len(weight)):
            x, target = states[some], targets[some, None]
            shares = product(x, weight, bias)
            torch.softmax(shares, -1, out=shares)
            total -= _logs(shares.gather(1, target)[:, 0], x, weight, bias, target).sum()
            if d_states is not None and d_weight is not None:
                shares.scatter_add_(1, target, shares.new_full(target.shape, -1.0))
                d_states[some] = product(shares, weight.t())
                d_weight.addmm_(shares.t(), x)
                if d_bias is not None:
                    d_bias += shares.sum(0)
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if made is None else made * gradient for made in ctx.saved_tensors), None, None


def _logs(shares: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """The logarithms of the targets' probabilities, from the scores again where these are too small for a number."""
    logs, tiny = shares.log(), shares < _TINY
    if tiny.any():
        scores = product(states[tiny], weight, bias).log_softmax(-1)
        logs[tiny] = scores.gather(1, target[tiny])[:, 0]
    return logs


def _at_once(states: int, tokens: int) -> int:
    """How many states are compared with all tokens at a time: pieces of the same size, if there is more than one."""
    most = max(_LEAST, _SCORES // tokens)
    return max(1, -(-states // max(1, -(-states // most))))


def _pieces(states: int, tokens: int) -> Iterator[slice]:
    """All states, some at a time: at least one piece, if an empty one."""
    step = _at_once(states, tokens)
    return (slice(start, start + step) for start in range(0, max(1, states), step))


def _possible(scores: Tensor) -> Tensor:
    """Scores without those of the tokens that are never predicted."""
    return scores.index_fill(1, torch.tensor(NEVER, device=scores.device), -torch.inf)
