"""Masked networks: what stands at a hidden place, by what stands on both sides of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.abilities import Filling, Score
from firth.errors import AbilityError
from firth.nets.model import NetModel
from firth.nets.outputs.output import NEVER
from firth.nets.scoring import (
    Numbers,
    TokenScores,
    at_once,
    batch_of,
    by_length,
    log_probability,
    longest,
    one_line,
    surrounding,
)
from firth.progress import note, progress
from firth.tokens.language import FIRST_WORD, Stream
from firth.tokens.tokenizer import EOS, MASK, UNK

_MASKS = re.compile(r"\[MASK\]|<mask>")
_SPACED = ("bpe", "byte-bpe", "pieces")  # tokenizers for which the space before a word is a part of it


class MaskedNet(NetModel):
    """Scores, fills and embeds; it does not go on with a text."""

    score_kind: Literal["causal", "pseudo"] = "pseudo"

    def score(self, texts: Sequence[str], *, whole_words: bool = False) -> list[Score]:
        """The pseudo-log-likelihood of each text: the sum of what each token gets when it alone is hidden.

        Ends of sentences are not predicted. A sentence of n tokens is read n times (Salazar et al. 2020). With
        `whole_words` the tokens after it in the same word are hidden, too, so that a rare word of several tokens does
        not give itself away (Kauf and Ivanova 2023).
        """
        scorer = self._by_words if whole_words else self._by_tokens
        return [one._replace(tokens=one.tokens - one.sentences, silent=one.sentences) for one in scorer.score(texts)]

    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each `[MASK]` or `<mask>` of a text the likeliest tokens, with their probabilities, likeliest first.

        Where there is one mask, each comes with the text that it makes.
        """
        return self.fill_many([text], top)[0]

    def fill_many(self, texts: Sequence[str], top: int = 5) -> list[list[list[Filling]]]:
        """The same for many texts, which are read together."""
        if top < 1:
            raise AbilityError(f"top={top} asks for no token: set it to 1 or more.")
        every = self.masked_ids(texts)
        hidden = [[place for place, one in enumerate(ids) if one == MASK] for ids in every]
        if not all(hidden):
            where = "" if len(texts) == 1 else f" in text {hidden.index([])}"
            raise AbilityError(f"there is nothing to fill{where}: write [MASK] where a token is to be found.")
        found = self.likeliest(every, hidden, top)
        return [
            [
                [self._filling(ids, place, len(places) == 1, *one) for one in best]
                for place, best in zip(places, likeliest, strict=True)
            ]
            for ids, places, likeliest in zip(every, hidden, found, strict=True)
        ]

    def masked_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with masks, in either spelling; special tokens that are written out are unknown words."""
        spaced = self.tokenizer.recipe.model in _SPACED  # what is hidden has the space in it
        pattern = re.compile(rf"\s*(?:{_MASKS.pattern})") if spaced else _MASKS
        lines = [pattern.sub(lambda _: self.words[MASK], one_line(text)) for text in texts]
        found = self.tokenizer.encode_batch(lines)
        return [[one if one >= FIRST_WORD or one == MASK else UNK for one in tokens.ids] for tokens in found]

    def likeliest(
        self, texts: Sequence[Sequence[int]], places: Sequence[Sequence[int]], top: int
    ) -> list[list[list[tuple[int, float]]]]:
        """For some places of texts of ids the likeliest ids and their probabilities; all tokens together have 1.

        Tokens that are never predicted are left out. Of a text that is too long, a place sees what fits around it.
        """
        rows = [row for number, ids in enumerate(texts) for row in self._rows_around(number, ids, places[number])]
        found: list[list[list[tuple[int, float]]]] = [[[] for _ in some] for some in places]
        with torch.inference_mode(), progress("filling", len(rows), "texts") as advance:
            for group in by_length(np.array([len(row.ids) for row in rows], dtype=np.int64), equal=True):
                chosen = [rows[one] for one in group.tolist()]
                width = len(chosen[0].ids)
                wanted = [number * width + place for number, row in enumerate(chosen) for place in row.places]
                states = self.network(batch_of(torch.tensor([row.ids for row in chosen])), torch.tensor(wanted)).last
                best = iter(self._best(states, top))
                for row in chosen:
                    for mask in row.masks:
                        found[row.text][mask] = next(best)
                advance(len(chosen))
        return found

    def _rows_around(self, text: int, ids: Sequence[int], places: Sequence[int]) -> list[_Row]:
        """A text as one row, or where it is too long a row for each place, with as much as fits around it."""
        most = self._most(len(ids))
        begins: dict[int, list[int]] = {}
        for mask, place in enumerate(places):
            begins.setdefault(min(max(0, place - most // 2), max(0, len(ids) - most)), []).append(mask)
        return [
            _Row(text, masks, [self.frame[0], *ids[begin : begin + most], EOS], [places[m] - begin + 1 for m in masks])
            for begin, masks in begins.items()
        ]

    def _best(self, states: Tensor, top: int) -> list[list[tuple[int, float]]]:
        """The likeliest ids of each state and their probabilities."""
        found, step = [], at_once(len(self.words))
        for begin in range(0, len(states), step):
            chances = self.network.output.logits(states[begin : begin + step]).softmax(-1)
            chances[:, list(NEVER)] = -1
            best, ids = chances.topk(min(top, chances.shape[1] - len(NEVER)))
            found += [list(zip(*row, strict=True)) for row in zip(ids.tolist(), best.tolist(), strict=True)]
        return found

    def _filling(self, ids: Sequence[int], place: int, alone: bool, token: int, chance: float) -> Filling:
        text = self.tokenizer.decode([*ids[:place], token, *ids[place + 1 :]]) if alone else None
        return Filling(self.written(token), chance, text)

    def _most(self, length: int) -> int:
        """Tokens of text that fit into a row."""
        most = longest(self.recipe)
        return length if most is None else most - 2

    @cached_property
    def _by_tokens(self) -> TokenScores:
        return TokenScores(self, self._pseudo_logs)

    @cached_property
    def _by_words(self) -> TokenScores:
        return _WordScores(self, self._pseudo_logs)

    def _pseudo_logs(self, stream: Stream) -> npt.NDArray[np.float64]:
        """What each token gets when it is hidden, with those after it in its word if words are known; ends get 0."""
        ids = stream.ids.astype(np.int64)
        words = stream.words if isinstance(stream, _WordStream) else np.arange(ids.size)
        windows = self._windows(stream)
        counts = windows[:, 3] - windows[:, 2]
        begins, ends, firsts, _ = np.repeat(windows, counts, axis=0).T
        places = firsts + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        logs = np.zeros(ids.size)
        with torch.inference_mode(), progress("scoring", places.size, "tokens") as advance:
            for group in by_length(ends - begins + 2, equal=True):
                size = int(ends[group[0]] - begins[group[0]])
                logs[places[group]] = self._log_hidden(ids, words, begins[group], size, places[group])
                advance(group.size)
        return logs

    def _windows(self, stream: Stream) -> Numbers:
        """(windows, 4): the parts in which the sentences of a stream are read, without their ends."""
        lengths = np.diff(stream.bounds) - 1
        most = self._most(int(lengths.max(initial=0)))
        if long := int(np.count_nonzero(lengths > most)):
            note(f"{long:,} sentences of more than {most} tokens are read in parts that overlap by half")
        found = [
            [begin + place for place in window]
            for begin, length in zip(stream.bounds[:-1].tolist(), lengths.tolist(), strict=True)
            for window in (surrounding(length, most) if length else ())
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 4)

    def _log_hidden(
        self, ids: Numbers, words: Numbers, begins: Numbers, size: int, places: Numbers
    ) -> npt.NDArray[np.float64]:
        """What the token at each place gets in a row of `size` tokens that hides it and the rest of its word."""
        columns = begins[:, None] + np.arange(size)
        hidden = (words[columns] == words[places, None]) & (columns >= places[:, None])
        rows = np.pad(np.where(hidden, MASK, ids[columns]), ((0, 0), (1, 1)), constant_values=EOS)
        rows[:, 0] = self.frame[0]
        wanted = np.arange(len(rows)) * (size + 2) + places - begins + 1
        states = self.network(batch_of(torch.from_numpy(rows)), torch.from_numpy(wanted)).last
        return log_probability(self.network.output, states, torch.from_numpy(ids[places]), len(self.words))


class _Row(NamedTuple):
    """A row that is read to find what stands at some places of a text."""

    text: int
    masks: list[int]
    """Which of the places of the text..."""
    ids: list[int]
    places: list[int]
    """...are which places of the row."""


class _WordStream(Stream):
    """A stream that also knows which tokens are one word."""

    words: Numbers


class _WordScores(TokenScores):
    """Tells the words of a stream to whoever looks at its tokens."""

    def stream(
        self, sentences: Sequence[str], lengths: Sequence[int] = (), together: bool = False
    ) -> tuple[Stream, npt.NDArray[np.int64]]:
        stream, words = super().stream(sentences, lengths, together)
        marked = _WordStream(*stream)
        starts = np.ones(stream.ids.size, dtype=np.bool_)
        starts[stream.ids != EOS] = self._encoder.encode(sentences).starts
        marked.words = np.cumsum(starts)
        return marked, words
