"""Natural language inference from the vectors of two sentences (Conneau et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.sentences import SentenceHead, labelled_pairs, layer_flops, make_layers
from firth.objectives.sequences import Integers, SentenceGroups, StoredText


class InferenceHead(SentenceHead):
    """-log softmax(W3 (W2 (W1 [u; v; |u - v|; u * v])))[label], u and v being the vectors of two sentences."""

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        widths: Sequence[int],
        activation: str = "none",
    ) -> None:
        """`widths` are those of the outputs of the layers, `activation` is between them."""
        super().__init__(objective, recipe, vocabulary)
        self.layers = nn.ModuleList(make_layers([4 * (recipe.sentence.width or recipe.width), *widths]))
        self.activation = None if activation == "none" else ACTIVATIONS[activation]

    def find(self, text: StoredText, labels: Integers | None) -> SentenceGroups:
        return labelled_pairs(text, labels)

    def classify(self, first: Tensor, second: Tensor) -> Tensor:
        """(pairs, labels): logits from the vectors of both sentences."""
        found = torch.cat([first, second, (first - second).abs(), first * second], -1)
        for number, layer in enumerate(self.layers):
            found = layer(found if self.activation is None or not number else self.activation(found))
        return found

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        first, second = self.vectors(network, states, batch)
        labels = batch.labels[self.label_key]
        return Loss(f.cross_entropy(self.classify(first, second), labels, reduction="sum"), len(labels))

    def group_flops(self) -> float:
        return layer_flops(self.layers)
