"""Sampled softmax: trained on the target and a few sampled tokens, exact in inference."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.linear import INIT_STD
from firth.nets.outputs.output import Counts, ExactLayer, is_predictable, mask_impossible, state_width
from firth.nets.outputs.sampling import stratified
from firth.nets.recipe import NetRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS

_GROUP = 128  # positions that share the samples of a bigram proposal
_UNIGRAM_WEIGHT = 0.5  # in a bigram proposal
_TOKENS = 5_000_000  # of the text in which bigrams are counted
_MIN_COUNT = 2  # of a bigram


class Samples(NamedTuple):
    """Distinct sampled tokens, sorted, for the positions that share them."""

    positions: Tensor | slice
    tokens: Tensor
    counts: Tensor
    """How often each was drawn."""
    probabilities: Tensor
    """(vocabulary,): the distribution that they were drawn from."""


class Bigrams(NamedTuple):
    """The successors of each token and their conditional probabilities."""

    bounds: npt.NDArray[np.int64]
    """(vocabulary + 1,): where the successors of each token begin, and the end."""
    tokens: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]


def count_bigrams(store: TokenStore, vocabulary: int) -> Bigrams:
    """The bigrams of the first millions of tokens of a text, with an end of sentence before and after each sentence."""
    ends = np.asarray(store.sentences[1:], dtype=np.int64)
    ends = ends[: max(1, int(np.searchsorted(ends, _TOKENS)))]
    ids = np.asarray(store.ids[: ends[-1] if ends.size else 0], dtype=np.int64)
    return find_bigrams(np.concatenate([[EOS], np.insert(ids, ends, EOS)]), vocabulary)


def find_bigrams(ids: npt.NDArray[np.int64], vocabulary: int) -> Bigrams:
    """The bigrams that occur at least twice.

    >>> found = find_bigrams(np.array([3, 5, 6, 3, 5, 6, 3, 5, 7]), 8)
    >>> found.bounds.tolist(), found.tokens.tolist(), found.probabilities.tolist()
    ([0, 0, 0, 0, 1, 1, 2, 3, 3], [5, 6, 3], [1.0, 1.0, 1.0])
    """
    pairs, counts = np.unique(ids[:-1] * vocabulary + ids[1:], return_counts=True)
    pairs, counts = pairs[counts >= _MIN_COUNT], counts[counts >= _MIN_COUNT]
    firsts = pairs // vocabulary
    totals = np.bincount(firsts, weights=counts, minlength=vocabulary)
    return Bigrams(np.searchsorted(firsts, np.arange(vocabulary + 1)), pairs % vocabulary, counts / totals[firsts])


class Proposal:
    """Draws tokens from the unigram distribution, or from bigrams given the previous tokens.

    Samples are shared, so that all scores are one matrix product: by all positions of a batch, or for bigrams by 128
    positions with the same or neighbouring previous tokens. These are drawn from the mean bigram distribution of their
    positions, mixed equally with the unigram. Sampling is stratified: the n-th of k samples is from the n-th k-th of
    the distribution, which keeps means and reduces the variance of all estimates.
    """

    def __init__(self, unigram: npt.NDArray[np.float64], samples: int) -> None:
        self.unigram = unigram
        self.samples = samples
        self.bigrams: Bigrams | None = None

    def draw(self, positions: int, previous: Tensor | None, rng: np.random.Generator) -> Iterator[Samples]:
        """Samples for all positions, by their `previous` tokens if bigrams are known."""
        if self.bigrams is None or previous is None:
            yield self._samples(slice(0, positions), self.unigram, rng)
            return
        for some in torch.split(previous.argsort(stable=True), _GROUP):
            yield self._samples(some, self._mixture(self.bigrams, previous[some].numpy()), rng)

    def _mixture(self, bigrams: Bigrams, previous: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The mean bigram distribution given some previous tokens, mixed with the unigram."""
        befores, counts = np.unique(previous, return_counts=True)
        lengths = bigrams.bounds[befores + 1] - bigrams.bounds[befores]
        at = np.repeat(bigrams.bounds[befores] - lengths.cumsum() + lengths, lengths) + np.arange(lengths.sum())
        weights = bigrams.probabilities[at] * np.repeat(counts / previous.size, lengths)
        mixed = np.bincount(bigrams.tokens[at], weights=weights, minlength=self.unigram.size).astype(np.float64)
        mixed *= (self.unigram > 0) * (1 - _UNIGRAM_WEIGHT)
        mixed += (1 - mixed.sum()) * self.unigram
        return mixed

    def _samples(self, positions: Tensor | slice, given: npt.NDArray[np.float64], rng: np.random.Generator) -> Samples:
        drawn, counts = stratified(given, self.samples, rng)
        return Samples(positions, torch.from_numpy(drawn), torch.from_numpy(counts), torch.from_numpy(given))


_CHUNK = 1024  # positions whose logits are computed at once


