"""Networks that fill masks: predictions of masked tokens from all others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from firth.abilities import Filling
from firth.errors import AbilityError
from firth.nets.batch import Batch
from firth.nets.model import NetModel
from firth.nets.network import Network
from firth.nets.scoring import length_groups, logits_chunk, make_batch, max_length, one_line
from firth.progress import progress
from firth.tokens.tokenizer import EOS, FIRST_WORD, MASK, UNK

Prediction = tuple[int, float]
"""A token id and its probability."""
_MASKS = re.compile(r"\[MASK\]|<mask>")
_SPACED = ("bpe", "byte-bpe", "pieces")  # tokenizers for which the space before a word is a part of it


class FillingNet(NetModel):
    """Fills masks and embeds."""

    @property
    def predictor(self) -> Network:
        """The network that predicts masked tokens."""
        return self.network

    def mask_states(self, batch: Batch, positions: Tensor) -> Tensor:
        """(positions, width): the states that predict the tokens at the masks of a batch."""
        return self.predictor(batch, positions).last_hidden_state  # type: ignore[no-any-return]

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
                best = iter(self._best(self.mask_states(batch, torch.tensor(flat)), top))
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


class _MaskedRow(NamedTuple):
    """An input that predicts some masks of a text."""

    text: int
    masks: list[int]
    """Indices of the masks among those of the text."""
    ids: list[int]
    positions: list[int]
    """Positions of these masks in `ids`."""
