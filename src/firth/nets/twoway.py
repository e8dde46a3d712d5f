"""Networks that read forwards and backwards (ELMo): two language models over the same words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.abilities import Score
from firth.nets.batch import Batch
from firth.nets.causal import CausalNet
from firth.nets.encoders.encoder import Encoder
from firth.nets.network import Memory
from firth.nets.scoring import Numbers, Text, TokenScores, Window, batch_of, log_in_windows, log_reading_on
from firth.progress import progress
from firth.tokens.language import Stream


class TwoWayNet(CausalNet):
    """A causal language model, which scores and writes, and beside it one that reads from the end.

    A state is that of both side by side; each predicts by its own half.
    """

    def logits(self, ids: Tensor) -> Tensor:
        """(rows, places, tokens): what the forward half says of each place of rows of ids."""
        self.check_ids(ids)
        with torch.no_grad():
            states = self._look(batch_of(ids), torch.arange(ids.numel()))
            return self.network.output.logits(states).view(*ids.shape, -1)

    def score_both(self, texts: Sequence[str], *, together: bool = False) -> tuple[list[Score], list[Score]]:
        """The scores of each text forwards, as `score` gives them, and backwards."""
        return self.score(texts, together=together), self.score_backwards(texts, together=together)

    def score_backwards(self, texts: Sequence[str], *, together: bool = False) -> list[Score]:
        """The score of each text when a token is predicted from those after it.

        The `</s>` before the text is predicted from all of it, so there are as many predictions as forwards.
        """
        return self._backwards.score(texts, together=together)

    def log_tokens_backwards(self, stream: Stream) -> npt.NDArray[np.float64]:
        """The log-probability of every id of the stream given those after it.

        Nothing follows the last `</s>` of a text: in its place is that of the `</s>` before the text.
        """
        forwards = self._text(stream)
        text = forwards._replace(inputs=forwards.targets, targets=forwards.inputs)
        with torch.inference_mode(), progress("scoring backwards", text.targets.size, "tokens") as advance:
            if self.reads_on:
                logs = log_reading_on(self._extend_back, self.network.output, _mirrored(text), advance)[::-1]
            else:
                windows = self._windows_back(text.bounds)
                logs = log_in_windows(self._look_back, self.network.output, text, windows, advance, equal=True)
        return _moved_up(logs, text.bounds)

    @cached_property
    def _backwards(self) -> TokenScores:
        return TokenScores(self, self.log_tokens_backwards)

    def _look(self, batch: Batch, places: Tensor) -> Tensor:
        return super()._look(batch, places)[:, : self.recipe.width // 2]

    def _look_back(self, batch: Batch, places: Tensor) -> Tensor:
        return super()._look(batch, places)[:, self.recipe.width // 2 :]

    def _extend_back(self, ids: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Reads on from the end: the backward half has one state that goes over the text, too."""
        encoder = self.network.encoders[1]
        assert isinstance(encoder, Encoder)
        begun = memory or Memory(0, [])
        states, tensors = encoder.extend(self.network.embedding(ids), begun.tensors)
        return states, Memory(begun.length + ids.shape[1], tensors)

    def _windows_back(self, bounds: Numbers) -> list[Window]:
        """The windows of the texts read from the end."""
        size = int(bounds[-1])
        mirrored = self._windows(size - bounds[::-1])
        return [Window(size - one.end, size - one.begin, size - one.last, size - one.first) for one in mirrored]


class TwoWayStreamNet(TwoWayNet):
    """Taught on text that goes on: what was said before in a document is known, too, and what is said later."""

    remembers: ClassVar[bool] = True


def _mirrored(text: Text) -> Text:
    inputs, targets = (np.ascontiguousarray(ids[::-1]) for ids in (text.inputs, text.targets))
    return Text(inputs, targets, text.inputs.size - text.bounds[::-1], text.tokens)


def _moved_up(logs: npt.NDArray[np.float64], bounds: Numbers) -> npt.NDArray[np.float64]:
    """What each place says of the token before it, at the place of that token; the first of each text at its end.

    >>> _moved_up(np.array([1.0, 2, 3, 4, 5]), np.array([0, 3, 5])).tolist()
    [2.0, 3.0, 1.0, 5.0, 4.0]
    """
    moved = np.empty_like(logs)
    moved[:-1] = logs[1:]
    for begin, end in pairwise(bounds.tolist()):
        moved[end - 1] = logs[begin]
    return moved
