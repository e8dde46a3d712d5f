"""Causal networks, which score and generate text, and with a backward half (ELMo)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from firth.abilities import Score, TextPiece
from firth.decoding.generate import generate, sample_stepwise
from firth.decoding.sampling import Sampling
from firth.lm.language_model import LanguageModel, TokenStream, current_sentence
from firth.nets.batch import Batch
from firth.nets.combination import RECURRENT
from firth.nets.encoders.encoder import Encoder
from firth.nets.model import NetModel
from firth.nets.network import KVCache
from firth.nets.scoring import (
    Integers,
    LogProbs,
    ScoringText,
    ScoringWindow,
    TokenScores,
    causal_windows,
    continue_stepwise,
    make_batch,
    max_length,
    note_long,
    score_in_windows,
    score_stepwise,
)
from firth.progress import progress
from firth.tokens.tokenizer import EOS

_WINDOW = 1024  # tokens that a network of short context reads at once


class CausalNet(NetModel, LanguageModel):
    """Each sentence by itself, with `</s>` before the first token and `</s>` predicted after the last."""

    def __init__(self, *parts: Any) -> None:
        NetModel.__init__(self, *parts)
        LanguageModel.__init__(self, self.recipe, self.tokenizer, self.layout, self.unknown_word_model)

    @property
    def max_tokens(self) -> int | None:
        return max_length(self.recipe)

    @property
    def has_unlimited_context(self) -> bool:
        """Whether the network is recurrent and reads texts of any length."""
        return max_length(self.recipe) is None and self.recipe.encoder.kind in RECURRENT

    @property
    def window(self) -> tuple[int, int]:
        """The size and the overlap of the windows of other networks: see `causal_windows`."""
        most = max_length(self.recipe)
        if most is not None:
            return most, most // 2
        return max(_WINDOW, 2 * self.recipe.encoder.receptive_field), self.recipe.encoder.receptive_field

    def token_logprobs(self, stream: TokenStream) -> LogProbs:
        text = self._text(stream)
        note_long(np.diff(stream.bounds), max_length(self.recipe))
        with torch.inference_mode(), progress("scoring", text.targets.size, "tokens") as advance:
            if self.has_unlimited_context:
                return score_stepwise(self.network.decode_step, self.network.output, text, advance)
            return score_in_windows(self._encode, self.network.output, text, self._windows(text.bounds), advance)

    def continue_document(self, stream: TokenStream, context: Any, keep: bool) -> tuple[LogProbs, Any]:
        """The context is the state after the document (recurrent networks), or the inputs of its last window."""
        if not self.carries_context or (context is None and not keep) or not stream.ids.size:
            return self.token_logprobs(stream), context if keep else None
        text = self._text(stream)
        with torch.inference_mode(), progress("scoring", text.targets.size, "tokens") as advance:
            if self.has_unlimited_context:
                network = self.network
                logs, state = continue_stepwise(network.decode_step, network.output, text, context, keep, advance)
                return logs, state
            before = np.zeros(0, dtype=np.int64) if context is None else context
            joined = text.after(before)
            windows = [one for one in self._windows(joined.bounds) if one.last > before.size]
            logs = score_in_windows(self._encode, self.network.output, joined, windows, advance)
            start = self.window_start(int(joined.bounds[-1] - joined.bounds[-2]))
            return logs[before.size :], joined.inputs[joined.bounds[-2] + start :] if keep else None

    def next_logprobs(self, history: Sequence[int]) -> LogProbs:
        ids = torch.tensor([self.input_ids(history)])
        ids = ids[:, self.window_start(ids.shape[1] - 1) :]
        with torch.inference_mode():
            states = self._encode(make_batch(ids), torch.tensor([ids.shape[1] - 1]))
            logs = self.network.output.log_probabilities(states)
        return np.asarray(logs[0].double().numpy())

    def input_ids(self, history: Sequence[int]) -> list[int]:
        """The input before the next token: `</s>` and the current sentence, or the whole history."""
        return [EOS, *(history if self.carries_context else current_sentence(history)[1:])]

    def window_start(self, position: int) -> int:
        """The start of the window that predicts the token after a position."""
        most, overlap = self.window
        step = most - overlap
        return 0 if self.has_unlimited_context or position < most else step * ((position - overlap) // step)

    def continuations(
        self, history: Sequence[int], count: int, length: int, sampling: Sampling, beams: int = 1
    ) -> list[list[int]]:
        """The n-th text depends on the seed and on n alone."""
        return generate(lambda rows: CausalDecoderState(self, history, rows), count, length, sampling, beams)

    @torch.inference_mode()
    def continuation_steps(self, history: Sequence[int], length: int, sampling: Sampling) -> Iterator[list[int]]:
        for (ids,) in sample_stepwise(CausalDecoderState(self, history, 1), length, sampling):
            yield ids

    def _text(self, stream: TokenStream) -> ScoringText:
        """The stream as texts: every sentence ends with `</s>`, so there is one before each text, too."""
        ids = stream.ids.astype(np.int64)
        inputs = np.concatenate([[EOS], ids[:-1]]) if ids.size else ids
        begins = stream.bounds[:-1][stream.starts_document] if self.carries_context else stream.bounds[:-1]
        return ScoringText(inputs, ids, np.append(begins, ids.size).astype(np.int64), len(self.tokenizer))

    def _windows(self, bounds: Integers) -> list[ScoringWindow]:
        return [
            ScoringWindow(*(begin + position for position in one))
            for begin, end in pairwise(bounds.tolist())
            for one in causal_windows(end - begin, *self.window)
        ]

    def _encode(self, batch: Batch, positions: Tensor) -> Tensor:
        """(positions, width): the states that predict the tokens after some positions."""
        return self.network(batch, positions).last_hidden_state  # type: ignore[no-any-return]

    def decode_step(self, ids: Tensor, cache: KVCache | None = None) -> tuple[Tensor, KVCache]:
        """See `Network.decode_step`; the last state predicts the next token."""
        return self.network.decode_step(ids, cache)


class StreamNet(CausalNet):
    """Trained on a stream of sentences: the context is carried within a document."""

    carries_context: ClassVar[bool] = True


class CausalDecoderState:
    """Continuations of a history, with the cached states of the network; see `firth.decoding.generate`."""

    def __init__(self, model: CausalNet, history: Sequence[int], rows: int) -> None:
        self.model = model
        self.ids = torch.tensor([model.input_ids(history)])
        self.cache: KVCache | None = None
        self.length = self.begin = 0
        self.log_probabilities = self._next().expand(rows, -1)
        self.ids = self.ids.expand(rows, -1)
        if self.cache is not None:
            self.cache = self.cache.select_rows(torch.zeros(rows, dtype=torch.int64))

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        self.ids = torch.cat([self.ids[rows], tokens[:, None]], 1)
        assert self.cache is not None
        self.cache = self.cache.select_rows(rows)
        self.log_probabilities = self._next()

    def _next(self) -> Tensor:
        """(rows, vocabulary): log-probabilities of the next token; a full window is started again at its last half."""
        begin = self.model.window_start(self.ids.shape[1] - 1)
        if begin != self.begin:
            self.cache, self.length, self.begin = None, begin, begin
        states, self.cache = self.model.decode_step(self.ids[:, self.length :], self.cache)
        self.length = self.ids.shape[1]
        return self.model.network.output.log_probabilities(states[:, -1]).double()


class BidirectionalNet(CausalNet):
    """A causal language model, which scores and generates, and a backward one.

    Their hidden states are concatenated; each predicts from its own half.
    """

    def logits(self, ids: Tensor) -> Tensor:
        """(batch, length, vocabulary): the logits of the forward half at each position of `ids`."""
        self.check_ids(ids)
        with torch.no_grad():
            states = self._encode(make_batch(ids), torch.arange(ids.numel()))
            return self.network.output.logits(states).view(*ids.shape, -1)

    def score_both(self, texts: Sequence[str], *, as_document: bool = False) -> tuple[list[Score], list[Score]]:
        """The scores of each text forwards, as in `score`, and backwards."""
        return self.score(texts, as_document=as_document), self.score_backwards(texts, as_document=as_document)

    def score_backwards(self, texts: Sequence[str], *, as_document: bool = False) -> list[Score]:
        """The score of each text with every token predicted from those after it.

        The `</s>` before the text is predicted from all of it, so there are as many predictions as forwards.
        """
        return self._backward_scores.score(texts, as_document=as_document)

    def score_pieces_backwards(self, pieces: Iterable[TextPiece]) -> Iterator[Score]:
        """The same for pieces of documents; one that is scored in several batches has no context after each."""
        return self._backward_scores.score_pieces(pieces)

    def token_logprobs_backwards(self, stream: TokenStream) -> LogProbs:
        """The log-probability of every id of the stream given those after it.

        Nothing follows the last `</s>` of a text: its entry is that of the `</s>` before the text.
        """
        forwards = self._text(stream)
        text = forwards._replace(inputs=forwards.targets, targets=forwards.inputs)
        output = self.network.output
        with torch.inference_mode(), progress("scoring backwards", text.targets.size, "tokens") as advance:
            if self.has_unlimited_context:
                logs = score_stepwise(self._decode_backward, output, _reverse(text), advance)[::-1]
            else:
                windows = self._backward_windows(text.bounds)
                logs = score_in_windows(self._encode_backward, output, text, windows, advance, equal=True)
        return _shift_to_targets(logs, text.bounds)

    @cached_property
    def _backward_scores(self) -> TokenScores:
        return TokenScores(self, self.token_logprobs_backwards)

    def _encode(self, batch: Batch, positions: Tensor) -> Tensor:
        return super()._encode(batch, positions)[:, : self.recipe.width // 2]

    def _encode_backward(self, batch: Batch, positions: Tensor) -> Tensor:
        return super()._encode(batch, positions)[:, self.recipe.width // 2 :]

    def _decode_backward(self, ids: Tensor, cache: KVCache | None) -> tuple[Tensor, KVCache]:
        """A step of the backward half, which is recurrent, too."""
        encoder = self.network.encoders[1]
        assert isinstance(encoder, Encoder)
        cache = cache or KVCache(0, [])
        inputs = self.network.inputs(self.network.embedding(ids))[1]
        states, tensors = encoder.decode_step(inputs, cache.tensors)
        return states, KVCache(cache.length + ids.shape[1], tensors)

    def _backward_windows(self, bounds: Integers) -> list[ScoringWindow]:
        size = int(bounds[-1])
        mirrored = self._windows(size - bounds[::-1])
        return [ScoringWindow(size - one.end, size - one.begin, size - one.last, size - one.first) for one in mirrored]


class BidirectionalStreamNet(BidirectionalNet):
    """Trained on a stream of sentences: the context is carried within a document, in both directions."""

    carries_context: ClassVar[bool] = True


def _reverse(text: ScoringText) -> ScoringText:
    inputs, targets = (np.ascontiguousarray(ids[::-1]) for ids in (text.inputs, text.targets))
    return ScoringText(inputs, targets, text.inputs.size - text.bounds[::-1], text.vocabulary)


def _shift_to_targets(logs: LogProbs, bounds: Integers) -> LogProbs:
    """Predictions of the previous token, moved to its position; the first of each text goes to its end.

    >>> _shift_to_targets(np.array([1.0, 2, 3, 4, 5]), np.array([0, 3, 5])).tolist()
    [2.0, 3.0, 1.0, 5.0, 4.0]
    """
    moved = np.empty_like(logs)
    moved[:-1] = logs[1:]
    for begin, end in pairwise(bounds.tolist()):
        moved[end - 1] = logs[begin]
    return moved
