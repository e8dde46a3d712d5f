"""Networks trained by permutation language modelling: exact probabilities in any order (Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor

from firth.abilities import Score
from firth.errors import ArgumentError, near_miss
from firth.lm.language_model import TokenStream
from firth.nets.batch import Batch
from firth.nets.causal import BidirectionalStreamNet
from firth.nets.filling import FillingNet
from firth.nets.network import KVCache
from firth.nets.scoring import (
    LogProbs,
    TokenScores,
    length_groups,
    make_batch,
    max_length,
    target_logprobs,
)
from firth.progress import progress
from firth.tokens.tokenizer import MASK

Order = Literal["left-to-right", "right-to-left", "random"]
ORDERS: tuple[Order, ...] = ("left-to-right", "right-to-left", "random")


class PermutationNet(BidirectionalStreamNet, FillingNet):
    """Scores in any order, generates from left to right, fills masks last, and embeds bidirectionally.

    A token is predicted by the query at its position, which attends to the tokens before it in the order.
    """

    def score_in_order(
        self, texts: Sequence[str], order: Order = "left-to-right", *, seed: int = 0, as_document: bool = False
    ) -> list[Score]:
        """The log-probability of each text, factorised in an order: by the chain rule exact for every one.

        From left to right it is that of `score`. In a random order the number of tokens is given. Texts longer than the
        network's sequences are scored in windows, which in a random order do not overlap.
        """
        if order not in ORDERS:
            raise ArgumentError(f"there is no order {order!r:.80}: {near_miss(str(order), ORDERS)}")
        if order == "left-to-right":
            return self.score(texts, as_document=as_document)
        if order == "right-to-left":
            return self.score_backwards(texts, as_document=as_document)
        return TokenScores(self, partial(self._random_logprobs, seed)).score(texts, as_document=as_document)

    def decode_step(self, ids: Tensor, cache: KVCache | None = None) -> tuple[Tensor, KVCache]:
        return self.network.decode_step(ids, cache, add_query=True)

    def mask_states(self, batch: Batch, positions: Tensor) -> Tensor:
        """Masks are last in the order, and do not see one another."""
        return self._query_states(batch.ids, (batch.ids == MASK).long(), positions)

    def _encode(self, batch: Batch, positions: Tensor) -> Tensor:
        """The queries after some positions, in the order of the text."""
        ids = f.pad(batch.ids, (0, 1), value=MASK)
        order = torch.arange(ids.shape[1]).expand_as(ids)
        return self._query_states(ids, order, positions + positions // batch.shape[1] + 1)

    def _encode_backward(self, batch: Batch, positions: Tensor) -> Tensor:
        """The queries before some positions, in the reverse order of the text."""
        ids = f.pad(batch.ids, (1, 0), value=MASK)
        order = torch.arange(ids.shape[1]).flip(0).expand_as(ids)
        return self._query_states(ids, order, positions + positions // batch.shape[1])

    def _query_states(self, ids: Tensor, order: Tensor, positions: Tensor) -> Tensor:
        batch = replace(make_batch(ids), attention_order=order, is_query=True)
        return self.network(batch, positions).last_hidden_state  # type: ignore[no-any-return]

    def _random_logprobs(self, seed: int, stream: TokenStream) -> LogProbs:
        """The log-probability of each token in a random order of its text, or of a part of it, after the token before.

        The order depends on the seed and on the place of the part in the stream.
        """
        text, logprobs = self._text(stream), np.zeros(stream.ids.size)
        most = (max_length(self.recipe) or stream.ids.size + 1) - 1
        parts = [np.arange(begin, end, most) for begin, end in pairwise(text.bounds.tolist())]
        begins = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        ends = np.minimum(begins + most, text.bounds[np.searchsorted(text.bounds, begins, side="right")])
        with torch.inference_mode(), progress("scoring", text.targets.size, "tokens") as advance:
            for group in length_groups(ends - begins, equal=True):
                size = int(ends[group[0]] - begins[group[0]])
                orders = [np.random.default_rng([seed, begin]).permutation(size) for begin in begins[group].tolist()]
                order = f.pad(torch.from_numpy(np.stack(orders)) + 1, (1, 0))
                positions = begins[group][:, None] + np.arange(size)
                ids = torch.from_numpy(np.column_stack([text.inputs[begins[group]], text.targets[positions]]))
                states = self._query_states(ids, order, order.flatten().nonzero()[:, 0])
                targets = torch.from_numpy(text.targets[positions].ravel())
                logs = target_logprobs(self.network.output, states, targets, len(self.words))
                logprobs[positions] = logs.reshape(positions.shape)
                advance(positions.size)
        return logprobs
