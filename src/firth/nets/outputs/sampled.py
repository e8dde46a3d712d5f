"""Sampled layers: a softmax that learns from its target and a few drawn tokens, and is exact in use."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from firth.nets.noise import Noise
from firth.nets.outputs.output import NEVER, ExactLayer, can_be_predicted, frequencies, state_width
from firth.nets.outputs.proposals import Proposal, Samples, count_followers
from firth.nets.recipe import NetRecipe
from firth.tokens.store import TokenStore

if TYPE_CHECKING:
    from firth.nets.embedding import Embedding

_SPREAD = 0.02
_CHUNK = 1024  # places whose probabilities of all tokens are made at once


class Sampled(ExactLayer):
    """p(w | s) is proportional to exp(s . v_w + b_w); the first biases make it the token's frequency."""

    def __init__(self, recipe: NetRecipe, counts: npt.NDArray[np.int64], embedding: Embedding) -> None:
        super().__init__(recipe)
        shares = frequencies(counts)
        self.weight = nn.Parameter(torch.empty(counts.size, state_width(recipe)).normal_(std=_SPREAD))
        self.bias = None
        if recipe.output.bias:
            self.bias = nn.Parameter(torch.from_numpy(np.log(np.where(shares > 0, shares, 1))).float())
        self.proposal = Proposal(shares, recipe.output.samples)
        self._by_bigram = recipe.output.proposal == "bigram"

    def prepare(self, store: TokenStore) -> None:
        if self._by_bigram:
            self.proposal.followers = count_followers(store, len(self.weight))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, noise: Noise | None = None
    ) -> Tensor:
        if noise is None:
            return super().loss(states, targets)
        kept = can_be_predicted(targets)
        if not kept.all():
            states, targets = states[kept], targets[kept]
            previous = None if previous is None else previous[kept]
        groups = list(self.proposal.draw(len(targets), previous, noise.rng))
        of_targets, *of_drawn = score_samples(self.enter(states), self.weight, self.bias, targets, groups)
        losses = [
            self.estimate(of_targets[group.places], scores, targets[group.places], group)
            for group, scores in zip(groups, of_drawn, strict=True)
        ]
        return torch.stack(losses).sum()

    @abstractmethod
    def estimate(self, of_targets: Tensor, of_drawn: Tensor, targets: Tensor, group: Samples) -> Tensor:
        """The sum of the losses of the places of a group, from the scores of targets and of what was drawn."""

    def logits(self, states: Tensor) -> Tensor:
        return self._scores(self.enter(states))

    def all_logs(self, entered: Tensor) -> Tensor:
        return self._scores(entered).log_softmax(1)

    def _scores(self, entered: Tensor) -> Tensor:
        return f.linear(entered, self.weight, self.bias).index_fill(1, torch.tensor(NEVER), -torch.inf)

    def losses(self, entered: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(torch.split(entered, _CHUNK), torch.split(targets, _CHUNK), strict=True)
        return -torch.cat([self.all_logs(some).gather(1, at[:, None])[:, 0] for some, at in pairs])

    def own_work(self) -> float:
        distinct = float(np.minimum(self.proposal.samples * self.proposal.shares, 1).sum())
        return 2.0 * self.weight.shape[1] * (1 + distinct)


class Importance(Sampled):
    """The sum over all tokens in the softmax is estimated from samples (Bengio and Senecal 2003, 2008).

    With k samples from q, -log p(w) is about -s_w + log(exp s_w + 1/k sum over samples v other than w of exp(s_v) /
    q(v)). The sum in the logarithm is right in the mean, and its gradient is the self-normalised importance sampling of
    the paper; that the target's part is exact keeps the loss from falling below 0. What is left is a bias of order 1/k.
    """

    def estimate(self, of_targets: Tensor, of_drawn: Tensor, targets: Tensor, group: Samples) -> Tensor:
        amounts = group.times / (self.proposal.samples * group.shares[group.tokens])
        same = targets[:, None] == group.tokens
        others = (of_drawn + amounts.log().to(of_drawn.dtype)).masked_fill(same, -torch.inf)
        every = torch.cat([of_targets[:, None], others], 1)
        return (every.logsumexp(1) - of_targets).sum()


class NoiseContrast(Sampled):
    """Learns to tell the target from k samples of q (Gutmann and Hyvarinen 2010, Mnih and Teh 2012).

    The loss is -log s(s_w - log k q(w)) - sum over samples v of log s(log k q(v) - s_v), where s is the logistic
    function. The scores count as log-probabilities that need no normalising: they begin as such, and the loss keeps
    them so. In use they are normalised all the same. This loss is no -log p and cannot be compared with one.
    """

    def estimate(self, of_targets: Tensor, of_drawn: Tensor, targets: Tensor, group: Samples) -> Tensor:
        odds = (self.proposal.samples * group.shares).log().to(of_drawn.dtype)
        if self.bias is None:  # then the scores begin at 0, not at logarithms of probabilities
            odds = odds + math.log(len(self.weight))
        real = f.softplus(odds[targets] - of_targets).sum()
        drawn = f.softplus(of_drawn - odds[group.tokens]) @ group.times.to(of_drawn.dtype)
        return real + drawn.sum()


def score_samples(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, groups: Sequence[Samples]
) -> tuple[Tensor, ...]:
    """The scores of the targets (places), and of the tokens drawn for each group (its places, tokens)."""
    scores: tuple[Tensor, ...] = _Scores.apply(  # type: ignore[no-untyped-call]
        states, weight, weight.new_zeros(len(weight)) if bias is None else bias, targets, groups
    )
    return scores


class _Scores(Function):
    """Written by hand, because each row that is looked up would give a gradient as large as the whole table."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, groups: Sequence[Samples]
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(states, weight, bias, targets)
        ctx.groups = groups
        of_targets = (states * weight.index_select(0, targets)).sum(1) + bias[targets]
        drawn = [torch.addmm(bias[g.tokens], states[g.places], weight.index_select(0, g.tokens).T) for g in groups]
        return of_targets, *drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor, *aboves: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, targets = ctx.saved_tensors
        to_states = above[:, None] * weight.index_select(0, targets)
        to_weight = torch.zeros_like(weight).index_add_(0, targets, above[:, None] * states)
        to_bias = torch.zeros_like(bias).index_add_(0, targets, above)
        for group, slope in zip(ctx.groups, aboves, strict=True):
            to_states[group.places] += slope @ weight.index_select(0, group.tokens)
            to_weight.index_add_(0, group.tokens, slope.T @ states[group.places])
            to_bias.index_add_(0, group.tokens, slope.sum(0))
        return to_states, to_weight, to_bias, None, None
