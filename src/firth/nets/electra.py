"""ElectraNet: a discriminator with its generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from firth.abilities import Score, TextPiece
from firth.errors import AbilityError
from firth.nets.masked import MaskedNet
from firth.nets.network import Network
from firth.nets.restore import HEADS, restore_second_network
from firth.nets.scoring import make_batch
from firth.progress import note


class ElectraNet(MaskedNet):
    """Scores and fills by the generator; embeds by the discriminator, which is the network that is fine-tuned."""

    def __init__(self, *parts: Any) -> None:
        """The generator's own tensors are `heads.NAME.generator.*`, if there are any."""
        super().__init__(*parts)
        ((name, second),) = self.recipe.second_networks.items()
        prefix = f"{HEADS}{name}.generator."
        own = {key.removeprefix(prefix): one for key, one in self.heads.items() if key.startswith(prefix)}
        self._generator = restore_second_network(second, self.network, own) if own else None

    @property
    def generator(self) -> Network:
        """The network that fills masks; `network` is the discriminator."""
        if self._generator is None:
            raise AbilityError("this discriminator has no generator: fill and score with a masked model, such as bert.")
        return self._generator

    @property
    def predictor(self) -> Network:
        return self.generator

    def logits(self, ids: Tensor) -> Tensor:
        """(batch, length, vocabulary): the logits of the generator at each position of `ids` (batch, length)."""
        self.check_ids(ids)
        with torch.no_grad():
            states = self.generator(make_batch(ids)).last_hidden_state
            return self.generator.output.logits(states).view(*ids.shape, -1)

    def score(self, texts: Sequence[str], *, whole_words: bool = False) -> list[Score]:
        """The pseudo-log-likelihood of each text by the generator: see `MaskedNet.score`."""
        _note_generator()
        return super().score(texts, whole_words=whole_words)

    def score_pieces(self, pieces: Iterable[TextPiece], *, whole_words: bool = False) -> Iterator[Score]:
        """The same for each piece; every sentence is scored by itself."""
        _note_generator()
        return super().score_pieces(pieces, whole_words=whole_words)

    def summary(self) -> dict[str, Any]:
        """As for all models, and which of the two networks does what."""
        return super().summary() | {"scores and fills": "generator", "embeds": "discriminator"}


def _note_generator() -> None:
    note("scores are pseudo-log-likelihoods of the generator; the discriminator gives no probabilities of tokens")
