"""Seq2SeqNet: an encoder and a decoder, which translate texts and score translations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from firth.abilities import Score, Translation
from firth.decoding.generate import BeamSearch, Hypothesis
from firth.errors import AbilityError, ArtifactError, RecipeError
from firth.lm.language_model import TokenStream
from firth.nets.batch import Batch
from firth.nets.model import NetModel
from firth.nets.network import KVCache, Network
from firth.nets.scoring import BATCH_TOKENS, Integers, LogProbs, TokenScores, one_line, pad_rows, target_logprobs
from firth.nets.visibility import EncoderStates, make_encoder_states
from firth.progress import note, progress
from firth.tokens.special_tokens import PairFormat
from firth.tokens.tokenizer import EOS, FIRST_WORD

LENGTH_PENALTY = 0.6
"""The exponent of Vaswani et al. 2017, chosen on their development set."""
_PENALTY_OFFSET = 5  # Wu et al. 2016, equation 14
_MAX_SOURCES = 32  # decoded in parallel
_MAX_CACHE = 1 << 25  # numbers in the cached states of all hypotheses decoded in parallel
_PAIRS = 4096  # scored at once


class Seq2SeqNet(NetModel):
    """Predicts a target from a source. Vectors of texts are those of the encoder alone."""

    def translate(
        self,
        sources: Sequence[str],
        *,
        beams: int = 4,
        length: int | None = None,
        length_penalty: float = LENGTH_PENALTY,
    ) -> list[Translation]:
        """The best target of each source by beam search; one beam is greedy. A blank source has an empty target.

        Targets have at most `length` tokens, by default as many as in training. They are compared by their
        log-probability divided by ((5 + n) / 6) ** `length_penalty` (Wu et al. 2016), n being their tokens.
        """
        most = self.recipe.sequence.length - 1
        limit = most if length is None else length
        if not 1 <= limit <= most:
            raise RecipeError(f"length={limit} must be from 1 to {most}, the tokens of a target in training.")
        if beams < 1 or length_penalty < 0:
            raise RecipeError(f"beams={beams} must be 1 or more, and length_penalty={length_penalty} not below 0.")
        ids = self.source_ids(sources)
        self._note_long(ids)
        found: list[Translation] = [Translation("", 0.0, 0, True)] * len(ids)
        with torch.inference_mode(), progress("translating", len(ids), "texts") as advance:
            for group in self._groups(ids, beams * limit):
                search = BeamSearch(
                    len(group),
                    beams,
                    limit,
                    length_penalty=length_penalty,
                    early_stopping=True,
                    penalty_offset=_PENALTY_OFFSET,
                )
                best = search.run(self.decoder_state([ids[one] for one in group]))
                for index, hypotheses in zip(group, best, strict=True):
                    found[index] = self._translation(ids[index], hypotheses)
                advance(len(group))
        return found

    def source_ids(self, sources: Sequence[str]) -> list[Integers]:
        """The ids of each source."""
        return self.encode([one_line(text) for text in sources])

    @cached_property
    def pair_format(self) -> PairFormat:
        """The special tokens of sources and targets."""
        return PairFormat.of(self.tokenizer)

    def decoder_state(self, sources: Sequence[Integers]) -> SourceDecoderState:
        """The hypotheses of targets before their first token."""
        return SourceDecoderState(self.network, self.encode_sources(sources), self.pair_format.first)

    def encode_sources(self, sources: Sequence[Integers]) -> EncoderStates:
        """The encoder's states of sources, padded."""
        batch, is_token = pad_sequences([self._source(one) for one in sources])
        states = self.network(batch).last_hidden_state.view(*batch.shape, -1)
        hidden = self.hidden_tokens(batch.ids)
        return make_encoder_states(states, is_token if hidden is None else is_token & ~hidden)

    def hidden_tokens(self, source: Tensor) -> Tensor | None:
        """(batch, length): the tokens of sources that the decoder does not attend to; None: it attends to all."""
        return None

    def _source(self, ids: Integers) -> Integers:
        """A source with its special tokens."""
        before, end, *_ = self.pair_format
        return np.concatenate([np.array(before, dtype=np.int64), ids, np.array(end, dtype=np.int64)])

    def score_pairs(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Score]:
        """The score of each target given its source: its log-probability with its end. A blank target scores 0."""
        left = iter(pairs)
        while some := list(islice(left, _PAIRS)):
            texts = [(one_line(source), one_line(target).strip()) for source, target, *_ in some]
            sources = self.encode([source for source, target in texts if target])
            self._note_long(sources)
            scores = TokenScores(self, partial(self._target_logprobs, sources))
            yield from scores.score([target for _, target in texts])

    def logits(self, ids: Tensor, source: Tensor | None = None) -> Tensor:
        """(batch, length, vocabulary): the logits at each position of the decoder's input, given the source's ids."""
        self.check_ids(ids)
        if source is None:
            raise AbilityError("the logits of a target depend on its source: give the ids of both.")
        self.check_ids(source)
        batch = Batch(ids, ids >= FIRST_WORD, source=Batch(source, source >= FIRST_WORD))
        with torch.no_grad():
            return self.network.output.logits(self.network(batch).last_hidden_state).view(*ids.shape, -1)

    def _note_long(self, sources: Sequence[Integers]) -> None:
        most = self.recipe.sequence.length - 2
        if long := sum(one.size > most for one in sources):
            note(f"{long:,} sources have more than {most} tokens, as many as the network has seen in training")

    def _groups(self, ids: Sequence[Integers], decoded: int) -> Iterator[list[int]]:
        """Indices of sources of similar length that are not empty, as many as the cache is meant for.

        `decoded` is the number of tokens of all hypotheses of a source.
        """
        part = self.network.recipe.decoder
        assert part is not None
        order = sorted((index for index, one in enumerate(ids) if one.size), key=lambda index: ids[index].size)
        while order:
            cached = 2 * part.width * max(1, part.layers) * (decoded + ids[order[-1]].size)
            count = min(_MAX_SOURCES, max(1, _MAX_CACHE // cached))
            yield order[-count:]
            del order[-count:]

    def _translation(self, source: Integers, hypotheses: Sequence[Hypothesis]) -> Translation:
        if not hypotheses:  # no score is higher than another one
            raise ArtifactError("the network gives no probabilities but NaN: its weights are damaged; train it again.")
        best = hypotheses[0]
        text = self.target_text(source, best.text_tokens)
        return Translation(text, best.score, len(best.tokens), best.tokens[-1] == EOS)

    def target_text(self, source: Integers, target: Sequence[int]) -> str:
        """The text of the tokens that were generated from the ids of a source."""
        return self.tokenizer.decode(target)

    def _target_logprobs(self, sources: Sequence[Integers], stream: TokenStream) -> LogProbs:
        """The log-probability of every id of the stream, whose sentences are the targets of the sources."""
        found, ids = np.empty(stream.ids.size), stream.ids.astype(np.int64)
        targets = np.split(ids, stream.bounds[1:-1])
        sizes = np.array([max(one.size, two.size) for one, two in zip(sources, targets, strict=True)], dtype=np.int64)
        with torch.inference_mode(), progress("scoring", ids.size, "tokens") as advance:
            for group in _similar(sizes):
                first = self.pair_format.first
                batch, is_token = pad_sequences([np.concatenate([first, targets[one][:-1]]) for one in group])
                batch.source, _ = pad_sequences([self._source(sources[one]) for one in group])
                predicts = is_token & (torch.arange(batch.shape[1]) >= len(first) - 1)
                states = self.network(batch, predicts.flatten().nonzero()[:, 0]).last_hidden_state
                wanted = np.concatenate([targets[one] for one in group])
                logs = target_logprobs(self.network.output, states, torch.from_numpy(wanted), len(self.tokenizer))
                ends = np.cumsum([targets[one].size for one in group])[:-1]
                for one, part in zip(group, np.split(logs, ends), strict=True):
                    found[stream.bounds[one] : stream.bounds[one + 1]] = part
                advance(wanted.size)
        return found


class SourceDecoderState:
    """Hypotheses of a decoder with its cached states; see `firth.decoding.generate`."""

    def __init__(self, network: Network, encoder_states: EncoderStates, first: Sequence[int] = (EOS,)) -> None:
        """`first` are the tokens that the decoder reads before a target."""
        self.network = network
        self.cache: KVCache | None = None
        self._extend(torch.tensor(first).repeat(len(encoder_states.states), 1), encoder_states=encoder_states)

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        assert self.cache is not None
        self.cache = self.cache.select_rows(rows)
        self._extend(tokens[:, None])

    def _extend(self, ids: Tensor, **given: Any) -> None:
        states, self.cache = self.network.decode_step(ids, self.cache, **given)
        self.log_probabilities = self.network.output.log_probabilities(states[:, -1])
        self.log_probabilities[:, [token for token in range(FIRST_WORD) if token != EOS]] = -torch.inf


def pad_sequences(sequences: Sequence[Integers]) -> tuple[Batch, Tensor]:
    """A batch with a sequence in each row, padded, and a mask of the tokens."""
    lengths = np.array([one.size for one in sequences], dtype=np.int64)
    ids, is_token = pad_rows(np.concatenate(sequences), np.cumsum(lengths) - lengths, lengths)
    return Batch(ids, is_token, None if bool(is_token.all()) else is_token.long() - 1), is_token


def _similar(sizes: Integers) -> Iterator[list[int]]:
    """Indices of pairs of similar size that fill a batch, longest first."""
    order = np.argsort(-sizes, kind="stable").tolist()
    while order:
        count = max(1, BATCH_TOKENS // int(sizes[order[0]] + 2))
        yield order[:count]
        del order[:count]
