"""Sampling (temperature, top-k, nucleus) and beam search over any model that gives next-token probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from firth.decoding.sampling import COLDEST, Sampling
from firth.errors import ArgumentError
from firth.tokens.tokenizer import EOS


class DecoderState(Protocol):
    """Hypotheses of equal length that are decoded in parallel."""

    log_probabilities: Tensor  # (hypotheses, vocabulary): of the next token

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by those at `rows` (repeats allowed), each with one more token."""


def sample(state: DecoderState, max_length: int, sampling: Sampling) -> list[list[int]]:
    """One sampled sequence for each hypothesis of `state`, without the end; row i depends on the seed and i alone."""
    sequences: list[list[int]] = [[] for _ in range(len(state.log_probabilities))]
    for found in sample_stepwise(state, max_length, sampling):
        sequences = found
    return sequences


def sample_stepwise(state: DecoderState, max_length: int, sampling: Sampling) -> Iterator[list[list[int]]]:
    """The sequences of `sample` after each token."""
    count = len(state.log_probabilities)
    rngs = [np.random.default_rng([sampling.seed, row]) for row in range(count)]
    sequences: list[list[int]] = [[] for _ in range(count)]
    active = torch.arange(count)
    for step in range(max_length):
        uniform = torch.tensor([rngs[row].random() for row in active.tolist()])
        sampled = sample_tokens(state.log_probabilities, uniform, sampling)
        is_open = sampled != EOS
        active, tokens = active[is_open], sampled[is_open]
        for row, token in zip(active.tolist(), tokens.tolist(), strict=True):
            sequences[row].append(token)
        yield sequences
        if not len(active):
            break
        if step + 1 < max_length:
            state.append(is_open.nonzero()[:, 0], tokens)


