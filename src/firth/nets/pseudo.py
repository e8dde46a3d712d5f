"""Pseudo-log-likelihoods: the probability of each token of a text given all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from firth.abilities import Score, TextPiece
from firth.lm.language_model import TokenStream
from firth.nets.filling import FillingNet
from firth.nets.scoring import (
    Integers,
    LogProbs,
    TokenScores,
    centred_windows,
    length_groups,
    make_batch,
    note_long,
    target_logprobs,
)
from firth.progress import progress
from firth.tokens.tokenizer import EOS, MASK
from firth.tokens.word_counts import SentenceCounts


class PseudoNet(FillingNet):
    """Scores each token of a text given all others."""

    def pseudo_score(self, texts: Sequence[str], *, whole_words: bool = False) -> list[Score]:
        """The pseudo-log-likelihood of each text: the sum of the log-probabilities of each token when it is masked.

        Ends of sentences are not predicted. A sentence of n tokens is encoded n times (Salazar et al. 2020). With
        `whole_words` the tokens after it in the same word are masked, too, which would make a rare word of several
        tokens too easy to predict (Kauf and Ivanova 2023).
        """
        return [_without_ends(one) for one in self._scorer(whole_words).score(texts)]

    def pseudo_score_pieces(self, pieces: Iterable[TextPiece], *, whole_words: bool = False) -> Iterator[Score]:
        """The same for each piece; every sentence is scored by itself."""
        return map(_without_ends, self._scorer(whole_words).score_pieces(pieces))

    def _scorer(self, whole_words: bool) -> TokenScores:
        return self._word_scores if whole_words else self._token_scores

    @cached_property
    def _token_scores(self) -> TokenScores:
        return TokenScores(self, self._pseudo_logprobs)

    @cached_property
    def _word_scores(self) -> TokenScores:
        return _WordScores(self, self._pseudo_logprobs)

    def _pseudo_logprobs(self, stream: TokenStream, wanted: npt.NDArray[np.bool_] | None = None) -> LogProbs:
        """The log-probability of each token when it is masked, with the rest of its word if known; 0 for ends.

        With `wanted` only of these.
        """
        ids = stream.ids.astype(np.int64)
        words = stream.words if isinstance(stream, _WordStream) else np.arange(ids.size)
        windows = self._masked_windows(stream)
        counts = windows[:, 3] - windows[:, 2]
        begins, ends, firsts, _ = np.repeat(windows, counts, axis=0).T
        positions = firsts + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        if wanted is not None:
            begins, ends, positions = (each[wanted[positions]] for each in (begins, ends, positions))
        logprobs = np.zeros(ids.size)
        with torch.inference_mode(), progress("scoring", positions.size, "tokens") as advance:
            for group in length_groups(ends - begins + 2, equal=True):
                size = int(ends[group[0]] - begins[group[0]])
                logprobs[positions[group]] = self._score_masked(ids, words, begins[group], size, positions[group])
                advance(group.size)
        return logprobs

    def _masked_windows(self, stream: TokenStream) -> Integers:
        """(windows, 4): the windows of the sentences of a stream, without their ends."""
        lengths = np.diff(stream.bounds) - 1
        most = self._max_tokens(int(lengths.max(initial=0)))
        note_long(lengths, most)
        found = [
            [begin + position for position in window]
            for begin, length in zip(stream.bounds[:-1].tolist(), lengths.tolist(), strict=True)
            for window in (centred_windows(length, most) if length else ())
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 4)

    def _score_masked(
        self, ids: Integers, words: Integers, begins: Integers, size: int, positions: Integers
    ) -> LogProbs:
        """The log-probability of the token at each position in a window that masks it and the rest of its word."""
        columns = begins[:, None] + np.arange(size)
        is_masked = (words[columns] == words[positions, None]) & (columns >= positions[:, None])
        rows = np.pad(np.where(is_masked, MASK, ids[columns]), ((0, 0), (1, 1)), constant_values=EOS)
        rows[:, 0] = self.start_token
        flat = np.arange(len(rows)) * (size + 2) + positions - begins + 1
        states = self.mask_states(make_batch(torch.from_numpy(rows)), torch.from_numpy(flat))
        return target_logprobs(self.predictor.output, states, torch.from_numpy(ids[positions]), len(self.words))


class _WordStream(TokenStream):
    """A stream with the number of the word of each token."""

    words: Integers


class _WordScores(TokenScores):
    """Adds word numbers to the streams that it scores."""

    def stream(
        self, sentences: Sequence[str], lengths: Sequence[int] | Integers = ()
    ) -> tuple[TokenStream, SentenceCounts]:
        stream, counts = super().stream(sentences, lengths)
        with_words = _WordStream(*stream)
        starts = np.ones(stream.ids.size, dtype=np.bool_)
        starts[stream.ids != EOS] = self._encoder.encode(sentences).word_starts
        with_words.words = np.cumsum(starts)
        return with_words, counts


def _without_ends(score: Score) -> Score:
    """A score in which the ends of sentences are no tokens, since masked models do not predict them."""
    return score._replace(tokens=score.tokens - score.sentences, silent=score.sentences)
