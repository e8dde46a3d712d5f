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
from firth.nets.encoders.transformer import ACTIVATIONS, linear
from firth.nets.noise import Noise
from firth.nets.outputs.output import NEVER, OutputLayer, state_width
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

_SPREAD = 0.02
_SCORES = 1 << 22  # numbers that are made at a time, so that they stay in the processor's cache
_LEAST = 64  # states at a time, at least


class Transform(nn.Module):
    """One more layer between a state and the scores of tokens (Devlin et al. 2019)."""

    def __init__(self, recipe: NetRecipe, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = linear(inputs, outputs)
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
        self.bias = nn.Parameter(torch.zeros(counts.size)) if recipe.output.bias else None

    def logits(self, states: Tensor) -> Tensor:
        return f.linear(self._transformed(states), self.weight, self.bias)

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        return cross_entropy(self._transformed(states), self.weight, self.bias, targets)

    def log_probabilities(self, states: Tensor) -> Tensor:
        return _possible(self.logits(states)).log_softmax(-1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        found = []
        for some in _pieces(len(targets), len(self.weight)):
            scores = _possible(self.logits(states[some]))
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
        self.bias = nn.Parameter(torch.zeros(counts.size)) if recipe.output.bias else None

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
        room = states.new_empty(min(len(states), _at_once(len(weight))), len(weight))
        for some in _pieces(len(targets), len(weight)):
            x, wanted_here = states[some], targets[some, None]
            scores = room[: len(x)]
            if bias is None:
                torch.mm(x, weight.t(), out=scores)
            else:
                torch.addmm(bias, x, weight.t(), out=scores)
            torch.log_softmax(scores, -1, out=scores)
            total -= scores.gather(1, wanted_here).sum()
            if d_states is not None and d_weight is not None:
                scores.exp_().scatter_add_(1, wanted_here, scores.new_full(wanted_here.shape, -1.0))
                torch.mm(scores, weight, out=d_states[some])
                d_weight.addmm_(scores.t(), x)
                if d_bias is not None:
                    d_bias += scores.sum(0)
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if made is None else made * gradient for made in ctx.saved_tensors), None, None


def _at_once(tokens: int) -> int:
    """How many states are compared with all tokens at a time."""
    return max(_LEAST, _SCORES // tokens)


def _pieces(states: int, tokens: int) -> Iterator[slice]:
    """All states, some at a time."""
    step = _at_once(tokens)
    return (slice(start, start + step) for start in range(0, states, step))


def _possible(scores: Tensor) -> Tensor:
    """Scores without those of the tokens that are never predicted."""
    return scores.index_fill(1, torch.tensor(NEVER, device=scores.device), -torch.inf)