def sample_tokens(log_probabilities: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """(rows): a token for each row by inverse transform sampling of uniform numbers in [0, 1).

    The distribution is scaled by the temperature, cut to the top k, then to the nucleus of mass p.

    >>> logs = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> [sample_tokens(logs, torch.tensor([u]), Sampling(top_k=2)).item() for u in (0.62, 0.63)]
    [0, 1]
    """
    if sampling.temperature < COLDEST:
        return log_probabilities.argmax(-1)
    ordered, order = log_probabilities.double().sort(stable=True, dim=-1, descending=True)
    if sampling.top_k is not None:
        ordered = ordered[:, : sampling.top_k]
    weights = (ordered / sampling.temperature).softmax(-1)
    cumulative = weights.cumsum(-1)
    if sampling.top_p is not None:
        kept = cumulative - weights < sampling.top_p
        kept[:, 0] = True
        cumulative = (weights * kept).cumsum(-1)
    target = uniform.double()[:, None] * cumulative[:, -1:]
    index: Tensor = torch.searchsorted(cumulative, target, right=True).clamp_max(weights.shape[1] - 1)
    return order.gather(1, index)[:, 0]


class Hypothesis(NamedTuple):
    """A decoded sequence, with its EOS if it is finished, and its log-probability."""

    tokens: tuple[int, ...]
    score: float

    @property
    def text_tokens(self) -> list[int]:
        """The tokens without the EOS."""
        return [token for token in self.tokens if token != EOS]

    def rank(self, length_penalty: float, offset: int = 0) -> float:
        """score / length_norm, for comparing sequences of different length."""
        return self.score / length_norm(len(self.tokens), length_penalty, offset)


def length_norm(length: int, penalty: float, offset: int = 0) -> float:
    """((offset + length) / (offset + 1)) ** penalty; Wu et al. 2016 (equation 14) have an offset of 5, others none.

    >>> length_norm(9, 0.5), length_norm(19, 0.5, offset=5)
    (3.0, 2.0)
    """
    return float(((offset + max(1, length)) / (offset + 1)) ** penalty)


class _Beam(NamedTuple):
    """An unfinished hypothesis."""

    row: int  # of its prefix in the decoder state
    source: int
    hypothesis: Hypothesis


@dataclass
class BeamSearch:
    """Beams of several sources that are decoded in parallel.

    With `early_stopping` a source is done after `beams` endings among its best `beams` candidates, and an unfinished
    sequence is returned only if none has ended. Without it every ending of a beam competes, the search runs until
    no better sequence can be found, and unfinished sequences of the maximum length compete, too.
    """

    sources: int
    beams: int
    max_length: int
    length_penalty: float = field(kw_only=True)
    early_stopping: bool = field(kw_only=True)
    no_repeat_ngram: int = field(default=0, kw_only=True)
    penalty_offset: int = field(default=0, kw_only=True)
    """See `length_norm`."""

    def __post_init__(self) -> None:
        self.active = [_Beam(source, source, Hypothesis((), 0.0)) for source in range(self.sources)]
        self.finished: list[list[Hypothesis]] = [[] for _ in range(self.sources)]

    def run(self, state: DecoderState) -> list[list[Hypothesis]]:
        """The best finished sequences of each source, best first; `state` has one empty hypothesis for each source."""
        for step in range(1, self.max_length + 1):
            self._extend(state.log_probabilities)
            if not self.active or step == self.max_length:
                break
            rows = torch.tensor([beam.row for beam in self.active])
            state.append(rows, torch.tensor([beam.hypothesis.tokens[-1] for beam in self.active]))
        return [self._ranked(source)[: self.beams] for source in range(len(self.finished))]

    def _ranked(self, source: int) -> list[Hypothesis]:
        found = list(self.finished[source])
        if not (self.early_stopping and found):
            found += [beam.hypothesis for beam in self.active if beam.source == source]
        return sorted(found, key=self._order)

    def _order(self, hypothesis: Hypothesis) -> float:
        return -hypothesis.rank(self.length_penalty, self.penalty_offset)

    def _extend(self, log_probabilities: Tensor) -> None:
        """Extend each beam by one token and keep the best of each source."""
        if self.no_repeat_ngram:
            for row, beam in enumerate(self.active):
                log_probabilities[row, blocked_tokens(beam.hypothesis.tokens, self.no_repeat_ngram)] = -torch.inf
        candidates = self._candidates(log_probabilities)
        if not self.early_stopping:
            for beam, ending in zip(self.active, log_probabilities[:, EOS].tolist(), strict=True):
                if ending > -math.inf:
                    self.finished[beam.source].append(_extended(beam.hypothesis, EOS, beam.hypothesis.score + ending))
        self.active = []
        for source, beams in candidates.items():
            self._keep(source, beams)

    def _candidates(self, log_probabilities: Tensor) -> dict[int, list[_Beam]]:
        """The best extensions of the beams of each source, best first, of equal ones the earlier beam.

        Of `beams` beams at most `beams` extensions are ends, so that twice as many are enough.
        """
        best = log_probabilities.topk(min(self.beams + 1, log_probabilities.shape[1]))
        totals = torch.tensor([beam.hypothesis.score for beam in self.active], dtype=torch.float64)
        sources, slots, first = list[int](), list[int](), list[int]()
        for row, beam in enumerate(self.active):
            if not sources or sources[-1] != beam.source:
                sources.append(beam.source)
                first.append(row)
            slots.append((len(sources) - 1) * self.beams + row - first[-1])
        size = best.values.shape[1]
        scores = torch.full((len(sources) * self.beams, size), -torch.inf, dtype=torch.float64)
        scores[slots] = best.values.double() + totals[:, None]
        sort = scores.view(len(sources), -1).sort(dim=1, descending=True, stable=True)
        ordered, order = (each[:, : 2 * self.beams].tolist() for each in sort)
        tokens, found = best.indices.tolist(), dict[int, list[_Beam]]()
        for source, begin, values, columns in zip(sources, first, ordered, order, strict=True):
            rows = [(begin + index // size, index % size, value) for value, index in zip(values, columns, strict=True)]
            found[source] = [
                _Beam(row, source, _extended(self.active[row].hypothesis, tokens[row][column], value))
                for row, column, value in rows
                if value > -math.inf
            ]
        return found

    def _keep(self, source: int, candidates: Sequence[_Beam]) -> None:
        """Keep the best unfinished candidates of a source unless it is done."""
        going = [beam for beam in candidates if beam.hypothesis.tokens[-1] != EOS][: self.beams]
        finished = self.finished[source]
        if self.early_stopping:
            finished += [beam.hypothesis for beam in candidates[: self.beams] if beam.hypothesis.tokens[-1] == EOS]
            is_done = len(finished) >= self.beams
        else:
            finished.sort(key=self._order)
            del finished[self.beams :]
            # Log-probabilities are at most 0, so a beam's rank never rises above its score at the maximum length.
            is_done = (
                len(finished) == self.beams
                and bool(going)
                and len(going[0].hypothesis.tokens) < self.max_length
                and -self._order(finished[-1])
                >= going[0].hypothesis.score / length_norm(self.max_length, self.length_penalty, self.penalty_offset)
            )
        if not is_done:
            self.active += going


def _extended(hypothesis: Hypothesis, token: int, score: float) -> Hypothesis:
    return Hypothesis((*hypothesis.tokens, token), score)


def blocked_tokens(tokens: Sequence[int], size: int) -> list[int]:
    """The next tokens that would repeat an n-gram of that size (Paulus et al. 2018).

    >>> blocked_tokens([7, 8, 9, 7, 8], 3), blocked_tokens([7, 7], 2), blocked_tokens([7, 8], 1)
    ([9], [7], [7, 8])
    """
    prefix = tuple(tokens[len(tokens) - size + 1 :])
    starts = range(len(tokens) - size + 1)
    return [tokens[at + size - 1] for at in starts if tuple(tokens[at : at + size - 1]) == prefix]


@torch.inference_mode()
def generate(
    start: Callable[[int], DecoderState], count: int, max_length: int, sampling: Sampling, beams: int
) -> list[list[int]]:
    """`count` continuations, without the prompt and without the end.

    `start` is called with a number of hypotheses and returns the state after the prompt. Beam search compares
    sequences by the mean log-probability of their tokens, the end included.
    """
    sampling.check()
    if count < 1 or max_length < 1 or beams < 1:
        raise ArgumentError(f"count={count}, length={max_length} and beams={beams} must all be 1 or more.")
    if beams == 1:
        return sample(start(count), max_length, sampling)
    if count > beams:
        raise ArgumentError(f"{beams} beams give {beams} texts at most, not {count}: set --beams {count}.")
    if sampling.top_k is not None or sampling.top_p is not None or sampling.temperature not in (0, 1):
        raise ArgumentError(
            "beam search does not sample: leave --temperature, --top-k and --top-p out, or set --beams 1."
        )
    search = BeamSearch(1, beams, max_length, length_penalty=1.0, early_stopping=False)
    return [one.text_tokens for one in search.run(start(1))[0][:count]]
