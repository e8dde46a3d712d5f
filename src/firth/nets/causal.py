"""Causal networks: the probability of each token after those before it, and text that goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.abilities import Score, total
from firth.nets.batch import Batch
from firth.nets.decoding import Sampling, generate
from firth.nets.model import NetModel, Parts
from firth.nets.scoring import (
    DocumentScores,
    Text,
    Window,
    batch_of,
    following,
    log_in_windows,
    log_reading_on,
    longest,
)
from firth.progress import note, progress
from firth.tokens.language import LanguageModel, Stream, going_on
from firth.tokens.tokenizer import EOS

_SENTENCES = 20_000  # that are scored at once
_WINDOW = 1024  # tokens that a network that looks at few tokens reads at once


class CausalNet(NetModel, LanguageModel):
    """Each sentence by itself: `</s>` before the first token, and `</s>` to be predicted after the last."""

    def __init__(self, parts: Parts) -> None:
        LanguageModel.__init__(self, parts.recipe, parts.tokenizer, parts.layout, parts.spelling)
        NetModel.__init__(self, parts)

    @property
    def reads_on(self) -> bool:
        """Whether it can read a text of any length from the beginning: one state goes over it."""
        return longest(self.recipe) is None and self.recipe.encoder.kind in ("rnn", "lstm")

    @property
    def window(self) -> tuple[int, int]:
        """Tokens that are read at once where it cannot, and how many of them were read before: see `following`."""
        most = longest(self.recipe)
        if most is not None:
            return most, most // 2
        return max(_WINDOW, 2 * self.recipe.encoder.context), self.recipe.encoder.context

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        text = self._text(stream)
        self._tell_long(np.diff(stream.bounds))
        with torch.inference_mode(), progress("scoring", text.targets.size, "tokens") as advance:
            if self.reads_on:
                return log_reading_on(self.network.extend, self.network.output, text, advance)
            return log_in_windows(self._look, self.network.output, text, self._windows(text.bounds), advance)

    def score_documents(self, documents: Iterable[Sequence[str]]) -> Score:
        """The score of all documents, each a sequence of sentences, together; many are read side by side."""
        result = Score()
        texts: list[str] = []
        sizes: list[int] = []
        for document in chain(documents, [None]):
            if texts and (document is None or len(texts) + len(document) > _SENTENCES):
                result += total(DocumentScores(self, self.log_tokens, sizes).score(texts))
                texts, sizes = [], []
            if document:
                texts += document
                sizes.append(len(document))
        return result

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        ids = torch.tensor([self.begun(history)])
        ids = ids[:, self.window_of(ids.shape[1] - 1) :]
        with torch.inference_mode():
            states = self._look(batch_of(ids), torch.tensor([ids.shape[1] - 1]))
            logs = self.network.output.log_probabilities(states)
        return np.asarray(logs[0].double().numpy())

    def begun(self, history: Sequence[int]) -> list[int]:
        """What is read before the next token: `</s>` and the sentence that goes on, or all of the history."""
        return [EOS, *(history if self.remembers else going_on(history)[1:])]

    def window_of(self, place: int) -> int:
        """Where the window begins that tells what follows a place of a text."""
        most, overlap = self.window
        step = most - overlap
        return 0 if self.reads_on or place < most else step * ((place - overlap) // step)

    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        beams: int = 1,
    ) -> list[str]:
        """`count` continuations of the prompt, of at most `length` tokens each.

        A temperature of 0 takes the likeliest token each time; several `beams` look for the likeliest texts instead,
        by the mean log-probability of their tokens. The n-th text depends on the seed and on n alone.
        """
        begun = self.history(prompt)
        sampling = Sampling(temperature, top_k, top_p, seed)
        found = generate(self, begun, count, length, sampling, beams)
        return [self.tokenizer.decode([*begun, *ids]) for ids in found]

    def _text(self, stream: Stream) -> Text:
        """The stream as texts: every sentence ends with `</s>`, so what stands before a text is one, too."""
        ids = stream.ids.astype(np.int64)
        inputs = np.concatenate([[EOS], ids[:-1]]) if ids.size else ids
        begins = stream.bounds[:-1][stream.fresh] if self.remembers else stream.bounds[:-1]
        return Text(inputs, ids, np.append(begins, ids.size).astype(np.int64), len(self.tokenizer))

    def _windows(self, bounds: npt.NDArray[np.int64]) -> list[Window]:
        windows = []
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            for one in following(end - begin, *self.window):
                windows.append(Window(*(begin + place for place in one)))
        return windows

    def _look(self, batch: Batch, places: Tensor) -> Tensor:
        return self.network(batch, places).last  # type: ignore[no-any-return]

    def _tell_long(self, lengths: npt.NDArray[np.int64]) -> None:
        most = longest(self.recipe)
        long = 0 if most is None else int(np.count_nonzero(lengths > most))
        if long:
            note(f"{long:,} sentences of more than {most} tokens are read in parts that overlap by half")


class StreamNet(CausalNet):
    """Taught on text that goes on: what was said before in a document is known, too."""

    remembers: ClassVar[bool] = True
