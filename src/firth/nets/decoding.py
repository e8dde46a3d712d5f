"""Writing: from the probabilities of the next token to texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.nets.network import Memory
from firth.tokens.tokenizer import EOS

if TYPE_CHECKING:
    from firth.nets.causal import CausalNet


class Sampling(NamedTuple):
    """How a token is drawn."""

    temperature: float = 1.0
    """0: the likeliest."""
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def check(self) -> None:
        """Raises `RecipeError` if nothing could be drawn like this."""
        if not 0 <= self.temperature < np.inf:
            raise RecipeError(f"temperature={self.temperature} must be 0 (the likeliest token) or above.")
        if self.top_k is not None and self.top_k < 1:
            raise RecipeError(f"top_k={self.top_k} leaves no token: set it to 1 or more.")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise RecipeError(f"top_p={self.top_p} must be from 0 to 1.")


class Reading:
    """Texts that are written side by side, and what a network keeps of them."""

    def __init__(self, model: CausalNet, history: Sequence[int], rows: int) -> None:
        self.model = model
        self.ids = torch.tensor([model.begun(history)])
        self.memory: Memory | None = None
        self.read = self.begin = 0
        self.logs = self._read_on().expand(rows, -1)
        self.ids = self.ids.expand(rows, -1)
        if self.memory is not None:
            self.memory = self.memory.pick(torch.zeros(rows, dtype=torch.int64))

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        """Goes on with some of the rows, perhaps several times, each with one more token."""
        self.ids = torch.cat([self.ids[rows], tokens[:, None]], 1)
        assert self.memory is not None
        self.memory = self.memory.pick(rows)
        self.logs = self._read_on()

    def _read_on(self) -> Tensor:
        """(rows, tokens): log-probabilities of the next token; a row that is full is begun anew with its last half."""
        begin = self.model.window_of(self.ids.shape[1] - 1)
        if begin != self.begin:
            self.memory, self.read, self.begin = None, begin, begin
        states, self.memory = self.model.network.extend(self.ids[:, self.read :], self.memory)
        self.read = self.ids.shape[1]
        return self.model.network.output.log_probabilities(states[:, -1]).double()


@torch.inference_mode()
def generate(
    model: CausalNet, history: Sequence[int], count: int, length: int, sampling: Sampling, beams: int
) -> list[list[int]]:
    """`count` continuations of a history, without its ids and without the end."""
    sampling.check()
    if count < 1 or length < 1 or beams < 1:
        raise RecipeError(f"count={count}, length={length} and beams={beams} must all be 1 or more.")
    if beams == 1:
        return _sample(Reading(model, history, count), length, sampling)
    if count > beams:
        raise RecipeError(f"{beams} beams give {beams} texts at most, not {count}: set beams={count}.")
    if sampling.top_k is not None or sampling.top_p is not None or sampling.temperature not in (0, 1):
        raise RecipeError("beam search draws nothing: leave temperature, top_k and top_p out, or set beams=1.")
    return search(Reading(model, history, 1), beams, length)[:count]


def _sample(reading: Reading, length: int, sampling: Sampling) -> list[list[int]]:
    """A text for each row, drawn token by token."""
    rows = len(reading.logs)
    chances = [np.random.default_rng([sampling.seed, row]) for row in range(rows)]
    texts: list[list[int]] = [[] for _ in range(rows)]
    alive = torch.arange(rows)
    for step in range(length):
        drawn = draw(reading.logs, torch.tensor([chances[row].random() for row in alive.tolist()]), sampling)
        goes_on = drawn != EOS
        alive, tokens = alive[goes_on], drawn[goes_on]
        for row, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            texts[row].append(token)
        if not len(alive):
            break
        if step + 1 < length:
            reading.add(goes_on.nonzero()[:, 0], tokens)
    return texts


def draw(logs: Tensor, chances: Tensor, sampling: Sampling) -> Tensor:
    """A token for each row of log-probabilities: where the chance, 0 to 1, falls among those that are left.

    The distribution is cooled or heated, then cut to the k likeliest, then to the likeliest with mass p.

    >>> logs = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> [draw(logs, torch.tensor([c]), Sampling(top_k=2)).item() for c in (0.62, 0.63)]
    [0, 1]
    """
    if sampling.temperature == 0:
        return logs.argmax(-1)
    ordered, order = logs.double().sort(stable=True, dim=-1, descending=True)
    if sampling.top_k is not None:
        ordered = ordered[:, : sampling.top_k]
    weights = (ordered / sampling.temperature).softmax(-1)
    reached = weights.cumsum(-1)
    if sampling.top_p is not None:
        kept = reached - weights < sampling.top_p
        kept[:, 0] = True
        reached = (weights * kept).cumsum(-1)
    wanted = chances.double()[:, None] * reached[:, -1:]
    place: Tensor = torch.searchsorted(reached, wanted, right=True).clamp_max(weights.shape[1] - 1)
    return order.gather(1, place)[:, 0]


class _Finished(NamedTuple):
    score: float
    """Mean log-probability of the tokens, the end included."""
    ids: list[int]


def search(reading: Reading, beams: int, length: int) -> list[list[int]]:
    """The likeliest texts that are found when the `beams` likeliest beginnings of each length are gone on with.

    What is compared at the end is the mean log-probability of a text's tokens, its end among them.
    """
    begun = reading.ids.shape[1]
    scores = torch.zeros(1, dtype=torch.float64)
    finished: list[_Finished] = []
    for step in range(1, length + 1):
        totals = scores[:, None] + reading.logs
        ended = zip((totals[:, EOS] / step).tolist(), reading.ids[:, begun:].tolist(), strict=True)
        finished += [_Finished(score, ids) for score, ids in ended if score > -np.inf]
        finished = sorted(finished, key=lambda one: -one.score)[:beams]
        totals[:, EOS] = -torch.inf
        width = totals.shape[1]
        scores, best = totals.flatten().topk(min(beams, totals.numel()))
        best, scores = best[scores > -torch.inf], scores[scores > -torch.inf]
        rows, tokens = best // width, best % width
        if step == length:
            texts = torch.cat([reading.ids[rows, begun:], tokens[:, None]], 1).tolist()
            finished += [_Finished(score / step, ids) for score, ids in zip(scores.tolist(), texts, strict=True)]
        # A sum of logarithms only falls, so the mean of what goes on is at most the sum now over the full length.
        elif not len(best) or (len(finished) == beams and finished[-1].score >= scores[0].item() / length):
            break
        else:
            reading.add(rows, tokens)
    return [one.ids for one in sorted(finished, key=lambda one: -one.score)[:beams]]