class SampledSoftmax(ExactLayer):
    """p(w | s) is proportional to exp(s . v_w + b_w); the initial biases make it the token's frequency."""

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        self.weight = nn.Parameter(torch.empty(counts.size, state_width(recipe)).normal_(std=INIT_STD))
        self.bias = None
        if recipe.output.bias:
            possible = np.where(self._frequencies > 0, self._frequencies, 1)
            self.bias = nn.Parameter(torch.from_numpy(np.log(possible)).float())
        self.proposal = Proposal(self._frequencies, recipe.output.samples)
        self._uses_bigrams = recipe.output.proposal == "bigram"

    def prepare(self, store: TokenStore) -> None:
        if self._uses_bigrams:
            self.proposal.bigrams = count_bigrams(store, len(self.weight))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        if rng is None:
            return super().loss(states, targets)
        kept = is_predictable(targets)
        if not kept.all():
            states, targets = states[kept], targets[kept]
            previous = None if previous is None else previous[kept]
        groups = list(self.proposal.draw(len(targets), previous, rng.generator))
        of_targets, *of_samples = score_samples(self.transformed(states), self.weight, self.bias, targets, groups)
        losses = [
            self.estimate(of_targets[group.positions], scores, targets[group.positions], group)
            for group, scores in zip(groups, of_samples, strict=True)
        ]
        return torch.stack(losses).sum()

    @abstractmethod
    def estimate(self, of_targets: Tensor, of_samples: Tensor, targets: Tensor, group: Samples) -> Tensor:
        """The summed losses of the positions of a group, from the scores of targets and of samples."""

    def logits(self, states: Tensor) -> Tensor:
        return self._scores(self.transformed(states))

    def all_logprobs(self, states: Tensor) -> Tensor:
        return self._scores(states).log_softmax(1)

    def _scores(self, states: Tensor) -> Tensor:
        return mask_impossible(f.linear(states, self.weight, self.bias))

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(torch.split(states, _CHUNK), torch.split(targets, _CHUNK), strict=True)
        return -torch.cat([self.all_logprobs(some).gather(1, at[:, None])[:, 0] for some, at in pairs])

    def own_flops(self) -> float:
        distinct = float(np.minimum(self.proposal.samples * self.proposal.unigram, 1).sum())
        return 2.0 * self.weight.shape[1] * (1 + distinct)


class ImportanceSampling(SampledSoftmax):
    """The normaliser of the softmax is estimated from samples (Bengio and Senecal 2003, 2008).

    With k samples from q, -log p(w) is about -s_w + log(exp s_w + 1/k sum over samples v other than w of exp(s_v) /
    q(v)). The sum is unbiased, and its gradient is the self-normalised importance sampling of the paper; the exact term
    of the target keeps the loss above 0. The bias of the logarithm is of order 1/k.
    """

    def estimate(self, of_targets: Tensor, of_samples: Tensor, targets: Tensor, group: Samples) -> Tensor:
        weights = group.counts / (self.proposal.samples * group.probabilities[group.tokens])
        same = targets[:, None] == group.tokens
        others = (of_samples + weights.log().to(of_samples.dtype)).masked_fill(same, -torch.inf)
        every = torch.cat([of_targets[:, None], others], 1)
        return (every.logsumexp(1) - of_targets).sum()


class NoiseContrast(SampledSoftmax):
    """Noise-contrastive estimation: the target against k samples of q (Gutmann and Hyvarinen 2010, Mnih and Teh 2012).

    The loss is -log s(s_w - log k q(w)) - sum over samples v of log s(log k q(v) - s_v), where s is the logistic
    function. Scores are trained to be log-probabilities without normalisation, and start as such; in inference they are
    normalised all the same. This loss is not comparable with -log p.
    """

    def estimate(self, of_targets: Tensor, of_samples: Tensor, targets: Tensor, group: Samples) -> Tensor:
        odds = (self.proposal.samples * group.probabilities).log().to(of_samples.dtype)
        if self.bias is None:  # then the scores start at 0, not at log-probabilities
            odds = odds + math.log(len(self.weight))
        real = f.softplus(odds[targets] - of_targets).sum()
        noise = f.softplus(of_samples - odds[group.tokens]) @ group.counts.to(of_samples.dtype)
        return real + noise.sum()


def score_samples(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, groups: Sequence[Samples]
) -> tuple[Tensor, ...]:
    """The scores of the targets (positions,), and of the samples of each group (its positions, tokens)."""
    scores: tuple[Tensor, ...] = _Scores.apply(  # type: ignore[no-untyped-call]
        states, weight, weight.new_zeros(len(weight)) if bias is None else bias, targets, groups
    )
    return scores


class _Scores(Function):
    """Hand-written, because autograd would make a gradient of the whole weights for each lookup."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, groups: Sequence[Samples]
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(states, weight, bias, targets)
        ctx.groups = groups
        of_targets = (states * weight.index_select(0, targets)).sum(1) + bias[targets]
        drawn = [torch.addmm(bias[g.tokens], states[g.positions], weight.index_select(0, g.tokens).T) for g in groups]
        return of_targets, *drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, targets = ctx.saved_tensors
        d_states = gradient[:, None] * weight.index_select(0, targets)
        d_weight = torch.zeros_like(weight).index_add_(0, targets, gradient[:, None] * states)
        d_bias = torch.zeros_like(bias).index_add_(0, targets, gradient)
        for group, d_scores in zip(ctx.groups, gradients, strict=True):
            d_states[group.positions] += d_scores @ weight.index_select(0, group.tokens)
            d_weight.index_add_(0, group.tokens, d_scores.T @ states[group.positions])
            d_bias.index_add_(0, group.tokens, d_scores.sum(0))
        return d_states, d_weight, d_bias, None, None
