"""FragmentNet: a denoising network that writes the masked tokens of a text, each mask being one token."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from firth.nets.denoising import ClozeRow, DenoisingNet
from firth.tokens.tokenizer import MASK


class FragmentNet(DenoisingNet):
    """Restores fragments (MASS). The decoder reads the token before a mask at its position, and attends to no mask.

    The score of a text is a pseudo-log-likelihood: each token is a fragment, predicted from the token before it and
    from the source without it.
    """

    def hidden_tokens(self, source: Tensor) -> Tensor | None:
        return source == MASK

    def cloze(self, ids: Sequence[int], position: int, end: int) -> ClozeRow:
        before = ids[position - 1] if position else self.pair_format.first[-1]
        masks = [MASK] * (end - position)
        return self.cloze_row([*ids[:position], *masks, *ids[end:]], [before], position)
