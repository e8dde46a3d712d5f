"""Scoring many texts of different lengths: batches of similar length, windows, and chunked logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.errors import AbilityError
from firth.lm.language_model import LanguageModel, TokenStream
from firth.nets.batch import Batch
from firth.nets.network import KVCache
from firth.nets.outputs.output import OutputLayer
from firth.nets.recipe import NetRecipe
from firth.progress import Advance, note

Integers = npt.NDArray[np.int64]
LogProbs = npt.NDArray[np.float64]
DecodeStep = Callable[[Tensor, KVCache | None], tuple[Tensor, KVCache]]
"""New ids (batch, length) and a cache -> their states (batch, length, width) and the new cache."""
Encode = Callable[[Batch, Tensor], Tensor]
"""A batch and positions of the flattened batch -> their states (positions, width)."""

BATCH_TOKENS = 1 << 11
"""Tokens that are encoded at once, so that their states stay in the processor's cache."""
_LOGITS = 1 << 24  # at most at once
_STEP = 256  # tokens of each text that a recurrent network reads at once


class ScoringWindow(NamedTuple):
    """A part of a text that is too long to be encoded at once."""

    begin: int
    end: int
    first: int
    """Predictions are used from this position..."""
    last: int
    """...to this one."""


def one_line(text: str) -> str:
    """A text that tokenizers accept: one line without NULs and without invalid bytes, as command lines may have."""
    return " ".join(text.encode(errors="replace").decode().replace("\0", " ").splitlines())


def max_length(recipe: NetRecipe) -> int | None:
    """Maximal tokens of a sequence, special ones included; None if there is no limit."""
    positions = recipe.embedding.positions != "none"
    return recipe.sequence.length if positions or recipe.encoder.kind == "transformer" else None


def causal_windows(length: int, most: int, overlap: int) -> list[ScoringWindow]:
    """Windows over a text for causal states: each is used after the end of the one before.

    All but the first have at least `overlap` tokens of context.

    >>> [tuple(window) for window in causal_windows(7, 4, 2)]
    [(0, 4, 0, 4), (2, 6, 4, 6), (4, 7, 6, 7)]
    """
    step = most - overlap
    begins = [0, *range(step, length - overlap, step)]
    return [ScoringWindow(b, min(b + most, length), b + overlap if b else 0, min(b + most, length)) for b in begins]


