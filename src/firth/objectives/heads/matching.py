"""Adjacent sentences, found among those of a batch by the cosines of their vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.sentences import SentenceHead, adjacent_sentences, cosine_table, layer_flops, make_layers
from firth.objectives.sequences import Integers, SentenceGroups, StoredText


class _MatchingHead(SentenceHead):
    """Pairs of a sentence and the next one of its document."""

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, temperature: float) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.temperature = temperature

    def find(self, text: StoredText, labels: Integers | None) -> SentenceGroups:
        return adjacent_sentences(text)

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the cosines of all pairs."""
        pairs = self.count(batch) // self.predictions
        return super().flops(network, batch) + 2.0 * pairs**2 * network.sentence.width


class NeighboursHead(_MatchingHead):
    """-log softmax(cos(u[i], v[j]) / temperature), v being the next sentence: over j for u[i], and over i for v[j]."""

    predictions = 2

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        first, second = self.vectors(network, states, batch)
        scores, labels = cosine_table(first, second) / self.temperature, torch.arange(len(first))
        ahead, back = (f.cross_entropy(one, labels, reduction="sum") for one in (scores, scores.T))
        return Loss(ahead + back, 2 * len(first))


class ResponseHead(_MatchingHead):
    """-log softmax(cos(u[i], r(v[j])) / temperature)[i], r being feed-forward layers; the last one is linear."""

    def __init__(
        self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, temperature: float, layers: int
    ) -> None:
        super().__init__(objective, recipe, vocabulary, temperature)
        width = recipe.sentence.width or recipe.width
        self.layers = nn.ModuleList(make_layers([width] * (layers + 1)))

    def respond(self, vectors: Tensor) -> Tensor:
        """The vectors of sentences as responses."""
        for number, layer in enumerate(self.layers):
            vectors = layer(torch.tanh(vectors) if number else vectors)
        return vectors

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        first, second = self.vectors(network, states, batch)
        scores = cosine_table(first, self.respond(second)) / self.temperature
        return Loss(f.cross_entropy(scores, torch.arange(len(first)), reduction="sum"), len(first))

    def group_flops(self) -> float:
        return layer_flops(self.layers)
