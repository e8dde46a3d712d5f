"""Networks of masked next-token prediction: causal and masked in one (Charpentier and Samuel 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.causal import CausalNet
from firth.nets.network import KVCache
from firth.nets.pseudo import PseudoNet
from firth.nets.special_tokens import with_start


class HybridNet(CausalNet, PseudoNet):
    """Scores and generates from left to right, fills masks and embeds from both sides.

    The state of a position predicts the token after it: from the tokens up to there if these attend to nothing later,
    or at a mask from all others. Scores are exact log-probabilities of each sentence and its end, from left to right.
    """

    def _encode(self, batch: Batch, positions: Tensor) -> Tensor:
        batch.ids = with_start(batch.ids)
        batch.attention_order = torch.arange(batch.ids.shape[1])[None]
        return self.network(batch, positions).last_hidden_state  # type: ignore[no-any-return]

    def decode_step(self, ids: Tensor, cache: KVCache | None = None) -> tuple[Tensor, KVCache]:
        return self.network.decode_step(with_start(ids) if cache is None else ids, cache)

    def mask_states(self, batch: Batch, positions: Tensor) -> Tensor:
        """A text begins with a special token, so that there is a position before each mask."""
        return self.network(batch, positions - 1).last_hidden_state  # type: ignore[no-any-return]
