"""StochasticAnswer: the answer module of MT-DNN for pairs of texts (Liu et al. 2019, section 3.1).

N = pairs    P, H = tokens of the premise, of the hypothesis    W = hidden size    K = turns
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng, drop
from firth.nets.groups import pad_groups

_INIT_STD = 0.02  # (Devlin et al. 2019)
_STEP_DROPOUT = 0.1  # probability that the answer of a turn is left out in training


class StochasticAnswer(nn.Module):
    """Reasons in several turns over two texts; the answer is the mean of the probabilities of all turns.

    s_0 = sum of a_j h_j, a = softmax(w . h); in turn k: x_k = sum of b_j p_j, b = softmax(p W s_k),
    P_k = softmax(V [x_k; s_k; |x_k - s_k|; x_k * s_k]), s_(k+1) = GRU(x_k, s_k). The paper gives x_k the state before,
    which leaves x_0 undefined; this is the order of its code.
    """

    def __init__(self, width: int, outputs: int, turns: int, dropout: float) -> None:
        super().__init__()
        self.turns, self.dropout = turns, dropout
        self.summary = nn.Linear(width, 1)
        self.attention = nn.Linear(width, width)
        self.cell = nn.GRUCell(width, width)
        self.classifier = nn.Linear(4 * width, outputs)
        for layer in (self.summary, self.attention, self.classifier):
            nn.init.normal_(layer.weight, std=_INIT_STD)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor, groups: Tensor, sides: Tensor, count: int, rng: DropoutRng | None) -> Tensor:
        """(N, outputs): log-probabilities.

        states: (tokens, W), sorted by their pairs, `groups`; sides: whether a token is of the hypothesis.
        """
        own = [chosen.nonzero()[:, 0] for chosen in (~sides, sides)]
        padded = [pad_groups(states.index_select(0, one), groups[one], count) for one in own]
        (premise, seen), (hypothesis, heard) = padded
        weights = self.summary(drop(hypothesis, self.dropout, rng))[..., 0]
        state = _attend(weights, heard, hypothesis)
        answers = []
        for turn in range(self.turns):
            query = self.attention(drop(state, self.dropout, rng))
            found = _attend((premise @ query[:, :, None])[..., 0], seen, premise)
            features = torch.cat([found, state, (found - state).abs(), found * state], -1)
            answers.append(self.classifier(drop(features, self.dropout, rng)).log_softmax(-1))
            if turn < self.turns - 1:
                state = self.cell(found, drop(state, self.dropout, rng))
        stacked = torch.stack(answers)  # (K, N, outputs)
        kept = stacked.new_ones(stacked.shape[:2]) if rng is None else keep_turns(count, self.turns, rng)
        # The logarithm of the mean probability of the turns that are kept.
        return (stacked + kept.log()[..., None]).logsumexp(0) - kept.sum(0).log()[:, None]

    def flops(self, pairs: int, tokens: int) -> float:
        """Floating-point operations of a forward pass over all tokens of some pairs."""
        width, outputs = self.attention.in_features, self.classifier.out_features
        turn = 2 * width * (7 * width + 4 * outputs)  # attention, the six matrices of the GRU, and the classifier
        return 4.0 * self.turns * width * tokens + float(self.turns * turn * pairs)


def keep_turns(count: int, turns: int, rng: DropoutRng) -> Tensor:
    """(turns, count): 1 for the turns of each pair that are kept, of which there is at least one, else 0."""
    chosen = torch.from_numpy(rng.generator.integers(0, turns, count))
    kept = torch.from_numpy(rng.generator.random((turns, count), dtype="float32") >= _STEP_DROPOUT).float()
    kept[chosen, torch.arange(count)] = 1.0
    return kept


def _attend(scores: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    """(N, W): the mean of values weighted by softmax(scores); 0 where all are padding, which is 0 itself."""
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return (weights[:, None] @ values)[:, 0]