def centred_windows(length: int, most: int) -> list[ScoringWindow]:
    """Windows over a text for bidirectional states: the middle of each is used, and the ends of the text.

    >>> [tuple(window) for window in centred_windows(7, 4)]
    [(0, 4, 0, 3), (2, 6, 3, 4), (3, 7, 4, 7)]
    """
    if length <= most:
        return [ScoringWindow(0, length, 0, length)]
    step = max(1, most // 2)
    begins = [*range(0, length - most, step), length - most]
    cuts = [0, *((a + most + b) // 2 for a, b in pairwise(begins)), length]
    return [ScoringWindow(b, b + most, low, high) for b, (low, high) in zip(begins, pairwise(cuts), strict=True)]


def length_groups(lengths: Integers, equal: bool = False, most: int = BATCH_TOKENS) -> Iterator[Integers]:
    """Groups of texts of similar length that fill a batch, longest first; with `equal` of the same length.

    `most` tokens of each text are encoded at once.
    """
    order = np.argsort(-lengths, kind="stable")
    falling = -lengths[order]
    begin = 0
    while begin < order.size:
        longest = -int(falling[begin])
        end = begin + max(1, BATCH_TOKENS // max(1, min(longest, most)))
        if equal:
            end = min(end, int(np.searchsorted(falling, -longest, side="right")))
        yield order[begin:end]
        begin = end


def note_long(lengths: Integers, most: int | None) -> None:
    """Report how many sentences are scored in windows."""
    if most is not None and (long := int(np.count_nonzero(lengths > most))):
        note(f"{long:,} sentences of more than {most} tokens are scored in windows that overlap by half")


def pad_rows(ids: Integers, begins: Integers, lengths: Integers) -> tuple[Tensor, Tensor]:
    """(rows, longest): the ids from each beginning on, padded, and a mask of the tokens."""
    columns = np.arange(int(lengths.max()))
    is_token = columns < lengths[:, None]
    rows = np.where(is_token, ids[np.minimum(begins[:, None] + columns, ids.size - 1)], 0)
    return torch.from_numpy(rows), torch.from_numpy(is_token)


def make_batch(ids: Tensor) -> Batch:
    """A batch of one sequence per row."""
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool))


def logits_chunk(vocabulary: int) -> int:
    """States whose logits are computed at once."""
    return max(1, _LOGITS // vocabulary)


def target_logprobs(output: OutputLayer, states: Tensor, targets: Tensor, vocabulary: int) -> LogProbs:
    """(positions,): the log-probability of each target, in chunks."""
    chunks = zip(*(torch.split(each, logits_chunk(vocabulary)) for each in (states, targets)), strict=True)
    return torch.cat([output.log_probability(some, at) for some, at in chunks]).double().numpy()


class ScoringText(NamedTuple):
    """Concatenated texts: input tokens and the targets to predict there."""

    inputs: Integers
    targets: Integers
    bounds: Integers
    """Text t is from `bounds[t]` to `bounds[t + 1]`."""
    vocabulary: int

    def after(self, inputs: Integers) -> ScoringText:
        """The texts with `inputs` before the first one, as a part of it."""
        joined = np.concatenate([inputs, self.inputs])
        bounds = np.append(0, self.bounds[1:] + inputs.size)
        return self._replace(inputs=joined, targets=np.append(joined[1:], self.targets[-1]), bounds=bounds)

    def part(self, first: int, last: int) -> ScoringText:
        """Some of the texts."""
        bounds = self.bounds[first : last + 1]
        inputs, targets = (ids[bounds[0] : bounds[-1]] for ids in (self.inputs, self.targets))
        return self._replace(inputs=inputs, targets=targets, bounds=bounds - bounds[0])


def score_in_windows(
    encode: Encode,
    output: OutputLayer,
    text: ScoringText,
    windows: Sequence[ScoringWindow],
    advance: Advance,
    equal: bool = False,
) -> LogProbs:
    """The log-probability of every target of the windows over the concatenated texts.

    Padding is at the end, where causal states do not depend on it; with `equal` there is none.
    """
    logprobs = np.empty(text.targets.size)
    begins, ends, firsts, lasts = np.array(windows, dtype=np.int64).reshape(-1, 4).T
    for group in length_groups(ends - begins, equal):
        ids, _ = pad_rows(text.inputs, begins[group], (ends - begins)[group])
        positions = np.arange(ids.shape[1]) + begins[group][:, None]
        used = (positions >= firsts[group][:, None]) & (positions < lasts[group][:, None])
        found = positions[used]
        states = encode(make_batch(ids), torch.from_numpy(np.flatnonzero(used)))
        targets = torch.from_numpy(text.targets[found])
        logprobs[found] = target_logprobs(output, states, targets, text.vocabulary)
        advance(found.size)
    return logprobs


def score_stepwise(decode_step: DecodeStep, output: OutputLayer, text: ScoringText, advance: Advance) -> LogProbs:
    """The log-probability of every target, many texts in parallel, each read from beginning to end."""
    logprobs = np.empty(text.targets.size)
    lengths = np.diff(text.bounds)
    for group in length_groups(lengths, most=_STEP):
        begins, left = text.bounds[group], lengths[group]
        cache: KVCache | None = None
        while left.size:
            ids, is_token = pad_rows(text.inputs, begins, np.minimum(left, _STEP))
            states, cache = decode_step(ids, cache)
            found = (torch.from_numpy(begins)[:, None] + torch.arange(ids.shape[1]))[is_token].numpy()
            targets = torch.from_numpy(text.targets[found])
            logprobs[found] = target_logprobs(output, states[is_token], targets, text.vocabulary)
            advance(found.size)
            has_more = left > _STEP
            begins, left = begins[has_more] + _STEP, left[has_more] - _STEP
            if left.size and not has_more.all():
                cache = cache.select_rows(torch.from_numpy(np.flatnonzero(has_more)))
    return logprobs


def continue_stepwise(
    decode_step: DecodeStep,
    output: OutputLayer,
    text: ScoringText,
    cache: KVCache | None,
    keep: bool,
    advance: Advance,
) -> tuple[LogProbs, KVCache | None]:
    """`score_stepwise` with the first text after a state, and with `keep` the state after the last text.

    These two texts are read one after the other, those between them in parallel.
    """
    first, last = int(cache is not None), text.bounds.size - 1 - int(keep)
    found = []
    if first:
        logs, cache = _score_one(decode_step, output, text.part(0, 1), cache, advance)
        found.append(logs)
    if first < last:
        found.append(score_stepwise(decode_step, output, text.part(first, last), advance))
    if keep and last >= first:
        logs, cache = _score_one(decode_step, output, text.part(last, last + 1), None, advance)
        found.append(logs)
    return np.concatenate(found), cache if keep else None


def _score_one(
    decode_step: DecodeStep, output: OutputLayer, text: ScoringText, cache: KVCache | None, advance: Advance
) -> tuple[LogProbs, KVCache | None]:
    """The log-probability of every target of one text after a state, and the state after it."""
    logprobs = np.empty(text.targets.size)
    for begin in range(0, text.targets.size, BATCH_TOKENS):
        end = begin + BATCH_TOKENS
        inputs, targets = (torch.from_numpy(ids[begin:end]) for ids in (text.inputs, text.targets))
        states, cache = decode_step(inputs[None], cache)
        logprobs[begin:end] = target_logprobs(output, states[0], targets, text.vocabulary)
        advance(targets.numel())
    return logprobs, cache


class TokenScores(LanguageModel):
    """Scores texts by a function of token streams, for models that are not causal."""

    def __init__(self, model: Any, token_logprobs: Callable[..., LogProbs]) -> None:
        """`token_logprobs` takes a stream and, if it can score a part of it, a mask of the wanted ids."""
        super().__init__(model.recipe, model.tokenizer, model.layout, model.unknown_word_model)
        self._token_logprobs = token_logprobs

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {}

    def token_logprobs(self, stream: TokenStream) -> LogProbs:
        return self._token_logprobs(stream)

    def wanted_logprobs(self, stream: TokenStream, wanted: npt.NDArray[np.bool_]) -> LogProbs:
        return self._token_logprobs(stream, wanted)

    def next_logprobs(self, history: Sequence[int]) -> LogProbs:
        raise AbilityError("these are scores of whole texts: use a causal model, such as gpt or lstm, for next tokens.")
