"""Negative sampling: words against noise, given the context around them (Melamud et al. 2016)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.linear import INIT_STD
from firth.nets.outputs.output import Counts, OutputLayer
from firth.nets.recipe import NetRecipe
from firth.tokens.tokenizer import FIRST_WORD, UNK

_POWER = 0.75  # of the frequencies of words, in the distribution of noise (Mikolov et al. 2013)
_CHUNK = 1024  # positions whose logits are computed at once


class NegativeSampling(OutputLayer):
    """Target vectors t, and a network c = B relu(A s + a) + b that makes a context vector of the states s around a gap.

    The loss of word w is -log s(t_w . c) - sum over k samples v of log s(-t_v . c), where s is the logistic function;
    samples are from q(v), the frequency to the power of 0.75. At its optimum t_w . c = log p(w | c) / (k q(w)) (Levy
    and Goldberg 2014), so that in inference p(w | c) is proportional to q(w) exp(t_w . c), normalised over all words.
    Ends of sentences and other special tokens but [UNK] are no words.
    """

    def __init__(self, recipe: NetRecipe, counts: Counts, embedding: Embedding) -> None:
        super().__init__(recipe, counts, embedding)
        self.hidden = nn.Linear(recipe.width, recipe.width)
        self.project = nn.Linear(recipe.width, recipe.encoder.width)
        self.targets = nn.Parameter(torch.empty(counts.size, recipe.encoder.width).normal_(std=INIT_STD))
        self.samples = recipe.output.samples
        noise = np.zeros(counts.size)
        words = [UNK, *range(FIRST_WORD, counts.size)]
        noise[words] = (counts[words] + 1.0) ** _POWER
        self._cumulative = np.cumsum(noise) / max(noise.sum(), 1e-300)
        self._last = int(np.flatnonzero(noise)[-1]) if noise.any() else 0
        with np.errstate(divide="ignore"):
            self._log_noise = torch.from_numpy(np.log(noise / max(noise.sum(), 1e-300))).to(torch.float32)

    def contexts(self, states: Tensor) -> Tensor:
        """(positions, target width): the context vectors of states (positions, width of both directions)."""
        return self.project(torch.relu(self.hidden(states)))  # type: ignore[no-any-return]

    def draw(self, positions: int, rng: np.random.Generator) -> Tensor:
        """(positions, samples): words of the noise distribution."""
        points = rng.random((positions, self.samples))
        drawn = np.searchsorted(self._cumulative, points, side="right")
        return torch.from_numpy(np.minimum(drawn, self._last).astype(np.int64))

    def loss(
        self, states: Tensor, targets: Tensor, previous: Tensor | None = None, rng: DropoutRng | None = None
    ) -> Tensor:
        if rng is None:
            return -self.log_probability(states, targets).sum()
        contexts, noise = self.contexts(states), self.draw(len(targets), rng.generator)
        words = torch.cat([targets[:, None], noise], 1)
        scores = (f.embedding(words, self.targets) @ contexts[:, :, None])[:, :, 0]
        return f.softplus(-scores[:, 0]).sum() + f.softplus(scores[:, 1:]).sum()

    def logits(self, states: Tensor) -> Tensor:
        contexts = self.contexts(states)
        return contexts @ self.targets.T + self._log_noise.to(contexts)

    def log_probabilities(self, states: Tensor) -> Tensor:
        return self.logits(states).log_softmax(1)

    def log_probability(self, states: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(torch.split(states, _CHUNK), torch.split(targets, _CHUNK), strict=True)
        return torch.cat([self.log_probabilities(some).gather(1, at[:, None])[:, 0] for some, at in pairs])

    def flops(self) -> float:
        layers = sum(one.weight.numel() for one in (self.hidden, self.project))
        return 2.0 * (layers + (1 + self.samples) * self.targets.shape[1])
