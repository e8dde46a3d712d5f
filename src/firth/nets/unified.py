"""Networks of unified language modelling: one for understanding and generation (Dong et al. 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.causal import CausalNet
from firth.nets.network import KVCache
from firth.nets.pseudo import PseudoNet
from firth.nets.scoring import make_batch
from firth.nets.special_tokens import with_start
from firth.tokens.tokenizer import MASK

_LEFT_TO_RIGHT = 2  # the segment of sequences that are read from left to right


class UnifiedNet(CausalNet, PseudoNet):
    """Scores and generates from left to right, fills masks and embeds from both sides.

    A token is predicted at a mask that is appended after those before it, as in training. Scores are exact
    log-probabilities of each sentence and its end, from left to right.
    """

    @property
    def window(self) -> tuple[int, int]:
        most = super().window[0] - 1  # the mask has a position, too
        return most, most // 2

    def _encode(self, batch: Batch, positions: Tensor) -> Tensor:
        """The masks after some positions: each sees the tokens up to there and itself, and no token sees a mask."""
        ids = with_start(batch.ids)
        rows, length = ids.shape
        columns = torch.arange(length)
        masked = make_batch(f.pad(ids, (0, length), value=MASK))
        masked.position_ids = torch.cat([columns, columns + 1]).expand(rows, -1)
        masked.attention_order = torch.cat([2 * columns, 2 * columns + 1])[None]
        masked.query_only = torch.arange(2 * length)[None] >= length
        masked.segment_ids = torch.full_like(masked.ids, _LEFT_TO_RIGHT)
        return self.network(masked, positions + (positions // length + 1) * length).last_hidden_state  # type: ignore[no-any-return]

    def decode_step(self, ids: Tensor, cache: KVCache | None = None) -> tuple[Tensor, KVCache]:
        ids = f.pad(with_start(ids) if cache is None else ids, (0, 1), value=MASK)
        return self.network.decode_step(ids, cache, torch.full_like(ids, _LEFT_TO_RIGHT), drop_last=1)
