"""Masked networks: predictions of masked tokens from both sides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.abilities import Filling, Score, TextPiece
from firth.errors import AbilityError
from firth.lm.language_model import TokenStream
from firth.nets.model import NetModel
from firth.nets.network import Network
from firth.nets.scoring import (
    Integers,
    LogProbs,
    TokenScores,
    centred_windows,
    length_groups,
    logits_chunk,
    make_batch,
    max_length,
    note_long,
    one_line,
    target_logprobs,
)
from firth.progress import progress
from firth.tokens.tokenizer import EOS, FIRST_WORD, MASK, UNK
from firth.tokens.word_counts import SentenceCounts

Prediction = tuple[int, float]
"""A token id and its probability."""
_MASKS = re.compile(r"\[MASK\]|<mask>")
_SPACED = ("bpe", "byte-bpe", "pieces")  # tokenizers for which the space before a word is a part of it


class MaskedNet(NetModel):
    """Scores, fills and embeds; it does not generate."""

    score_kind: Literal["causal", "pseudo"] = "pseudo"

    @property
    def predictor(self) -> Network:
        """The network that predicts masked tokens."""
        return self.network

    @property
    def token_scorer(self) -> TokenScores:
        """The scores of single tokens: see `ScoresTokens`."""
        return self._token_scores

    @property
    def max_tokens(self) -> int | None:
        """Tokens of text, special ones included, that it reads at once; None if there is no limit."""
        return max_length(self.recipe)

    def score(self, texts: Sequence[str], *, whole_words: bool = False) -> list[Score]:
        """The pseudo-log-likelihood of each text: the sum of the log-probabilities of each token when it is masked.

        Ends of sentences are not predicted. A sentence of n tokens is encoded n times (Salazar et al. 2020). With
        `whole_words` the tokens after it in the same word are masked, too, which would make a rare word of several
        tokens too easy to predict (Kauf and Ivanova 2023).
        """
        return [_without_ends(one) for one in self._scorer(whole_words).score(texts)]

    def score_pieces(self, pieces: Iterable[TextPiece], *, whole_words: bool = False) -> Iterator[Score]:
        """The same for each piece; every sentence is scored by itself."""
        return map(_without_ends, self._scorer(whole_words).score_pieces(pieces))

    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each `[MASK]` or `<mask>` of a text the most probable tokens with their probabilities, best first.

        If there is one mask, each comes with the text that it makes.
        """
        return self.fill_many([text], top)[0]

    def fill_many(self, texts: Sequence[str], top: int = 5) -> list[list[list[Filling]]]:
        """The same for many texts, in batches."""
        if top < 1:
            raise AbilityError(f"top={top} returns no token: set it to 1 or more.")
        every = self.masked_ids(texts)
        masks = [[position for position, one in enumerate(ids) if one == MASK] for ids in every]
        if not all(masks):
            where = "" if len(texts) == 1 else f" in text {masks.index([])}"
            raise AbilityError(f"there is nothing to fill{where}: write [MASK] where a token is to be found.")
        found = self.top_predictions(every, masks, top)
        return [
            [
                [self._filling(ids, position, len(positions) == 1, *one) for one in best]
                for position, best in zip(positions, predictions, strict=True)
            ]
            for ids, positions, predictions in zip(every, masks, found, strict=True)
        ]

    def masked_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with masks, in either spelling; other special tokens in the text are unknown words."""
        has_space = self.tokenizer.recipe.model in _SPACED  # the masked token includes the space
        pattern = re.compile(rf"\s*(?:{_MASKS.pattern})") if has_space else _MASKS
        lines = [pattern.sub(lambda _: self.words[MASK], one_line(text)) for text in texts]
        found = self.tokenizer.encode_batch(lines)
        return [[one if one >= FIRST_WORD or one == MASK else UNK for one in tokens.ids] for tokens in found]

    def top_predictions(
        self, texts: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], top: int
    ) -> list[list[list[Prediction]]]:
        """The most probable ids at some positions of texts of ids, with their probabilities.

        Special tokens are left out. In a text that is too long a position has the context that fits
        around it.
        """
        rows = [row for number, ids in enumerate(texts) for row in self._rows_around(number, ids, positions[number])]
        found: list[list[list[Prediction]]] = [[[] for _ in some] for some in positions]
        with torch.inference_mode(), progress("filling", len(rows), "texts") as advance:
            for group in length_groups(np.array([len(row.ids) for row in rows], dtype=np.int64), equal=True):
                chosen = [rows[one] for one in group.tolist()]
                width = len(chosen[0].ids)
                flat = [number * width + position for number, row in enumerate(chosen) for position in row.positions]
                batch = make_batch(torch.tensor([row.ids for row in chosen]))
                best = iter(self._best(self.predictor(batch, torch.tensor(flat)).last_hidden_state, top))
                for row in chosen:
                    for mask in row.masks:
                        found[row.text][mask] = next(best)
                advance(len(chosen))
        return found

    def _rows_around(self, text: int, ids: Sequence[int], positions: Sequence[int]) -> list[_MaskedRow]:
        """A text as one row, or a row around each position if it is too long."""
        most = self._max_tokens(len(ids))
        begins: dict[int, list[int]] = {}
        for mask, position in enumerate(positions):
            begins.setdefault(min(max(0, position - most // 2), max(0, len(ids) - most)), []).append(mask)
        start = self.start_token
        return [
            _MaskedRow(text, masks, [start, *ids[begin : begin + most], EOS], [positions[m] - begin + 1 for m in masks])
            for begin, masks in begins.items()
        ]

    def _best(self, states: Tensor, top: int) -> list[list[Prediction]]:
        found: list[list[Prediction]] = []
        for some in torch.split(states, logits_chunk(len(self.words))):
            words = self.predictor.output.logits(some).softmax(-1)[:, FIRST_WORD:]
            best, ids = words.topk(min(top, words.shape[1]))
            ids += FIRST_WORD
            found += [list(zip(*row, strict=True)) for row in zip(ids.tolist(), best.tolist(), strict=True)]
        return found

    def _filling(self, ids: Sequence[int], position: int, alone: bool, token: int, probability: float) -> Filling:
        text = self.tokenizer.decode([*ids[:position], token, *ids[position + 1 :]]) if alone else None
        return Filling(self.token_text(token), probability, text)

    def _max_tokens(self, length: int) -> int:
        """Maximal tokens of text in a sequence."""
        most = max_length(self.recipe)
        return length if most is None else most - 2

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
        windows = self._windows(stream)
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

    def _windows(self, stream: TokenStream) -> Integers:
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
        states = self.predictor(make_batch(torch.from_numpy(rows)), torch.from_numpy(flat)).last_hidden_state
        return target_logprobs(self.predictor.output, states, torch.from_numpy(ids[positions]), len(self.words))


class _MaskedRow(NamedTuple):
    """An input that predicts some masks of a text."""

    text: int
    masks: list[int]
    """Indices of the masks among those of the text."""
    ids: list[int]
    positions: list[int]
    """Positions of these masks in `ids`."""


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
