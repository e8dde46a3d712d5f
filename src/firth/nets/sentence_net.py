"""SentenceNet: one or two networks that read whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as f

from firth.nets.contextual_vectors import Floats
from firth.nets.model import NetModel
from firth.nets.network import Network
from firth.nets.restore import HEADS, restore_second_network
from firth.nets.scoring import Integers, length_groups, make_batch, max_length, one_line
from firth.nets.sentence_vectors import sentence_vectors, vector_positions
from firth.progress import note, progress
from firth.tokens.tokenizer import EOS, FIRST_WORD, UNK

SECOND = "second"
"""The name of a second network in the head of its objective."""


class SentenceNet(NetModel):
    """Embeds texts by the final states of its networks, those of each normalised and concatenated.

    The second network, if there is one, is in the head of the objective; hidden states of tokens are those of the
    first.
    """

    def __init__(self, *parts: Any) -> None:
        """The tensors of a second network are `heads.NAME.second.*`."""
        super().__init__(*parts)
        self.networks: list[Network] = [self.network]
        """All networks that read a sentence."""
        for name, recipe in self.recipe.second_networks.items():
            prefix = f"{HEADS}{name}.{SECOND}."
            own = {key.removeprefix(prefix): one for key, one in self.heads.items() if key.startswith(prefix)}
            self.networks.append(restore_second_network(recipe, self.network, own, shared=False))

    def embed(self, texts: Sequence[str], *, layer: str | int = "last", pooling: str | None = None) -> Floats:
        """(texts, width of all networks): the vectors of texts, each read as one sentence; zeros without tokens.

        With a layer or a pooling the vectors are pooled states of the first network's tokens, as of any network.
        """
        if pooling is not None or layer != "last":
            return super().embed(texts, layer=layer, pooling=pooling or "mean")
        sentences = [np.where(ids >= FIRST_WORD, ids, UNK) for ids in self.encode([one_line(text) for text in texts])]
        found = np.zeros((len(texts), sum(each.recipe.width for each in self.networks)), dtype=np.float32)
        if limit := max_length(self.recipe):
            if long := sum(ids.size > limit - 2 for ids in sentences):
                note(f"{long:,} texts have more than {limit - 2} tokens, as many as the network reads: the rest is cut")
            sentences = [ids[: limit - 2] for ids in sentences]
        lengths = np.array([ids.size for ids in sentences], dtype=np.int64)
        with torch.inference_mode(), progress("reading", len(texts), "texts") as advance:
            for group in length_groups(lengths, equal=True):
                if lengths[group[0]]:
                    found[group] = self._vectors([sentences[one] for one in group.tolist()])
                advance(group.size)
        return found

    def _vectors(self, sentences: Sequence[Integers]) -> Floats:
        """The vectors of sentences of equal length."""
        rows = np.pad(np.stack(sentences), ((0, 0), (1, 1)), constant_values=EOS)
        rows[:, 0] = self.start_token
        batch = make_batch(torch.from_numpy(rows))
        made = []
        for network in self.networks:
            states = network(batch, vector_positions(network.recipe, batch))
            made.append(f.normalize(sentence_vectors(network.recipe, states, batch), dim=-1))
        return torch.cat(made, 1).numpy()

    def summary(self) -> dict[str, Any]:
        """As for all models, and the dimension of the vectors of sentences."""
        return super().summary() | {"sentence vector": sum(each.recipe.width for each in self.networks)}
