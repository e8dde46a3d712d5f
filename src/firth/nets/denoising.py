"""DenoisingNet: an encoder and a decoder that restore text. It generates from a source, fills masks and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.filling import Prediction
from firth.nets.masked import MaskedNet
from firth.nets.scoring import Integers, LogProbs, target_logprobs
from firth.nets.seq2seq import Seq2SeqNet, pad_sequences
from firth.progress import progress
from firth.tokens.tokenizer import MASK


class ClozeRow(NamedTuple):
    """The inputs after which the decoder predicts a masked token."""

    source: list[int]
    """With its special tokens."""
    decoded: list[int]
    """The input of the decoder, which predicts the masked token at its end."""
    first: int = 0
    """The position of the first token of that input."""


class DenoisingNet(Seq2SeqNet, MaskedNet):
    """Restores texts (BART). A mask stands for any number of tokens.

    The score of a text is a pseudo-log-likelihood: each token is predicted from a source that has a mask in its place,
    and from the tokens before it, which the decoder reads.
    """

    score_meaning: ClassVar[str] = "pseudo-log-likelihood (each token given the text with a mask in its place)"

    def source_ids(self, sources: Sequence[str]) -> list[Integers]:
        return [np.array(ids, dtype=np.int64) for ids in self.masked_ids(sources)]

    def cloze(self, ids: Sequence[int], position: int, end: int) -> ClozeRow:
        """The row that predicts the token at a position of a text; those up to `end` are masked, too."""
        return self.cloze_row([*ids[:position], MASK, *ids[end:]], [*self.pair_format.first, *ids[:position]])

    def cloze_row(self, source: Sequence[int], decoded: list[int], first: int = 0) -> ClozeRow:
        """A row with the special tokens of its source."""
        before, end, *_ = self.pair_format
        return ClozeRow([*before, *source, *end], decoded, first)

    def top_predictions(
        self, texts: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], top: int
    ) -> list[list[list[Prediction]]]:
        """As for masked networks; each mask is filled with its best token before the next one is predicted."""
        found: list[list[list[Prediction]]] = []
        with torch.inference_mode(), progress("filling", len(texts), "texts") as advance:
            for ids, masks in zip(texts, positions, strict=True):
                filled, best = list(ids), list[list[Prediction]]()
                for mask in masks:
                    begin = self._window_begin(len(ids), mask)
                    part = filled[begin : begin + self._max_tokens(len(ids))]
                    row = self.cloze(part, mask - begin, mask - begin + 1)
                    best += self._best(self._cloze_states([row]), top)
                    filled[mask] = best[-1][0][0]
                found.append(best)
                advance(1)
        return found

    def _window_begin(self, length: int, position: int) -> int:
        most = self._max_tokens(length)
        return min(max(0, position - most // 2), max(0, length - most))

    def _score_masked(
        self, ids: Integers, words: Integers, begins: Integers, size: int, positions: Integers
    ) -> LogProbs:
        rows = []
        for begin, position in zip(begins.tolist(), positions.tolist(), strict=True):
            text, own = ids[begin : begin + size].tolist(), words[begin : begin + size]
            end = int(np.searchsorted(own, words[position], side="right"))
            rows.append(self.cloze(text, position - begin, end))
        targets = torch.from_numpy(ids[positions])
        return target_logprobs(self.network.output, self._cloze_states(rows), targets, len(self.words))

    def _cloze_states(self, rows: Sequence[ClozeRow]) -> Tensor:
        """(rows, width): the states that predict the masked tokens."""
        batch, is_token = pad_sequences([np.array(row.decoded) for row in rows])
        batch.position_ids = torch.arange(batch.shape[1]) + torch.tensor([[row.first] for row in rows])
        batch.position_ids *= is_token  # padding has any position that exists
        batch.source = self._source_batch([row.source for row in rows])
        last = is_token.sum(1) - 1 + torch.arange(len(rows)) * batch.shape[1]
        return cast(Tensor, self.network(batch, last).last_hidden_state)

    def _source_batch(self, rows: Sequence[list[int]]) -> Batch:
        batch, _ = pad_sequences([np.array(row) for row in rows])
        batch.is_hidden = self.hidden_tokens(batch.ids)
        return batch
