"""Networks that read a text segment by segment with a memory of those before (Dai et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from firth.lm.language_model import TokenStream
from firth.nets.causal import StreamNet
from firth.nets.scoring import LogProbs, score_stepwise
from firth.progress import progress


class MemoryNet(StreamNet):
    """A causal network whose memory reaches over the segments of a document, to any length in bounded space."""

    @property
    def has_unlimited_context(self) -> bool:
        return True

    def token_logprobs(self, stream: TokenStream) -> LogProbs:
        text = self._text(stream)
        with torch.inference_mode(), progress("scoring", text.targets.size, "tokens") as advance:
            return score_stepwise(self.network.decode_step, self.network.output, text, advance)

    def next_logprobs(self, history: Sequence[int]) -> LogProbs:
        with torch.inference_mode():
            states, _ = self.network.decode_step(torch.tensor([self.input_ids(history)]))
            logs = self.network.output.log_probabilities(states[:, -1])
        return np.asarray(logs[0].double().numpy())

    def logits(self, ids: Tensor) -> Tensor:
        """(batch, length, vocabulary): the logits at each position of `ids`, read in segments with the memory."""
        self.check_ids(ids)
        with torch.no_grad():
            states, _ = self.network.decode_step(ids)
            return self.network.output.logits(states.flatten(0, 1)).view(*ids.shape, -1)

    @property
    def max_ids(self) -> int | None:
        """Any number."""
        return None
